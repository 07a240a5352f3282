"""The steps of the repository's methods, each one transaction on the server.

REPLACE their bodies: a step is a transaction, a script on the server, or one conditional write. It
sees every other step completely or not at all, and takes effect completely or not at all.
"""

from collections.abc import Sequence
from datetime import datetime
from heapq import heappop, heappush, nsmallest
from typing import Final
from uuid import uuid4

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
    StorageError,
    TokenPage,
    TokenRecord,
    TokenReusedError,
)
from petstore_conformance.templates.server.client import StandInTable, StandInTables

DELETED_TOGETHER: Final = 2
"""How many expired records a write deletes: more than the one that it adds."""


def read_store(tables: StandInTables) -> str | None:
    """Return the identity of the store, or None if there is none."""
    return tables.store


def create_store(tables: StandInTables) -> str:
    """Create an empty store, unless another process just has; return its identity."""
    tables.store = tables.store or uuid4().hex
    return tables.store


def create_pet(tables: StandInTables, new: NewPet, token: IdempotencyToken | None) -> Receipt:
    """Store the pet under the next id, unless the token has been used."""
    if token and (receipt := _find_token(tables, token)):
        return receipt
    pet = Pet(_next_id(tables.pets), new.name, new.category_id, new.status)
    tables.pets.put(pet)
    if token:
        _add_token(tables, TokenRecord(token.value, token.fingerprint, token.until, pet.id))
    return Receipt(pet.id)


def get_pet(tables: StandInTables, pet_id: int) -> Pet | None:
    """Look up the pet."""
    return tables.pets.get(pet_id)


def list_pets(tables: StandInTables, query: PetQuery) -> list[Pet]:
    """Read the page from an index."""
    return tables.pets.page(query.after, query.count, query.status)


def place_order(
    tables: StandInTables, pet_id: int, at: datetime, token: IdempotencyToken | None
) -> Receipt:
    """Make the pet pending, if it is available, and store its order under the next id."""
    if token and (receipt := _find_token(tables, token)):
        return receipt
    pet = tables.pets.get(pet_id)
    if pet is None:
        raise NotFoundError(f"there is no pet {pet_id}")
    if pet.status is not PetStatus.AVAILABLE:
        raise ConflictError(f"pet {pet_id} is not available")
    order = Order(_next_id(tables.orders), pet_id, OrderStatus.PLACED, at)
    tables.orders.put(order)
    tables.live.add(pet_id)
    tables.pets.put(replace(pet, status=PetStatus.PENDING))
    if token:
        _add_token(tables, TokenRecord(token.value, token.fingerprint, token.until, order.id))
    return Receipt(order.id)


def get_order(tables: StandInTables, order_id: int) -> Order | None:
    """Look up the order."""
    return tables.orders.get(order_id)


def list_orders(tables: StandInTables, query: OrderQuery) -> list[Order]:
    """Read the page from an index."""
    return tables.orders.page(query.after, query.count, query.status)


def update_order(tables: StandInTables, order_id: int, status: OrderStatus) -> Order:
    """Complete or cancel the order, if it is placed, and change the status of its pet."""
    order = tables.orders.get(order_id)
    if order is None:
        raise NotFoundError(f"there is no order {order_id}")
    if order.status is status:
        return order
    if order.status is not OrderStatus.PLACED:
        raise ConflictError(f"order {order_id} is {order.status}")
    changed = replace(order, status=status)
    tables.orders.put(changed)
    if status is OrderStatus.CANCELLED:
        tables.live.discard(order.pet_id)
    if pet := tables.pets.get(order.pet_id):  # always true: pets are never removed
        tables.pets.put(replace(pet, status=PET_STATUS_BY_ORDER[status]))
    return changed


def list_tokens(tables: StandInTables, cursor: str, count: int, now: int) -> TokenPage:
    """Read records in the order of their tokens; the cursor is the last one's, in hex."""
    after = bytes.fromhex(cursor)
    values = nsmallest(count, (value for value in tables.tokens if value > after))
    records = [tables.tokens[value] for value in values]
    next_ = values[-1].hex() if len(values) == count else ""
    return TokenPage([record for record in records if record.until > now], next_)


def restore(
    tables: StandInTables, items: Sequence[Pet | Order | TokenRecord]
) -> RefusedError | None:
    """Store items as they are, up to the first that is refused; return its error, or None.

    The error is not raised: a server may roll back the items before it.
    """
    try:
        for item in items:
            if isinstance(item, TokenRecord):
                _restore_token(tables, item)
            elif isinstance(item, Pet):
                if not _is_stored(tables.pets.get(item.id), item):
                    tables.pets.put(item)
            elif not _is_stored(tables.orders.get(item.id), item):
                _restore_order(tables, item)
    except RefusedError as refusal:
        return refusal
    return None


def _is_stored(found: Pet | Order | None, item: Pet | Order) -> bool:
    if found not in (None, item):
        raise ConflictError(f"its id is taken by {found}")
    return found is not None


def _restore_order(tables: StandInTables, order: Order) -> None:
    pet = tables.pets.get(order.pet_id)
    if pet is None:
        raise NotFoundError(f"there is no pet {order.pet_id}")
    if order.status is not OrderStatus.CANCELLED:
        if pet.status is not PET_STATUS_BY_ORDER[order.status]:
            raise ConflictError(f"pet {pet.id} is {pet.status or 'without status'}")
        if pet.id in tables.live:
            raise ConflictError(f"pet {pet.id} is in another order")
        tables.live.add(pet.id)
    tables.orders.put(order)


def _next_id(table: StandInTable[Pet] | StandInTable[Order]) -> int:
    if table.last_id == MAX_ID:
        raise StorageError("all ids have been assigned")
    return table.last_id + 1


def _find_token(tables: StandInTables, token: IdempotencyToken) -> Receipt | None:
    for _ in range(DELETED_TOGETHER):
        if tables.expiries and tables.expiries[0][0] <= token.now:
            until, value = heappop(tables.expiries)
            if tables.tokens[value].until == until:
                del tables.tokens[value]
    record = tables.tokens.get(token.value)
    if record is None or record.until <= token.now:
        return None
    if record.fingerprint != token.fingerprint:
        raise TokenReusedError("the token was used for another write")
    return Receipt(record.id, replayed=True)


def _restore_token(tables: StandInTables, record: TokenRecord) -> None:
    stored = tables.tokens.get(record.value)
    if stored is None:
        _add_token(tables, record)
    elif stored != record:
        raise ConflictError("its token is taken by another record")


def _add_token(tables: StandInTables, record: TokenRecord) -> None:
    tables.tokens[record.value] = record
    heappush(tables.expiries, (record.until, record.value))
