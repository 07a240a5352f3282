"""What the writer's thread does in its transaction: the changes of animals, orders and retries.

Each is called in that thread, after ``BEGIN IMMEDIATE`` on the connection that it is given: what
it has read stays true until it writes. It refuses before it writes, so that the other changes of
its transaction can go on. What SQLite raises is the writer's to handle.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import apsw
from msgspec import UnsetType

from petstore.contract import (
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    Receipt,
    RefusedError,
    Retry,
    TokenReusedError,
)

_INSERT_PET: Final = "INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)"
_RESERVE: Final = "UPDATE pets SET status = 'pending' WHERE id = ? AND status = 'available'"
_MOVE: Final = "UPDATE pets SET status = ? WHERE id = ?"
_INSERT_ORDER: Final = "INSERT INTO orders (pet_id, status, placed_at) VALUES (?, 'placed', ?)"
_CLOSE: Final = "UPDATE orders SET status = ? WHERE id = ? AND status = 'placed'"
_ORDER: Final = "SELECT id, pet_id, status, placed_at FROM orders WHERE id = ?"
_RESTORE_PET: Final = """INSERT INTO pets (id, name, category_id, status) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING"""
_PET: Final = "SELECT id, name, category_id, status FROM pets WHERE id = ?"
_RESTORE_ORDER: Final = "INSERT INTO orders (id, pet_id, status, placed_at) VALUES (?, ?, ?, ?)"
_LIVE: Final = "SELECT id FROM orders WHERE pet_id = ? AND status IN ('placed', 'completed')"
_FIND: Final = "SELECT fingerprint, id FROM retries WHERE token = ? AND until > ?"
_RECORD: Final = "REPLACE INTO retries (token, fingerprint, id, until) VALUES (?, ?, ?, ?)"

# More than the one record that a write may add: what has expired shrinks.
_DROP: Final = """DELETE FROM retries WHERE token IN
    (SELECT token FROM retries WHERE until <= ? ORDER BY until LIMIT 2)"""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def create_pet(connection: apsw.Connection, new: NewPet, retry: Retry | None) -> Receipt:
    """Insert a row; AUTOINCREMENT gives out no id twice.

    Raises `TokenReusedError`.
    """
    if retry and (receipt := _find(connection, retry)):
        return receipt
    status = None if isinstance(new.status, UnsetType) else new.status.value
    connection.execute(_INSERT_PET, (new.name, new.category_id, status))
    return _record(connection, retry)


def place_order(
    connection: apsw.Connection, pet_id: int, at: datetime, retry: Retry | None
) -> Receipt:
    """Reserve the animal, if it is available, and insert its order.

    Raises `TokenReusedError`, `NotFoundError` or `ConflictError`.
    """
    if retry and (receipt := _find(connection, retry)):
        return receipt
    connection.execute(_RESERVE, (pet_id,))
    if not connection.changes():
        if connection.execute("SELECT 1 FROM pets WHERE id = ?", (pet_id,)).get is None:
            raise NotFoundError(f"there is no animal {pet_id}")
        raise ConflictError(f"animal {pet_id} is not available")
    connection.execute(_INSERT_ORDER, (pet_id, (at - _EPOCH) // _MICROSECOND))
    return _record(connection, retry)


def update_order(connection: apsw.Connection, order_id: int, status: OrderStatus) -> Order:
    """Close the order, if it is placed, and move its animal.

    Raises `NotFoundError` or `ConflictError`.
    """
    if status is not OrderStatus.PLACED:
        connection.execute(_CLOSE, (status.value, order_id))
    closed = status is not OrderStatus.PLACED and connection.changes()
    found: Any = connection.execute(_ORDER, (order_id,)).fetchone()
    if found is None:
        raise NotFoundError(f"there is no order {order_id}")
    order = to_order(*found)
    if closed:
        connection.execute(_MOVE, (PET_STATUS_BY_ORDER[status].value, order.pet_id))
    elif order.status is not status:
        raise ConflictError(f"order {order_id} is {order.status}")
    return order


def restore(connection: apsw.Connection, items: Sequence[Pet | Order]) -> RefusedError | None:
    """Insert rows under the ids that they have; return why one is refused, which ends it.

    It is not raised, because those before it are stored: AUTOINCREMENT goes on above them.
    """
    try:
        for item in items:
            if isinstance(item, Pet):
                _restore_pet(connection, item)
            else:
                _restore_order(connection, item)
    except RefusedError as refusal:
        return refusal
    return None


def _restore_pet(connection: apsw.Connection, pet: Pet) -> None:
    status = None if isinstance(pet.status, UnsetType) else pet.status.value
    row = (pet.id, pet.name, pet.category_id, status)
    connection.execute(_RESTORE_PET, row)
    if not connection.changes():
        found = connection.execute(_PET, (pet.id,)).fetchone()
        if found != row:
            raise ConflictError(f"there is another one, {found}")


def _restore_order(connection: apsw.Connection, order: Order) -> None:
    found: Any = connection.execute(_ORDER, (order.id,)).fetchone()
    if found is not None:
        if to_order(*found) != order:
            raise ConflictError(f"there is another one, {to_order(*found)}")
        return
    pet: Any = connection.execute(_PET, (order.pet_id,)).fetchone()
    if pet is None:
        raise NotFoundError(f"there is no animal {order.pet_id}")
    if order.status is not OrderStatus.CANCELLED:
        if pet[3] != PET_STATUS_BY_ORDER[order.status]:
            raise ConflictError(f"animal {order.pet_id} is {pet[3] or 'without status'}")
        if (other := connection.execute(_LIVE, (order.pet_id,)).get) is not None:
            raise ConflictError(f"animal {order.pet_id} is in order {other}")
    at = (order.placed_at - _EPOCH) // _MICROSECOND
    connection.execute(_RESTORE_ORDER, (order.id, order.pet_id, order.status.value, at))


def to_order(number: int, pet_id: int, status: str, placed_at: int) -> Order:
    """Return a row as an order."""
    return Order(number, pet_id, OrderStatus(status), _EPOCH + placed_at * _MICROSECOND)


def _find(connection: apsw.Connection, retry: Retry) -> Receipt | None:
    found: Any = connection.execute(_FIND, (retry.token, retry.now)).fetchone()
    if found is None:
        return None
    fingerprint, number = found
    if fingerprint != retry.fingerprint:
        raise TokenReusedError("the token was used for another write")
    return Receipt(number, replayed=True)


def _record(connection: apsw.Connection, retry: Retry | None) -> Receipt:
    """Record the row that was inserted last as what the write gave out."""
    receipt = Receipt(connection.last_insert_rowid())
    if retry:
        connection.execute(_DROP, (retry.now,))
        record = (retry.token, retry.fingerprint, receipt.id, retry.until)
        connection.execute(_RECORD, record)
    return receipt
