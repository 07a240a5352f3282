"""What an import refuses: malformed lines and conflicts, each by its number."""

import json
import os
import re
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from petstore.contract import Order, OrderStatus, Pet, PetStatus, Repository
from petstore.moving import lines
from tests import moving
from tests.live import environment
from tests.moving import AT, DURABLE, contents, within
from tests.test_command import COMMAND, SECONDS, command, mistake

PETS = [Pet(number, f"animal {number}", 7, PetStatus.PENDING) for number in range(1, 1001)]
ORDERS = [Order(number, number, OrderStatus.PLACED, AT) for number in range(1, 11)]
GOOD = [*map(lines.encode, PETS), *map(lines.encode, ORDERS)]
AT_700 = GOOD[699]
MALFORMED = [
    (b"\n", "it is empty"),
    (b"  \n", "it is empty"),
    (b"null\n", "Expected `object`"),
    (b"[]\n", "Expected `object`"),
    (b"{}\n", "either a pet or an order"),
    (AT_700[:-3] + b"\n", "truncated"),
    (AT_700[:-1] + b"{}\n", "trailing"),
    (AT_700.replace(b"pet", b"cat"), "unknown field `cat`"),
    (AT_700.replace(b'"id"', b'"Id"'), "unknown field `Id`"),
    (AT_700.replace(b'"categoryId":7', b'"categoryId":1e2'), "categoryId"),
    (AT_700.replace(b'"categoryId":7', b'"categoryId":"7"'), "categoryId"),
    (AT_700.replace(b'"categoryId":7', b'"categoryId":9223372036854775808'), "categoryId"),
    (AT_700.replace(b'"categoryId":7,', b""), "missing required field `categoryId`"),
    (AT_700.replace(b'"id":700', b'"id":0'), "id"),
    (AT_700.replace(b'"id":700', b'"id":9007199254740992'), "id"),
    (AT_700.replace(b'"pending"', b"null"), "status"),
    (AT_700.replace(b'"pending"', b'"Pending"'), "status"),
    (AT_700.replace(b"animal", b"\xff"), "(?i:utf-8)"),
    (AT_700.replace(b"animal", b"\\ud800"), "surrogate"),
    (AT_700.replace(b"animal", b"x" * 2**20), "longer than 1,048,576 bytes"),
    (AT_700[:-2] + b"," + GOOD[1000][1:], "either a pet or an order"),
    (GOOD[1000].replace(b"Z", b""), "placedAt"),
    (GOOD[1000].replace(b"2026-11-21T09:30:00.123456Z", b"0001-01-01T00:00:00+14:00"), "range"),
    (b'{"pet":' + b"[" * 5000 + b"\n", "pet"),
]


def refused(tmp_path: Path, content: bytes) -> tuple[str, tuple[list[Pet], list[Order]]]:
    """Import what must be refused; return what is said, without the file, and what is stored."""
    chosen, file = moving.settings(DURABLE[0], tmp_path / "place"), tmp_path / "file"
    file.write_bytes(content)
    said = mistake(command("import", str(file), **chosen))
    assert said.startswith(f"petstore: {file}, "), said
    return said.removeprefix(f"petstore: {file}, "), within(chosen, contents)


@pytest.mark.parametrize(("line", "reason"), MALFORMED)
def test_a_malformed_line_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"".join([*GOOD[:699], line, *GOOD[700:]]))
    with (
        file.open("rb") as opened,
        pytest.raises(Exception, match=rf"^name, line 700: .*{reason}") as caught,
    ):
        for _ in lines.read(opened, "name", lines.MAX_LINE):
            pass
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("cut", [b"", AT_700[:-1]])
def test_nothing_is_stored_of_a_file_with_a_malformed_line(tmp_path: Path, cut: bytes) -> None:
    content = b"".join([*GOOD[:699], cut or b"x\n", *([] if cut else GOOD[700:])])
    said, found = refused(tmp_path, content)
    assert said.startswith("line 700: ")
    assert found == ([], [])


