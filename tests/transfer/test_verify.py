"""`petstore verify`: what differs between an export and a store."""

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from petstore import exit_status
from petstore.contract import Order, OrderStatus, Pet, PetStatus, Repository, TokenRecord
from petstore.transfer import ndjson
from tests.support.command import error_message, in_process
from tests.support.transfer import AT, DURABLE, export_of, place_settings, with_repository

PETS = [Pet(pet_id, f"Rex {pet_id}", 7, PetStatus.PENDING) for pet_id in range(1, 8)]
ORDERS = [Order(id_, id_, OrderStatus.PLACED, AT) for id_ in range(1, 4)]
UNTIL = int(time.time()) + 3600
TOKENS = [TokenRecord(bytes([n]) * 32, bytes(32), UNTIL, n) for n in range(1, 6)]
EXPIRED = TokenRecord(bytes(32), bytes(32), 1, 7)


def test_every_difference_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    chosen, file = place_settings(DURABLE[0], tmp_path / "place"), tmp_path / "file"

    async def fill(repository: Repository) -> None:
        await repository.restore([*PETS[:6], *ORDERS, *TOKENS[:4]])

    with_repository(chosen, fill)
    items: list[ndjson.Transferred] = [*PETS[:6], *ORDERS, *reversed(TOKENS[:4]), EXPIRED]
    file.write_bytes(export_of(map(ndjson.encode, items)))
    equal = in_process("verify", str(file), **chosen)
    assert (equal.status, equal.stdout) == (0, "")
    assert equal.stderr.endswith("; all are equal\n")

    renamed, later = replace(PETS[2], name="Max"), replace(TOKENS[1], until=UNTIL + 1)
    items = [*PETS[:2], renamed, *PETS[4:], *ORDERS[1:], TOKENS[0], later, *TOKENS[3:]]
    file.write_bytes(export_of(map(ndjson.encode, items)))
    different = in_process("verify", str(file), **chosen)
    assert different.status == exit_status.DIFFERENT

    def text(item: ndjson.Transferred) -> str:
        return json.dumps(json.loads(ndjson.encode(item)), separators=(",", ":"))

    assert different.stdout.splitlines() == [
        f"{file}, line 3: {text(renamed)}; the store: {text(PETS[2])}",
        f"only in the store: {text(PETS[3])}",
        f"only in {file}, line 6: {text(PETS[6])}",
        f"only in the store: {text(ORDERS[0])}",
        f"{file}, line 10: {text(later)}; the store: {text(TOKENS[1])}",
        f"only in the store: {text(TOKENS[2])}",
        f"only in {file}, line 12: {text(TOKENS[4])}",
    ]
    exported = in_process("export", **chosen)
    stored: list[ndjson.Transferred] = [*PETS[:6], *ORDERS, *TOKENS[:4]]
    assert exported.stdout.encode() == export_of(map(ndjson.encode, stored))


@pytest.mark.parametrize("second", PETS[:2])
def test_a_line_that_is_repeated_or_out_of_order_is_refused(second: Pet, tmp_path: Path) -> None:
    """Of two equal lines, one was taken for the store's, which was empty."""
    chosen, file = place_settings(DURABLE[0], tmp_path / "place"), tmp_path / "file"
    with_repository(chosen, lambda repository: repository.check())
    file.write_bytes(ndjson.encode(PETS[1]) + ndjson.encode(second))
    message = error_message(in_process("verify", str(file), **chosen), exit_status.INVALID_DATA)
    assert message.startswith(
        f"petstore: {file}, line 2: it is repeated or out of order; an export"
    )
