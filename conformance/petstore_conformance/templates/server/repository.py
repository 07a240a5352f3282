"""The repository: each write is a transaction, each read one request.

The keys, under the prefix of the store:

- ``pet/ID`` and ``order/ID``, and the same item again under ``pet.STATUS/ID``, for the pages of a
  status; ids have leading zeros, so that keys are in their order
- ``pet.last`` and ``order.last``: the highest ids
- ``live/PET``: the id of the order of a pet that is placed or completed
- ``token/TOKEN``: the record of a token; ``until/TIME/TOKEN``, to find what has expired
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeVar

from msgspec import json
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    RefusedError,
    Repository,
    StorageError,
    TokenPage,
    TokenRecord,
    TokenReusedError,
)
from petstore_conformance.templates.server.client import KeyRange, only
from petstore_conformance.templates.server.transactions import IDENTITY, GuardedStore, Transaction

_RESTORED_TOGETHER: Final = 40  # items of a transaction: servers limit the number of its keys

_AnyItem = TypeVar("_AnyItem", bound=Pet | Order)


class ServerTemplateRepository(Repository):
    """The pets and orders of one store."""

    def __init__(self, opened: GuardedStore) -> None:
        self._opened = opened
        self.store = opened.store

    async def check(self) -> None:
        """Read a key: each request compares the identity and the revision."""
        await self._opened.read(only(IDENTITY))

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Write the pet, the counter, and the record of the token."""

        async def work(transaction: Transaction) -> Receipt:
            if token and (receipt := await _find_token(transaction, token)):
                return receipt
            id_ = await _next_id(transaction, "pet")
            _put(transaction, Pet(id_, new.name, new.category_id, new.status))
            if token:
                await _add_token(transaction, token, id_)
            return Receipt(id_)

        return await self._opened.run(work)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Read a key."""
        return await self._get(Pet, pet_id)

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        """Read a range of keys."""
        return await self._list(Pet, query)

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Write the order and the pet, the counter, and the record of the token."""

        async def work(transaction: Transaction) -> Receipt:
            if token and (receipt := await _find_token(transaction, token)):
                return receipt
            pet = await _get(transaction, Pet, pet_id)
            if pet is None:
                raise NotFoundError(f"there is no pet {pet_id}")
            if pet.status is not PetStatus.AVAILABLE:
                raise ConflictError(f"pet {pet_id} is not available")
            id_ = await _next_id(transaction, "order")
            _put(transaction, Order(id_, pet_id, OrderStatus.PLACED, at))
            _put(transaction, replace(pet, status=PetStatus.PENDING), before=pet)
            if token:
                await _add_token(transaction, token, id_)
            return Receipt(id_)

        return await self._opened.run(work)

    async def get_order(self, order_id: int) -> Order | None:
        """Read a key."""
        return await self._get(Order, order_id)

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        """Read a range of keys."""
        return await self._list(Order, query)

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Write the order and its pet."""

        async def work(transaction: Transaction) -> Order:
            order = await _get(transaction, Order, order_id)
            if order is None:
                raise NotFoundError(f"there is no order {order_id}")
            if order.status is status:
                return order
            if order.status is not OrderStatus.PLACED:
                raise ConflictError(f"order {order_id} is {order.status}")
            if pet := await _get(transaction, Pet, order.pet_id):
                _put(transaction, replace(pet, status=PET_STATUS_BY_ORDER[status]), before=pet)
            updated = replace(order, status=status)
            _put(transaction, updated, before=order)
            return updated

        return await self._opened.run(work)

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Read a range of records; the cursor is the last key."""
        items = await self._opened.read(KeyRange(f"{cursor or 'token/'}\0", "token0", count))
        records = [json.decode(value, type=TokenRecord) for _, value in items]
        next_ = items[-1][0] if len(items) == count else ""
        return TokenPage([record for record in records if record.until > now], next_)

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Write the items, up to the first that is refused, some in each transaction."""

        async def work(transaction: Transaction) -> RefusedError | None:
            try:
                for item in together:
                    await _restore(transaction, item)
            except RefusedError as refusal:  # raised, it would take back the items before it
                return refusal
            return None

        given = tuple(items)
        for begin in range(0, len(given) or 1, _RESTORED_TOGETHER):
            together = given[begin : begin + _RESTORED_TOGETHER]
            if refusal := await self._opened.run(work):
                raise refusal

    async def _get(self, kind: type[_AnyItem], id_: int) -> _AnyItem | None:
        items = await self._opened.read(only(_key(_name(kind), id_)))
        return json.decode(items[0][1], type=kind) if items else None

    async def _list(self, kind: type[_AnyItem], query: PetQuery | OrderQuery) -> list[_AnyItem]:
        folder = _name(kind, query.status)
        keys = KeyRange(f"{_key(folder, query.after)}\0", f"{folder}0", query.count)
        return [json.decode(value, type=kind) for _, value in await self._opened.read(keys)]


def _name(kind: type[object], status: object = None) -> str:
    """Return the folder of all pets or orders, or of those of a status."""
    name = "pet" if kind is Pet else "order"
    return f"{name}.{status}" if status else name


def _key(folder: str, id_: int) -> str:
    return f"{folder}/{id_:016}"  # `MAX_ID` has so many digits


async def _get(transaction: Transaction, kind: type[_AnyItem], id_: int) -> _AnyItem | None:
    value = await transaction.get(_key(_name(kind), id_))
    return json.decode(value, type=kind) if value else None


def _put(transaction: Transaction, item: _AnyItem, before: _AnyItem | None = None) -> None:
    """Write an item wherever it belongs, and remove it from where it was before."""
    kind = type(item)
    if before and before.status:
        transaction.writes[_key(_name(kind, before.status), item.id)] = None
    for folder in {_name(kind), _name(kind, item.status)}:
        transaction.writes[_key(folder, item.id)] = json.encode(item)
    if isinstance(item, Order):
        live = None if item.status is OrderStatus.CANCELLED else b"%d" % item.id
        if live or before:
            transaction.writes[_key("live", item.pet_id)] = live


async def _next_id(transaction: Transaction, name: str) -> int:
    """Raise the counter. Raises `StorageError` if no id is left."""
    last = await _last_id(transaction, name)
    if last == MAX_ID:
        raise StorageError("all ids have been assigned")
    transaction.writes[f"{name}.last"] = b"%d" % (last + 1)
    return last + 1


async def _last_id(transaction: Transaction, name: str) -> int:
    return int(await transaction.get(f"{name}.last") or 0)


async def _find_record(transaction: Transaction, token: bytes) -> TokenRecord | None:
    value = await transaction.get(f"token/{token.hex()}")
    return json.decode(value, type=TokenRecord) if value else None


async def _find_token(transaction: Transaction, token: IdempotencyToken) -> Receipt | None:
    record = await _find_record(transaction, token.value)
    if record is None or record.until <= token.now:
        return None
    if record.fingerprint != token.fingerprint:
        raise TokenReusedError("the token was used for another write")
    return Receipt(record.id, replayed=True)


async def _add_token(transaction: Transaction, token: IdempotencyToken, id_: int) -> None:
    """Record a token, and delete two that have expired: they must not pile up."""
    for key, _ in await transaction.scan(KeyRange("until/", f"until/{token.now + 1:020}", 2)):
        transaction.writes |= {key: None, f"token/{key.rpartition('/')[2]}": None}
    if old := await _find_record(transaction, token.value):
        transaction.writes[_expiry(old)] = None
    _put_record(transaction, TokenRecord(token.value, token.fingerprint, token.until, id_))


def _put_record(transaction: Transaction, record: TokenRecord) -> None:
    transaction.writes[f"token/{record.value.hex()}"] = json.encode(record)
    transaction.writes[_expiry(record)] = b""


def _expiry(record: TokenRecord) -> str:
    return f"until/{record.until:020}/{record.value.hex()}"


async def _restore(transaction: Transaction, item: Pet | Order | TokenRecord) -> None:
    """Write an item as it is, unless it is there. Raises `RefusedError`."""
    if isinstance(item, TokenRecord):
        record = await _find_record(transaction, item.value)
        if record not in (None, item):
            raise ConflictError("its token is taken by another record")
        _put_record(transaction, item)
        return
    name = _name(type(item))
    found = await _get(transaction, type(item), item.id)
    if found is not None:
        if found != item:
            raise ConflictError(f"its id is taken by {found}")
        return
    if isinstance(item, Order):
        await _check_pet(transaction, item)
    _put(transaction, item)
    transaction.writes[f"{name}.last"] = b"%d" % max(item.id, await _last_id(transaction, name))


async def _check_pet(transaction: Transaction, order: Order) -> None:
    """Refuse an order whose pet is missing, has another status or is in another such order."""
    pet = await _get(transaction, Pet, order.pet_id)
    if pet is None:
        raise NotFoundError(f"there is no pet {order.pet_id}")
    if order.status is OrderStatus.CANCELLED:
        return
    if pet.status is not PET_STATUS_BY_ORDER[order.status]:
        raise ConflictError(f"pet {pet.id} is {pet.status or 'without status'}")
    if live := await transaction.get(_key("live", pet.id)):
        raise ConflictError(f"pet {pet.id} is in order {int(live)}")
