"""The file format: NDJSON, one pet or order per line, with the fields of the HTTP interface.

Each line is ``{"pet":{...}}`` or ``{"order":{...}}`` in UTF-8 and ends with a line feed. An export
has all pets first, then all orders, both in ascending id.
"""

import re
from collections.abc import Iterator
from datetime import UTC
from typing import BinaryIO, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from petstore.contract import Order, Pet

MAX_LINE: Final = 2**20
"""The maximum length of a line in bytes, unless the service accepts longer bodies."""


class InvalidLineError(Exception):
    """A line of an import is malformed, or the storage refuses it. The message says which."""


class _Pet(Pet, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """A pet without unknown members."""


class _Order(Order, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """An order without unknown members."""


class _Line(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    pet: _Pet | UnsetType = UNSET
    order: _Order | UnsetType = UNSET


# In an order, only a time can have so many digits, and msgspec would round them.
_TOO_FINE: Final = re.compile(rb"\.[0-9]{7}")

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Line)


def encode(item: Pet | Order) -> bytes:
    """Return the line of a pet or an order, including the line feed."""
    kind = "pet" if isinstance(item, Pet) else "order"
    return _ENCODER.encode({kind: item}) + b"\n"


def decode(line: bytes) -> Pet | Order:
    """Return the pet or order in a line. Raises `ValueError` that says what is wrong with it."""
    if not line.endswith(b"\n"):
        raise ValueError("it does not end with a line feed; the file is truncated")
    if not line.strip():
        raise ValueError("it is empty")
    try:
        found = _DECODER.decode(line)
        pet, order = found.pet, found.order
        if isinstance(pet, Pet) and isinstance(order, UnsetType):
            return Pet(pet.id, pet.name, pet.category_id, pet.status)
        if isinstance(order, Order) and isinstance(pet, UnsetType):
            if _TOO_FINE.search(line):
                raise ValueError("placedAt: expected at most microseconds")
            at = order.placed_at.astimezone(UTC)
            return Order(order.id, order.pet_id, order.status, at)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    raise ValueError("expected either a pet or an order")


def read(file: BinaryIO, name: str, max_line: int) -> Iterator[tuple[int, bytes, Pet | Order]]:
    """Yield the number, the bytes and the item of each line.

    name -- the name of the file in messages
    max_line -- the maximum length of a line in bytes, including the line feed

    Raises `InvalidLineError` for the first malformed line.
    """
    number = 0
    while line := file.readline(max_line + 1):
        number += 1
        if len(line) > max_line:
            raise InvalidLineError(f"{name}, line {number}: it is longer than {max_line:,} bytes")
        try:
            item = decode(line)
        except ValueError as error:
            raise InvalidLineError(f"{name}, line {number}: {error}") from None
        yield number, line, item
