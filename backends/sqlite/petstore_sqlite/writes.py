"""The writes of the repository, as the writer's thread executes them in a transaction.

Each is called in that thread after ``BEGIN IMMEDIATE`` on its connection, so what it has read
stays true until it writes. If it refuses, what it has written is kept: `restore` the items before
the one that is refused, others nothing. Errors of SQLite are handled by the writer.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, TypeVar

import apsw

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
_INSERT_ORDERS: Final = "INSERT INTO orders (pet_id, status, placed_at) VALUES (?, ?, ?)"
_AND_ANOTHER: Final = ", (?, ?, ?)"
_RESERVE: Final = "UPDATE pets SET status = 'pending' WHERE id = ? AND status = 'available'"
_SET_STATUS: Final = "UPDATE pets SET status = ? WHERE id = ?"
_CLOSE: Final = "UPDATE orders SET status = ? WHERE id = ? AND status = 'placed'"
_ORDER: Final = f"{SELECT_ORDERS} WHERE id = ?"
_RESTORE_PET: Final = """INSERT INTO pets (id, name, category_id, status) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING"""
_PET: Final = f"{SELECT_PETS} WHERE id = ?"
_RESTORE_ORDER: Final = "INSERT INTO orders (id, pet_id, status, placed_at) VALUES (?, ?, ?, ?)"
_LIVE: Final = "SELECT id FROM orders WHERE pet_id = ? AND status IN ('placed', 'completed')"


class Creation(NamedTuple):
    """The call of `Repository.create_pet`."""

    pet: NewPet
    token: IdempotencyToken | None = None


class Placement(NamedTuple):
    """The call of `Repository.place_order`."""

    pet_id: int
    at: datetime
    token: IdempotencyToken | None = None


_Call = TypeVar("_Call", Creation, Placement)
_Outcome = Receipt | StorageError


def execute(
    connection: apsw.Connection,
    calls: Sequence[_Call],
    clock: RecordClock,
    kind: Literal["pet", "order"],
) -> list[_Outcome]:
    """Execute together the calls whose tokens are new; of several with one, the others follow.

    A pet is inserted. An order is, too, if its pet is available, which becomes pending.

    kind -- what the calls store

    Returns for each its receipt, a `RefusedError`, or a `StorageError` if no id is left.
    """
    insert = _INSERT[kind]
    outcomes: dict[int, _Outcome] = {}
    new: list[int] = []
    expired: dict[bytes, int | None] = {}  # the tokens of these calls, and their expired records
    for position, (*_, token) in enumerate(calls):
        if token is not None:
            if token.value in expired:
                continue
            found = tokens.find(connection, token, kind)
            if isinstance(found, (Receipt, StorageError)):
                outcomes[position] = found
                continue
            expired[token.value] = found
        new.append(position)
    outcomes |= zip(new, insert(connection, [calls[position] for position in new]), strict=True)
    uses = [
        (token, outcome.id, expired[token.value])
        for position in new
        if (token := calls[position].token) and isinstance(outcome := outcomes[position], Receipt)
    ]
    tokens.record(connection, uses, clock)
    for position, call in enumerate(calls):
        if position not in outcomes:
            [outcomes[position]] = execute(connection, [call], clock, kind)
    return [outcomes[position] for position in range(len(calls))]


def _insert_pets(connection: apsw.Connection, calls: Sequence[Creation]) -> list[_Outcome]:
    rows = [(pet.name, pet.category_id, pet.status or None) for pet, _ in calls]
    return _insert(connection, _INSERT_PETS, rows)


def _insert_orders(connection: apsw.Connection, calls: Sequence[Placement]) -> Iterable[_Outcome]:
    outcomes: list[_Outcome | None] = [_reserve(connection, pet_id) for pet_id, _, _ in calls]
    rows = [
        (pet_id, OrderStatus.PLACED, to_microseconds(at))
        for (pet_id, at, _), outcome in zip(calls, outcomes, strict=True)
        if outcome is None
    ]
    inserted = iter(_insert(connection, _INSERT_ORDERS, rows))
    for (pet_id, _, _), refusal in zip(calls, outcomes, strict=True):
        outcome = refusal or next(inserted)
        if not refusal and isinstance(outcome, StorageError):
            connection.execute(_SET_STATUS, (PetStatus.AVAILABLE.value, pet_id))
        yield outcome


_INSERT: Final[dict[str, Callable[[apsw.Connection, Any], Iterable[_Outcome]]]] = {
    "pet": _insert_pets,
    "order": _insert_orders,
}


def _reserve(connection: apsw.Connection, pet_id: int) -> RefusedError | None:
    """Make the pet pending if it is available; return why it is not."""
    connection.execute(_RESERVE, (pet_id,))
    if connection.changes():
        return None
    if connection.execute("SELECT 1 FROM pets WHERE id = ?", (pet_id,)).get is None:
        return NotFoundError(f"there is no pet {pet_id}")
    return ConflictError(f"pet {pet_id} is not available")


def _insert(
    connection: apsw.Connection, statement: str, rows: Sequence[tuple[str | int | None, ...]]
) -> list[_Outcome]:
    """Insert rows with one statement; AUTOINCREMENT assigns no id twice.

    Returns an error for each row for which no id is left.
    """
    if not rows:
        return []
    values = tuple(chain.from_iterable(rows))
    try:
        connection.execute(statement + _AND_ANOTHER * (len(rows) - 1), values)
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_CONSTRAINT_CHECK:
            raise  # not of the check that an id is not above `MAX_ID`
        if len(rows) == 1:
            return [StorageError("all ids have been assigned")]
        return [outcome for row in rows for outcome in _insert(connection, statement, [row])]
    last = connection.last_insert_rowid()  # the ids of one statement have no gaps
    return [Receipt(id_) for id_ in range(last - len(rows) + 1, last + 1)]


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
) -> None:
    """Insert items as they are, up to the first that is refused, whose error is raised.

    AUTOINCREMENT continues above the highest id.
    """
    connection.execute(ADD_CHANGE)
    for item in items:
        if isinstance(item, Pet):
            _restore_pet(connection, item)
        elif isinstance(item, Order):
            _restore_order(connection, item)
        else:
            tokens.restore(connection, item, clock)


def _restore_pet(connection: apsw.Connection, pet: Pet) -> None:
    row = (pet.id, pet.name, pet.category_id, pet.status or None)
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
