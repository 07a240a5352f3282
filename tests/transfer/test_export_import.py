"""Export and import: any durable backend to any other, with exports equal to the byte."""

import os
import pty
import re
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from petstore.contract import MAX_ID, NewPet, OrderStatus, Pet, PetStatus, Repository, TokenRecord
from petstore.transfer import ndjson, progress
from petstore.transfer.progress import Progress
from petstore.transfer.sources import PAGE_CHARACTERS, PAGE_ITEMS, Source
from tests.support.command import COMMAND, in_process
from tests.support.environments import captured
from tests.support.services import environment
from tests.support.transfer import (
    AT,
    DURABLE,
    TRANSFERRED,
    contents,
    export_of,
    fill,
    place_settings,
    with_repository,
)
from tests.support.waiting import HANG_SECONDS, until

EACH = [DURABLE[0], *(pytest.param(name, marks=pytest.mark.slow) for name in DURABLE[1:])]
PAIRS = [
    pytest.param(one, other, marks=[] if distance == 1 else pytest.mark.slow)
    for distance in range(len(DURABLE))
    for one, other in zip(DURABLE, DURABLE[distance:] + DURABLE[:distance], strict=True)
]
"""Every pair; the quick ones export from each backend once, and import into each."""


def run(*arguments: str, **chosen: str) -> str:
    """Run a command that must succeed; return its standard error."""
    done = in_process(*arguments, **chosen)
    assert (done.status, done.stdout) == (0, ""), done
    return done.stderr


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_transferred_store_is_exported_equal_to_the_byte(
    one: str, other: str, tmp_path: Path
) -> None:
    source, target = (
        place_settings(one, tmp_path / "one"),
        place_settings(other, tmp_path / "other"),
    )
    with_repository(source, lambda repository: fill(repository, TRANSFERRED))
    first, second = tmp_path / "first", tmp_path / "second"
    report = run("export", str(first), **source)
    assert re.fullmatch(
        r"petstore: exported [\d,]+ pets, [\d,]+ orders and \d+ records in [\d.]+ s \([\d,]+/s\)"
        + ("; it shows one moment only if nobody wrote meanwhile.*\n" if one == "redis" else "\n"),
        report,
    )
    assert f" {TRANSFERRED:,} pets" in report
    for _ in range(2):
        assert run("import", str(first), **target).endswith("/s)\n")
    run("export", str(second), **target)
    one_lines, other_lines = first.read_bytes().splitlines(), second.read_bytes().splitlines()
    items = TRANSFERRED + sum(line.startswith(b'{"order') for line in one_lines)
    assert one_lines[:items] == other_lines[:items]
    assert sorted(one_lines) == sorted(other_lines), "only records may have another order"
    assert not list(tmp_path.glob(".*.part"))

    async def check(repository: Repository) -> None:
        pets, orders = await contents(repository)
        lines = first.read_bytes().splitlines()
        assert first.read_bytes() == export_of(first.read_bytes().splitlines(keepends=True)[:-1])
        kinds = Counter(line[:5] for line in lines[:-1])
        assert kinds == {b'{"pet': len(pets), b'{"ord': len(orders), b'{"tok': TRANSFERRED // 10}
        assert len(pets) == TRANSFERRED
        assert {order.status for order in orders} == set(OrderStatus)
        receipt = await repository.create_pet(NewPet("next", 1, PetStatus.AVAILABLE))
        assert pets[-1].id < receipt.id <= MAX_ID
        placed = await repository.place_order(receipt.id, AT)
        assert orders[-1].id < placed.id <= MAX_ID

    with_repository(target, check)


def test_an_export_is_on_disk_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content before the file appears, then the folder: a power failure takes neither."""
    source, file, syncs = place_settings(DURABLE[0], tmp_path), tmp_path / "to/file", []
    with_repository(source, lambda repository: repository.create_pet(NewPet("Rex", 7)))
    file.parent.mkdir()

    def fsync(descriptor: int) -> None:
        synced = os.fstat(descriptor)
        syncs.append((synced.st_ino, stat.S_ISDIR(synced.st_mode) or synced.st_size, file.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    run("export", str(file), **source)
    written, folder = file.stat(), file.parent.stat()
    assert syncs == [(written.st_ino, written.st_size, False), (folder.st_ino, True, True)]


@pytest.mark.parametrize("backend", DURABLE)
def test_an_export_is_one_moment_or_says_that_it_is_not(backend: str, tmp_path: Path) -> None:
    source = place_settings(backend, tmp_path)
    with_repository(source, lambda repository: fill(repository, TRANSFERRED))
    run("export", str(tmp_path / "before"), **source)
    before = (tmp_path / "before").read_bytes().splitlines()

    async def write(repository: Repository) -> None:
        await fill(repository, 60)
        for order in (await contents(repository))[1]:
            if order.status is OrderStatus.PLACED:
                await repository.update_order(order.id, OrderStatus.COMPLETED)

    with subprocess.Popen(
        [*COMMAND, "export"],
        env=environment(**source),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as export:
        assert export.stdout is not None
        first = export.stdout.readline()
        with_repository(source, write)  # meanwhile the pipe is full
        rest, report = export.communicate(timeout=HANG_SECONDS)
    assert export.returncode == 0
    exported = sorted([first.rstrip(b"\n"), *rest.splitlines()])
    remark = b"; it shows one moment only if nobody wrote meanwhile (see PETSTORE_READ_ONLY)\n"
    assert report.endswith(remark) == (exported != sorted(before)) == (backend == "redis")


@pytest.mark.parametrize("backend", EACH)
def test_an_interrupted_import_can_be_run_again(backend: str, tmp_path: Path) -> None:
    source, target = (place_settings(backend, tmp_path / name) for name in ("one", "other"))
    with_repository(source, lambda repository: fill(repository, 2600))
    file = tmp_path / "file"
    run("export", str(file), **source)
    lines = file.read_bytes().splitlines(keepends=True)
    for signal_, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        with subprocess.Popen(
            [*COMMAND, "import"],
            env=environment(**target),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as popen:
            assert popen.stdin is not None
            popen.stdin.write(b"".join(lines[:1800]))
            popen.stdin.flush()
            opened = Path(target.get("sqlite_path", "/"))
            until(lambda opened=opened: opened.exists() and stored_pets(target) >= 1500)  # type: ignore[misc]
            popen.send_signal(signal_)
            try:
                assert popen.wait(HANG_SECONDS) == status
            finally:
                popen.kill()
            stderr = popen.stderr.read() if popen.stderr else b""
        expected = b"petstore: interrupted; run it again to continue\n"
        assert stderr == (expected if signal_ == signal.SIGINT else b"")
        assert stored_pets(target) < 2600
    run("import", str(file), **target)
    run("import", str(file), **target)
    assert with_repository(source, contents) == with_repository(target, contents)


@pytest.mark.parametrize("backend", EACH)
def test_only_expired_records_are_left_out(backend: str, tmp_path: Path) -> None:
    """The clock of the service that wrote a record may have been ahead."""
    target, file = place_settings(backend, tmp_path), tmp_path / "file"
    untils = [int(time.time()) + seconds for seconds in (999, 10**6, 2**52, -9)]
    records = [TokenRecord(bytes([n] * 32), bytes(32), until, 1) for n, until in enumerate(untils)]
    file.write_bytes(export_of(map(ndjson.encode, records)))
    assert "1 record of them had expired" in run("import", str(file), **target)
    page = with_repository(target, lambda repository: repository.list_tokens("", 9, 0))
    assert sorted(page.records, key=lambda record: record.until) == records[:-1]
    assert "all are equal" in in_process("verify", str(file), **target).stderr


def stored_pets(target: dict[str, str]) -> int:
    """Return the number of pets in a store."""
    return len(with_repository(target, contents)[0])


def test_a_backend_that_is_not_durable_is_refused() -> None:
    for arguments, reason in (
        (["export"], "there is nothing to export"),
        (["import"], "everything would be lost at the end"),
    ):
        outcome = in_process(*arguments, backend="memory")
        assert outcome.status == 2
        assert outcome.stderr == (
            f"petstore: the backend 'memory' keeps its data only in the process: {reason}\n"
        )


def test_a_terminal_shows_the_progress(tmp_path: Path) -> None:
    chosen, file = place_settings(DURABLE[0], tmp_path / "one"), tmp_path / "file"
    with_repository(chosen, lambda repository: fill(repository, 3000))
    for arguments, verb in ((["export", str(file)], "exported"), (["import", str(file)], "import")):
        reader, terminal = pty.openpty()
        env = environment(**chosen) | {"TERM": "xterm", "COLUMNS": "120"}
        with subprocess.Popen(
            [*COMMAND, *arguments], env=env, stdout=subprocess.PIPE, stderr=terminal
        ) as popen:
            os.close(terminal)
            shown = b""
            while piece := read(reader):
                shown += piece
            assert popen.wait(HANG_SECONDS) == 0
            assert popen.stdout is not None
            assert popen.stdout.read() == b""
        os.close(reader)
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
        counted = rf"{verb}\w* [\d,]+ pets(,| and) [\d,]+ orders( and \d+ records)?"
        bar = r" .*\u2501\u2501\u2501.* 100% \d:\d\d:\d\d left" if verb == "import" else r" *[\r\n]"
        assert re.search(rf"{counted}, [\d,]+/s{bar}", text)
        assert re.search(rf"petstore: {verb}\w* 3,000 pets, .*/s\)(; all .*)?\r\n$", text)


@pytest.mark.parametrize(("total", "share"), [(None, ""), (10, ", 50%")])
def test_a_pipe_gets_a_line_now_and_then(
    total: int | None,
    share: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress("exported", total) as shown:
        shown.add([Pet(1, "Rex", 7)], 4)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(progress, "REPORT_SECONDS", 0)
        shown.add([Pet(2, "Rex", 7)], 1)
    pattern = rf"petstore: exported 2 pets and 0 orders, [\d,]+/s{share}\n"
    assert re.fullmatch(pattern, capsys.readouterr().err)


def read(terminal: int) -> bytes:
    """Return some output of a terminal, nothing at its end."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # what Linux reports at the end
        return b""


def test_pages_of_long_names_have_fewer_items() -> None:
    names = ["x" * 65_000] * 300 + [""] * 2000

    class Stored(Source):
        def __init__(self) -> None:
            """Open nothing."""

        def page(self, _: object, after: int, count: int) -> list[Pet]:
            numbered = enumerate(names[after : after + count], after + 1)
            return [Pet(pet_id, name, 7) for pet_id, name in numbered]

    found = list(Stored().pages(Pet))
    assert [item.id for page in found for item in page] == [*range(1, 2301)]
    assert max(sum(len(names[pet.id - 1]) for pet in page) for page in found) <= PAGE_CHARACTERS
    assert max(map(len, found)) == PAGE_ITEMS


@pytest.mark.slow
@pytest.mark.parametrize("backend", EACH)
def test_a_larger_store_needs_no_more_memory(backend: str, tmp_path: Path) -> None:
    script = (
        "import re, sys; from petstore import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "finally: print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])"
    )
    peaks: dict[str, list[int]] = {"export": [], "import": []}
    for count in (6_000, 60_000):
        chosen = place_settings(backend, tmp_path / f"{count}")
        target = place_settings(backend, tmp_path / f"{count}-other")
        pets = [Pet(pet_id, "Rex", 7) for pet_id in range(1, count + 1)]
        with_repository(chosen, lambda repository, pets=pets: repository.restore(pets))  # type: ignore[misc]
        for name, settings in (("export", chosen), ("import", target)):
            command = [sys.executable, "-c", script, name, str(tmp_path / "file")]
            done = captured(command, env=environment(**settings))
            assert done.returncode == 0, done.stderr
            peaks[name].append(int(done.stdout))
    for name, (small, large) in peaks.items():
        assert large - small < 8 * 1024, (name, small, large)  # 60,000 pets take some 20 MB
