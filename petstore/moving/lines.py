"""The format: NDJSON, one animal or order per line, with the fields of the HTTP interface.

``{"pet":{...}}`` or ``{"order":{...}}``, UTF-8, each line with a line feed at its end. An export
has animals first, then orders, each in ascending id.
"""

import re
from collections.abc import Iterator
from datetime import UTC
from typing import BinaryIO, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from petstore.contract import Order, Pet
from petstore.settings import ConfigurationError

MAX_LINE: Final = 2**20
"""Longer lines are malformed, unless the service takes longer bodies."""


class _Pet(Pet, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """An animal, and nothing else."""


class _Order(Order, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """An order, and nothing else."""


class _Line(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    pet: _Pet | UnsetType = UNSET
    order: _Order | UnsetType = UNSET


# Only a time has such digits in an order, and msgspec would round them.
_TOO_FINE: Final = re.compile(rb"\.[0-9]{7}")

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Line)


def encode(item: Pet | Order) -> bytes:
    """Return the line of an animal or an order, with its line feed."""
    kind = "pet" if isinstance(item, Pet) else "order"
    return _ENCODER.encode({kind: item}) + b"\n"


def decode(line: bytes) -> Pet | Order:
    """Return what a line holds. Raises `ValueError` that says what is wrong with it."""
    if not line.endswith(b"\n"):
        raise ValueError("it has no end; the file was cut off")
    if not line.strip():
        raise ValueError("it is empty")
    try:
        found = _DECODER.decode(line)
        pet, order = found.pet, found.order
        if isinstance(pet, Pet) and isinstance(order, UnsetType):
            return Pet(pet.id, pet.name, pet.category_id, pet.status)
        if isinstance(order, Order) and isinstance(pet, UnsetType):
            if _TOO_FINE.search(line):
                raise ValueError("placedAt: expected a time with microseconds, no finer")
            at = order.placed_at.astimezone(UTC)
            return Order(order.id, order.pet_id, order.status, at)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    raise ValueError("expected either a pet or an order")


def read(file: BinaryIO, name: str, max_line: int) -> Iterator[tuple[int, bytes, Pet | Order]]:
    """Yield each line's number, its bytes and what it holds.

    name -- what messages call the file
    max_line -- how many bytes a line may have, its line feed counted in

    Raises `ConfigurationError` for the first malformed line.
    """
    number = 0
    while line := file.readline(max_line + 1):
        number += 1
        if len(line) > max_line:
            raise ConfigurationError(f"{name}, line {number}: it is longer than {max_line:,} bytes")
        try:
            item = decode(line)
        except ValueError as error:
            raise ConfigurationError(f"{name}, line {number}: {error}") from None
        yield number, line, item
