"""How animals and orders lie in the store: JSON, the status in front, as scripts rewrite it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from petstore.contract import NewPet, Order, Pet

_PETS: Final = msgspec.json.Decoder(list[Pet])
_ORDERS: Final = msgspec.json.Decoder(list[Order])
_ENCODER: Final = msgspec.json.Encoder()


class _Rest(Struct, rename="camel"):
    """What of an animal never changes."""

    name: str
    category_id: int


def pet_parts(pet: NewPet | Pet) -> tuple[bytes, bytes]:
    """Return what stands before and after the id, which a script puts between."""
    rest = _ENCODER.encode(_Rest(pet.name, pet.category_id))
    head = f'{{"status":"{pet.status}","id":' if pet.status else '{"id":'
    return head.encode(), b"," + rest[1:]


def order_parts(status: str, pet_id: int, placed_at: datetime) -> tuple[bytes, bytes]:
    """Return what stands before and after the id, as `pet_parts` does.

    placed_at -- in UTC, so that scripts compare equal orders as equal bytes
    """
    head = f'{{"status":"{status}","id":'
    return head.encode(), b',"petId":%d,"placedAt":%s}' % (pet_id, _ENCODER.encode(placed_at))


def to_pets(rows: Sequence[bytes]) -> list[Pet]:
    """Return stored animals, in the order of the rows."""
    return _PETS.decode(b"[" + b",".join(rows) + b"]")


def to_orders(rows: Sequence[bytes]) -> list[Order]:
    """Return stored orders, in the order of the rows."""
    return _ORDERS.decode(b"[" + b",".join(rows) + b"]")
