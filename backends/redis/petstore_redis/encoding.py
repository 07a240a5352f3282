"""Pets and orders as they are stored: JSON, the status first, where the scripts rewrite it."""

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from petstore.contract import NewPet, Order, Pet, PetStatus, TokenRecord

_ENCODER: Final = msgspec.json.Encoder()

_HEADS: Final = {status: b'{"status":"%b","id":' % status.encode() for status in PetStatus}

decode_pet: Final = msgspec.json.Decoder(Pet).decode
decode_order: Final = msgspec.json.Decoder(Order).decode
decode_pets: Final = msgspec.json.Decoder(list[Pet]).decode
decode_orders: Final = msgspec.json.Decoder(list[Order]).decode


class _Constant(Struct, rename="camel"):
    """The fields of a pet that never change."""

    name: str
    category_id: int


def encode_pet(pet: NewPet | Pet) -> tuple[bytes, bytes]:
    """Return the JSON before and after the id; a script puts the id of a new pet between them."""
    constant = _ENCODER.encode(_Constant(pet.name, pet.category_id))
    return _HEADS[pet.status] if pet.status else b'{"id":', b"," + constant[1:]


def encode_order(status: str, pet_id: int, placed_at: datetime) -> tuple[bytes, bytes]:
    """Return the JSON before and after the id, as `encode_pet` does.

    placed_at -- in UTC: scripts compare orders as bytes, and equal orders must be equal bytes
    """
    head = f'{{"status":"{status}","id":'
    return head.encode(), b',"petId":%d,"placedAt":%s}' % (pet_id, _ENCODER.encode(placed_at))


def decode_token(token: bytes, row: bytes) -> TokenRecord:
    """Return the record of a token; lua/shared/tokens.lua says how it is stored."""
    until, id_ = row[32:].split()
    return TokenRecord(token, row[:32], int(until), int(id_))
