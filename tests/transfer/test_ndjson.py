"""Lines that an import refuses, because they are malformed or conflict with stored items."""

import base64
import json
import os
import re
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from petstore import exit_status
from petstore.contract import Order, OrderStatus, Pet, PetStatus, TokenRecord
from petstore.transfer import ndjson
from tests.support.command import error_message, in_process, run_streams
from tests.support.transfer import AT, DURABLE, contents, export_of, place_settings, with_repository

PETS = [Pet(pet_id, f"Rex {pet_id}", 7, PetStatus.PENDING) for pet_id in range(1, 1001)]
ORDERS = [Order(id_, id_, OrderStatus.PLACED, AT) for id_ in range(1, 11)]
GOOD = [*map(ndjson.encode, PETS), *map(ndjson.encode, ORDERS)]
AT_700 = GOOD[699]
EXPIRED = 1_000_000_000  # in 2001: the time of the run would differ among processes, as would names
RECORD = TokenRecord(bytes(32), bytes(range(32)), EXPIRED, 7)


def of_category(value: bytes) -> bytes:
    """Return the pet of line 700 with another category."""
    return AT_700.replace(b'"categoryId":7', b'"categoryId":' + value)


TOKEN = ndjson.encode(RECORD)
MALFORMED = [
    (b"\n", "it is empty"),
    (b"[]\n", "expected an object, got an array"),
    (b"{}\n", "a pet, an order or a token"),
    (AT_700[:-3] + b"\n", "truncated"),
    (AT_700[:-1] + b"{}\n", "trailing"),
    (AT_700.replace(b"pet", b"cat"), "unknown member `cat`; leave it out"),
    (AT_700.replace(b'"id"', b'"Id"'), "pet: unknown member `Id`; leave it out"),
    (of_category(b"1e2"), "pet.categoryId: expected an integer, got a n"),
    (of_category(b"9223372036854775808"), "categoryId"),
    (AT_700.replace(b'"categoryId":7,', b""), "pet.categoryId: required, but missing"),
    (AT_700.replace(b'"id":700', b'"id":0'), "pet.id: expected an integer of at least 1$"),
    (AT_700.replace(b'"id":700', b'"id":9007199254740992'), "pet.id: expected .* of at most 900"),
    (AT_700.replace(b'"pending"', b'"Pending"'), "pet.status: expected one of `available`, `p"),
    (AT_700.replace(b"Rex", b"\xff"), "(?i:utf-8)"),
    (AT_700.replace(b"Rex", b"\\ud800"), "surrogate"),
    (AT_700.replace(b"Rex", b"x" * 2**20), "longer than 1,048,576 bytes"),
    (AT_700[:-2] + b"," + GOOD[1000][1:], "a pet, an order or a token, and only one"),
    (TOKEN[:-2] + b"," + AT_700[1:], "a pet, an order or a token, and only one"),
    (TOKEN.replace(b'"A', b'"'), "token.value: "),
    (TOKEN.replace(b'"AAAA', b'"'), "token.value: "),
    (TOKEN.replace(b'"id":7', b'"petId":7'), "token: unknown member `petId`; leave it out"),
    (TOKEN.replace(b'"id":7', b'"id":0'), "token.id: expected an integer of at least 1"),
    (TOKEN.replace(b'"until":', b'"until":-'), "token.until: expected an integer of at least 0"),
    (GOOD[1000].replace(b"Z", b""), "order.placedAt: expected a time with its offset"),
    (GOOD[1000].replace(b"2026-11-21T09:30:00.123456Z", b"0001-01-01T00:00:00+14:00"), "range"),
    (b'{"pet":' + b"[" * 5000 + b"\n", "pet"),
    (AT_700.replace(b'"id"', b'"id":1,"id"'), "expected each member once, but `id` is repeated"),
    (AT_700.replace(b'"id"', b'"i\\u0064":1,"id"'), "but `id` is repeated"),
    (AT_700[:-2] + b"," + AT_700[1:], "expected each member once, but `pet` is repeated"),
    (TOKEN.replace(b'"id"', b'"id":1,"id"'), "but `id` is repeated"),
    (GOOD[1000].replace(b'"id"', b'"petId":1,"id"'), "but `petId` is repeated"),
    (b"\xef\xbb\xbf" + AT_700, "begins with a byte order mark; expected UTF-8 without one"),
    (f"\ufeff{AT_700.decode()}".encode("utf-16-le")[:-1], "it is UTF-16; expected UTF-8"),
]


def refused(tmp_path: Path, content: bytes) -> tuple[str, tuple[list[Pet], list[Order]]]:
    """Import a file that must be refused; return the message after its name, and the store."""
    chosen, file = place_settings(DURABLE[0], tmp_path / "place"), tmp_path / "file"
    file.write_bytes(content)
    message = error_message(in_process("import", str(file), **chosen), exit_status.INVALID_DATA)
    assert message.startswith(f"petstore: {file}, "), message
    return message.removeprefix(f"petstore: {file}, "), with_repository(chosen, contents)