def test_a_malformed_line_of_a_pipe_is_named(tmp_path: Path) -> None:
    chosen = moving.settings(DURABLE[0], tmp_path / "place")
    done = subprocess.run(
        [*COMMAND, "import"], env=environment(**chosen), timeout=SECONDS, check=False,
        input=b"".join([*GOOD[:699], b"x\n", *GOOD[700:]]), capture_output=True,
    )  # fmt: skip
    assert done.returncode == 2
    pattern = rb"petstore: standard input, line 700: .*\. The lines before it are stored\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr
    assert within(chosen, contents) == (PETS[:699], [])


@pytest.mark.parametrize(
    ("place", "item", "reason"),
    [
        (700, Pet(3, "another", 7), 'another is stored: {"pet":{"id":3,"name":"animal 3",'),
        (1005, Order(3, 50, OrderStatus.PLACED, AT), 'another is stored: {"order":{"id":3,'),
        (1005, Order(99, 3, OrderStatus.PLACED, AT), "animal 3 is in order 3"),
        (1005, Order(99, 30, OrderStatus.COMPLETED, AT), "animal 30 is pending"),
        (5, Order(99, 30, OrderStatus.PLACED, AT), "there is no animal 30"),
    ],
)
def test_a_conflicting_line_is_named(
    tmp_path: Path, place: int, item: Pet | Order, reason: str
) -> None:
    before, after = GOOD[: place - 1], GOOD[place - 1 :]
    said, found = refused(tmp_path, b"".join([*before, lines.encode(item), *after]))
    assert said.startswith(f"line {place}: {reason}"), said
    assert said.endswith(" before it are stored, some after it may be; to run it again is safe\n")
    assert found == (PETS[: place - 1], ORDERS[: max(0, place - 1001)])


def test_what_is_stored_already_is_passed_over(tmp_path: Path) -> None:
    chosen, file = moving.settings(DURABLE[0], tmp_path / "place"), tmp_path / "file"

    async def before(repository: Repository) -> None:
        await repository.restore([*PETS[500:600], PETS[3], ORDERS[3]])

    within(chosen, before)
    file.write_bytes(b"".join(GOOD))
    assert command("import", str(file), **chosen).status == 0
    assert within(chosen, contents) == (PETS, ORDERS)


def test_files_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    chosen = moving.settings(DURABLE[0], tmp_path / "place")
    for arguments, reason in (
        (["import", "/nothing"], "cannot read /nothing: No such file or directory"),
        (["import", "/"], "cannot read /: Is a directory"),
        (["export", "/nothing/file"], "cannot write /nothing/file: No such file or directory"),
        (["export", "/"], "cannot write /: Is a directory"),
    ):
        said = mistake(command(*arguments, **chosen))
        assert said == f"petstore: {reason}\n"
    (tmp_path / "file").write_text("old")
    assert command("export", str(tmp_path / "file"), **chosen).status == 0
    assert (tmp_path / "file").read_text() == ""


def test_a_reader_who_is_gone_is_no_failure(tmp_path: Path) -> None:
    chosen = moving.settings(DURABLE[0], tmp_path / "place")
    (tmp_path / "file").write_bytes(b"".join(GOOD))
    assert command("import", str(tmp_path / "file"), **chosen).status == 0
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "export"], env=environment(**chosen), stdout=writer,
        stderr=subprocess.PIPE, timeout=SECONDS, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def meaning(line: bytes) -> Any:
    """Return what JSON says, with times as times."""
    value = json.loads(line)
    if isinstance(value, dict) and isinstance(order := value.get("order"), dict):
        order["placedAt"] = datetime.fromisoformat(order["placedAt"])
    return value


@settings(max_examples=500)
@example(line=GOOD[-1], at=79, cut=0, put=b"0")  # a time with seven digits was rounded once
@given(
    line=st.sampled_from([GOOD[0], GOOD[-1]]),
    at=st.integers(0, 120),
    cut=st.integers(0, 5),
    put=st.binary(max_size=3) | st.text('0123456789.eE-+"\\{}[],:nul ', max_size=3).map(str.encode),
)
def test_a_changed_line_is_refused_or_means_what_it_says(
    line: bytes, at: int, cut: int, put: bytes
) -> None:
    at %= len(line)
    changed = line[:at] + put + line[at + cut :]
    try:
        item = lines.decode(changed)
    except ValueError:
        return
    assert meaning(lines.encode(item)) == meaning(changed)
