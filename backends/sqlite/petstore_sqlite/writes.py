"""The writes of the repository, as the writer's thread executes them in a transaction.

Each is called in that thread after ``BEGIN IMMEDIATE`` on its connection, so what it has read
stays true until it writes. If it refuses, it has not written anything, so that the other writes
of the transaction are not affected. Errors of SQLite are handled by the writer.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import apsw
from msgspec import UnsetType

from petstore.contract import (
    PET_STATUS_BY_ORDER,
    ConflictError,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    RefusedError,
    StorageError,
    TokenRecord,
)
from petstore_sqlite import tokens
from petstore_sqlite.rows import SELECT_ORDERS, SELECT_PETS, to_microseconds, to_orders
from petstore_sqlite.store import ADD_CHANGE
from petstore_sqlite.tokens import RecordClock

_INSERT_PETS: Final = "INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)"
_AND_ANOTHER: Final = ", (?, ?, ?)"
_RESERVE: Final = "UPDATE pets SET status = 'pending' WHERE id = ? AND status = 'available'"
_SET_STATUS: Final = "UPDATE pets SET status = ? WHERE id = ?"
_INSERT_ORDER: Final = "INSERT INTO orders (pet_id, status, placed_at) VALUES (?, 'placed', ?)"
_CLOSE: Final = "UPDATE orders SET status = ? WHERE id = ? AND status = 'placed'"
_ORDER: Final = f"{SELECT_ORDERS} WHERE id = ?"
_RESTORE_PET: Final = """INSERT INTO pets (id, name, category_id, status) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING"""
_PET: Final = f"{SELECT_PETS} WHERE id = ?"
_RESTORE_ORDER: Final = "INSERT INTO orders (id, pet_id, status, placed_at) VALUES (?, ?, ?, ?)"
_FULL: Final = "all ids have been assigned"
_LIVE: Final = "SELECT id FROM orders WHERE pet_id = ? AND status IN ('placed', 'completed')"


def insert_pets(
    connection: apsw.Connection, pets: Sequence[NewPet]
) -> list[Receipt | StorageError]:
    """Insert rows with one statement; AUTOINCREMENT assigns no id twice.

    Returns an error for each pet for which no id is left.
    """
    if not pets:
        return []
    values: list[str | int | None] = []
    for pet in pets:
        status = None if isinstance(pet.status, UnsetType) else pet.status
        values += (pet.name, pet.category_id, status)
    try:
        connection.execute(_INSERT_PETS + _AND_ANOTHER * (len(pets) - 1), values)
    except apsw.ConstraintError as error:
        _check_full(error)
        if len(pets) == 1:
            return [StorageError(_FULL)]
        return [outcome for pet in pets for outcome in insert_pets(connection, [pet])]
    last = connection.last_insert_rowid()  # the ids of one statement have no gaps
    return [Receipt(id_) for id_ in range(last - len(pets) + 1, last + 1)]


def create_pet(
    connection: apsw.Connection, new: NewPet, token: IdempotencyToken, clock: RecordClock
) -> Receipt:
    """Insert a row, unless the token has been used.

    Raises `TokenReusedError`, or `StorageError` if no id is left.
    """
    if receipt := tokens.find(connection, token, "pet"):
        return receipt
    [outcome] = insert_pets(connection, [new])
    if isinstance(outcome, StorageError):
        raise outcome
    tokens.record(connection, token, outcome.id, clock)
    return outcome


def place_order(
    connection: apsw.Connection,
    pet_id: int,
    at: datetime,
    token: IdempotencyToken | None,
    clock: RecordClock,
) -> Receipt:
    """Make the pet pending, if it is available, and insert its order.

    Raises `TokenReusedError`, `NotFoundError`, `ConflictError`, or `StorageError` if no id is left.
    """
    if token and (receipt := tokens.find(connection, token, "order")):
        return receipt
    connection.execute(_RESERVE, (pet_id,))
    if not connection.changes():
        if connection.execute("SELECT 1 FROM pets WHERE id = ?", (pet_id,)).get is None:
            raise NotFoundError(f"there is no pet {pet_id}")
        raise ConflictError(f"pet {pet_id} is not available")
    try:
        connection.execute(_INSERT_ORDER, (pet_id, to_microseconds(at)))
    except apsw.ConstraintError as error:
        _check_full(error)
        connection.execute(_SET_STATUS, (PetStatus.AVAILABLE.value, pet_id))
        raise StorageError(_FULL) from None
    receipt = Receipt(connection.last_insert_rowid())
    if token:
        tokens.record(connection, token, receipt.id, clock)
    return receipt


def _check_full(error: apsw.ConstraintError) -> None:
    """Raise the error again unless it comes from the check that an id is not above `MAX_ID`."""
    if getattr(error, "extendedresult", 0) != apsw.SQLITE_CONSTRAINT_CHECK:
        raise error


def update_order(connection: apsw.Connection, order_id: int, status: OrderStatus) -> Order:
    """Complete or cancel the order, if it is placed, and change the status of its pet.

    Raises `NotFoundError` or `ConflictError`.
    """
    if status is not OrderStatus.PLACED:
        connection.execute(_CLOSE, (status.value, order_id))
    closed = status is not OrderStatus.PLACED and connection.changes()
    order = _find_order(connection, order_id)
    if order is None:
        raise NotFoundError(f"there is no order {order_id}")
    if closed:
        connection.execute(_SET_STATUS, (PET_STATUS_BY_ORDER[status].value, order.pet_id))
        connection.execute(ADD_CHANGE)
    elif order.status is not status:
        raise ConflictError(f"order {order_id} is {order.status}")
    return order


def restore(
    connection: apsw.Connection, items: Sequence[Pet | Order | TokenRecord], clock: RecordClock
) -> RefusedError | None:
    """Insert items as they are, up to the first that is refused; return its error, or None.

    The error is not raised, because that means that nothing was written. AUTOINCREMENT continues
    above the highest id.
    """
    connection.execute(ADD_CHANGE)
    try:
        for item in items:
            if isinstance(item, Pet):
                _restore_pet(connection, item)
            elif isinstance(item, Order):
                _restore_order(connection, item)
            else:
                tokens.restore(connection, item, clock)
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
            raise ConflictError(f"its id is taken by {found}")


def _restore_order(connection: apsw.Connection, order: Order) -> None:
    found = _find_order(connection, order.id)
    if found is not None:
        if found != order:
            raise ConflictError(f"its id is taken by {found}")
        return
    pet: Any = connection.execute(_PET, (order.pet_id,)).fetchone()
    if pet is None:
        raise NotFoundError(f"there is no pet {order.pet_id}")
    if order.status is not OrderStatus.CANCELLED:
        if pet[3] != PET_STATUS_BY_ORDER[order.status]:
            raise ConflictError(f"pet {order.pet_id} is {pet[3] or 'without status'}")
        if (other := connection.execute(_LIVE, (order.pet_id,)).get) is not None:
            raise ConflictError(f"pet {order.pet_id} is in order {other}")
    at = to_microseconds(order.placed_at)
    connection.execute(_RESTORE_ORDER, (order.id, order.pet_id, order.status.value, at))


def _find_order(connection: apsw.Connection, order_id: int) -> Order | None:
    orders = to_orders(connection.execute(_ORDER, (order_id,)).fetchall())
    return orders[0] if orders else None