@pytest.mark.parametrize(("line", "reason"), MALFORMED)
def test_a_malformed_line_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"".join([*GOOD[:699], line, *GOOD[700:]]))
    with (
        file.open("rb") as opened,
        pytest.raises(ndjson.InvalidLineError, match=rf"^name, line 700: .*{reason}") as caught,
    ):
        for _ in ndjson.read(opened, "name", ndjson.MAX_LINE):
            pass
    assert len(str(caught.value).splitlines()) == 1


CUT_OFF = r'line [0-9]+: expected {"end":.*}} and nothing after it; the export was cut off or .*'
ANOTHER = ndjson.encode(replace(RECORD, id=8))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", CUT_OFF, id="nothing"),
        pytest.param(b"".join(GOOD), CUT_OFF, id="no end"),
        pytest.param(export_of(GOOD)[:-3], CUT_OFF, id="half of the end"),
        pytest.param(export_of(GOOD).replace(GOOD[20], b""), CUT_OFF, id="other counts"),
        pytest.param(export_of(GOOD[:-1]) + GOOD[-1], CUT_OFF, id="more lines"),
        pytest.param(b"".join(GOOD[:700])[:-1], "line 700: .*", id="half of a line"),
        pytest.param(b"".join([*GOOD[:699], b"x\n", *GOOD[700:]]), "line 700: .*", id="malformed"),
        pytest.param(
            export_of([*GOOD, TOKEN, ANOTHER]),
            f"line {len(GOOD) + 2}: an earlier line has another record of its token",
            id="two records of a token",
        ),
    ],
)
def test_nothing_is_stored_of_a_file_that_is_malformed_cut_off_or_changed(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    message, found = refused(tmp_path, content)
    assert re.fullmatch(f"{reason}\n", message), message
    assert found == ([], [])


def test_a_malformed_line_from_a_pipe_is_named(tmp_path: Path) -> None:
    """As is the end of an export that was cut off."""
    chosen = place_settings(DURABLE[0], tmp_path / "place")
    assert in_process("check", **chosen).status == 0  # there is a store
    for command, rest, more in (
        ("verify", [b"x\n"], rb"\n"),
        ("import", [], rb"\. The lines before it are stored\n"),
    ):
        done = run_streams(command, settings=chosen, input=b"".join([*GOOD[:699], *rest]))
        assert done.returncode == exit_status.INVALID_DATA
        pattern = rb"petstore: standard input, line 700: .*" + more
        assert re.fullmatch(pattern, done.stderr), done.stderr
    assert with_repository(chosen, contents) == (PETS[:699], [])


OF_99 = "the order with id 99 is refused:"


@pytest.mark.parametrize(
    ("number", "item", "reason"),
    [
        (700, Pet(3, "another", 7), 'a different item is stored: {"pet":{"id":3,"name":"Rex 3",'),
        (1005, Order(3, 50, OrderStatus.PLACED, AT), 'a different item is stored: {"order":{"id"'),
        (1005, Order(99, 3, OrderStatus.PLACED, AT), f"{OF_99} pet 3 is in order 3"),
        (1005, Order(99, 30, OrderStatus.COMPLETED, AT), f"{OF_99} pet 30 is pending"),
        (5, Order(99, 30, OrderStatus.PLACED, AT), f"{OF_99} there is no pet 30"),
    ],
)
def test_a_conflicting_line_is_named(
    tmp_path: Path, number: int, item: Pet | Order, reason: str
) -> None:
    before, after = GOOD[: number - 1], GOOD[number - 1 :]
    message, found = refused(tmp_path, export_of([*before, ndjson.encode(item), *after]))
    assert message.startswith(f"line {number}: {reason}"), message
    assert message.endswith(
        ". All lines before it are stored, and some after it may be;"
        " it is safe to run the import again\n"
    )
    assert found == (PETS[: number - 1], ORDERS[: max(0, number - 1001)])


def test_unusable_files_are_reported(tmp_path: Path) -> None:
    chosen = place_settings(DURABLE[0], tmp_path / "place")
    assert in_process("check", **chosen).status == 0  # there is a store
    for arguments, reason in (
        (["import", "/nothing"], "cannot read /nothing: No such file or directory"),
        (["import", "/"], "cannot read /: Is a directory"),
        (["verify", "/nothing"], "cannot read /nothing: No such file or directory"),
        (["export", "/nothing/file"], "cannot write /nothing/file: No such file or directory"),
        (["export", "/"], "cannot write /: Is a directory"),
    ):
        assert error_message(in_process(*arguments, **chosen)) == f"petstore: {reason}\n"
    (tmp_path / "file").write_text("old")
    assert in_process("export", str(tmp_path / "file"), **chosen).status == 0
    assert (tmp_path / "file").read_bytes() == export_of([])


@pytest.mark.parametrize(("lines", "unbuffered"), [(0, ""), (len(GOOD), ""), (len(GOOD), "1")])
def test_an_export_whose_reader_is_gone_before_the_end_fails(
    lines: int, unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    chosen = place_settings(DURABLE[0], tmp_path / "place")
    (tmp_path / "file").write_bytes(export_of(GOOD[:lines]))
    assert in_process("import", str(tmp_path / "file"), **chosen).status == 0
    reader, writer = os.pipe()
    os.close(reader)
    done = run_streams("export", settings=chosen, stdout=writer)
    os.close(writer)
    message = b"petstore: the reader of the pipe has closed it; the export is incomplete\n"
    assert (done.returncode, done.stderr) == (74, message)


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [("export", ""), ("export /dev/full", ""), ("openapi", "1"), ("keys new", "")],
)
def test_a_full_disk_under_any_output_is_told_in_one_line(
    command: str, unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    chosen = place_settings(DURABLE[0], tmp_path / "place")
    if "export" in command:
        (tmp_path / "file").write_bytes(export_of(GOOD))
        assert in_process("import", str(tmp_path / "file"), **chosen).status == 0
    with Path("/dev/full").open("wb") as full:
        done = run_streams(*command.split(), settings=chosen, stdout=full)
    *before, last = done.stderr.splitlines()
    target = "/dev/full" if "/" in command else "standard output"
    message = f"petstore: cannot write {target}: No space left on device"
    assert (done.returncode, last.decode()) == (74, message)
    assert not before or command == "keys new"  # which announces the key there
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["import", "verify"])
def test_a_full_disk_under_the_temporary_file_is_told_in_one_line(
    command: str, tmp_path: Path
) -> None:
    chosen, file = place_settings(DURABLE[0], tmp_path / "place"), tmp_path / "file"
    assert in_process("check", **chosen).status == 0  # there is a store
    tokens = (replace(RECORD, value=sha256(b"%d" % n).digest()) for n in range(40_000))
    file.write_bytes(export_of(map(ndjson.encode, tokens)))
    through = ("sh", "-c", 'ulimit -f 64; exec "$@"', "sh")
    done = run_streams(command, str(file), settings=chosen, through=through)
    message = b"petstore: cannot write a temporary file: disk I/O error"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (74, message)


@pytest.mark.parametrize(
    ("name", "closed", "stream"),
    [("openapi", ">&-", "output"), ("settings", ">&-", "output"), ("import", "<&-", "input")],
)
def test_a_closed_stream_is_named_in_one_line(
    name: str, closed: str, stream: str, tmp_path: Path
) -> None:
    chosen = place_settings(DURABLE[0], tmp_path / "place")
    assert in_process("check", **chosen).status == 0  # there is a store
    done = run_streams(name, settings=chosen, through=("sh", "-c", f'exec "$@" {closed}', "sh"))
    if stream == "output":
        expected = (74, b"petstore: cannot write standard output: it is closed\n")
    else:
        expected = (2, b"petstore: standard input is closed\n")
    assert (done.returncode, done.stderr) == expected


def meaning(line: bytes) -> Any:
    """Return the JSON value of a line, with times and Base64 decoded."""
    value = json.loads(line)
    if isinstance(value, dict) and isinstance(order := value.get("order"), dict):
        order["placedAt"] = datetime.fromisoformat(order["placedAt"])
    if isinstance(value, dict) and isinstance(token := value.get("token"), dict):
        for name in ("value", "fingerprint"):
            token[name] = base64.b64decode(token[name])
    return value


@settings(max_examples=500)
@example(line=GOOD[-1], at=79, cut=0, put=b"0")  # a fraction of seven digits was once rounded
@example(line=TOKEN, at=60, cut=2, put=b"//")  # bits of Base64 that mean nothing
@given(
    line=st.sampled_from([GOOD[0], GOOD[-1], TOKEN]),
    at=st.integers(0, 120),
    cut=st.integers(0, 5),
    put=st.binary(max_size=3) | st.text('0123456789.eE-+"\\{}[],:nul ', max_size=3).map(str.encode),
)
def test_a_changed_line_is_refused_or_read_with_its_changed_meaning(
    line: bytes, at: int, cut: int, put: bytes
) -> None:
    at %= len(line)
    changed = line[:at] + put + line[at + cut :]
    try:
        item = ndjson.decode(changed)
    except ValueError:
        return
    assert meaning(ndjson.encode(item)) == meaning(changed)
