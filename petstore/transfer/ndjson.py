"""The file format: NDJSON, a line for each pet, order, and record of an idempotency key.

Each line is ``{"pet":{...}}``, ``{"order":{...}}`` or ``{"token":{...}}`` in UTF-8 and ends with a
line feed. Pets and orders have the fields of the HTTP interface, records those of `TokenRecord`,
with digests in Base64. An export has all pets first, then all orders, both in ascending id, then
all records, in any order. Its last line says how many there are of each, so that one that was cut
off is noticed: ``{"end":{"pets":2,"orders":1,"tokens":0}}``.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from itertools import count
from typing import Annotated, BinaryIO, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from petstore.config.errors import ConfigurationError
from petstore.contract import Order, Pet, TokenRecord
from petstore.text.mismatch import explain
from petstore.text.strict_json import check_depth, check_members, why_malformed

MAX_LINE: Final = 2**20
"""The maximum length of a line in bytes, unless the service accepts longer bodies."""


Transferred = Pet | Order | TokenRecord
"""What a line contains."""

MEMBERS: Final[dict[type[Transferred], str]] = {Pet: "pet", Order: "order", TokenRecord: "token"}
"""The member of a line for each type, in the order of an export."""


class InvalidLineError(Exception):
    """A line of an import is malformed, missing, or refused by the storage; it says which."""


class _Pet(Pet, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """A pet without unknown members."""


class _Order(Order, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """An order without unknown members."""


_Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]


class _Token(TokenRecord, frozen=True, gc=False, forbid_unknown_fields=True):
    """A record whose digests have their length, without unknown members."""

    value: _Digest
    fingerprint: _Digest
    until: Annotated[int, Meta(ge=0, le=2**53 - 1)]


class _Line(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    pet: _Pet | UnsetType = UNSET
    order: _Order | UnsetType = UNSET
    token: _Token | UnsetType = UNSET


# In an order, only a time can have so many digits, and msgspec would round them.
_TOO_FINE: Final = re.compile(rb"\.[0-9]{7}")

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Line)


def encode(item: Transferred) -> bytes:
    """Return the line of an item, including the line feed."""
    return _ENCODER.encode({MEMBERS[type(item)]: item}) + b"\n"


def encode_end(counts: Mapping[type[Transferred], int]) -> bytes:
    """Return the last line of an export with so many items of each type."""
    return _ENCODER.encode({"end": {f"{MEMBERS[t]}s": n for t, n in counts.items()}}) + b"\n"


def decode(line: bytes) -> Transferred:
    """Return the item in a line. Raises `ValueError` that says what is wrong with it."""
    if not line.endswith(b"\n"):
        raise ValueError("it does not end with a line feed; the file is truncated")
    if not line.strip():
        raise ValueError("it is empty")
    try:
        item = _item(_DECODER.decode(line), line)
        if encode(item) != line:  # another program's: the fast decoder takes more than HTTP does
            check_depth(line)
            check_members(line.decode())
    except msgspec.ValidationError as error:
        raise ValueError(explain(error, _Line)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(why_malformed(line, error)) from None
    except (OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return item


def _item(found: _Line, line: bytes) -> Transferred:
    pet, order, token = found.pet, found.order, found.token
    if [pet, order, token].count(UNSET) != len(MEMBERS) - 1:
        raise ValueError("expected a pet, an order or a token, and only one of them")
    if isinstance(pet, Pet):
        return Pet(pet.id, pet.name, pet.category_id, pet.status)
    if isinstance(token, TokenRecord):
        return TokenRecord(token.value, token.fingerprint, token.until, token.id)
    if isinstance(order, Order):
        if _TOO_FINE.search(line):
            raise ValueError("placedAt: expected at most microseconds")
        at = order.placed_at.astimezone(UTC)
        return Order(order.id, order.pet_id, order.status, at)
    raise AssertionError


def read(file: BinaryIO, name: str, max_line: int) -> Iterator[tuple[int, bytes, Transferred]]:
    """Yield the number, the bytes and the item of each line but the last.

    name -- the name of the file in messages
    max_line -- the maximum length of a line in bytes, including the line feed

    Raises `InvalidLineError` for the first malformed line, and at the end for a wrong last one.
    """
    counts = dict.fromkeys(MEMBERS, 0)
    for number in count(1):
        try:
            line = file.readline(max_line + 1)
        except OSError as error:
            raise ConfigurationError(f"cannot read {name}: {error.strerror}") from None
        if not line or line.startswith(b'{"end"'):
            break
        if len(line) > max_line:
            raise InvalidLineError(f"{name}, line {number}: it is longer than {max_line:,} bytes")
        try:
            item = decode(line)
        except ValueError as error:
            raise InvalidLineError(f"{name}, line {number}: {error}") from None
        counts[type(item)] += 1
        yield number, line, item
    end = encode_end(counts)
    if line != end or file.readline(1):
        raise InvalidLineError(
            f"{name}, line {number}: expected {end.decode().strip()} and nothing after it; the"
            " export was cut off or changed"
        )
