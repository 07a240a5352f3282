"""The steps of the repository's methods, each of which is one transaction.

REPLACE their bodies: a step sees every other step completely or not at all, and takes effect
completely or not at all. Here it is SQL for sqlite3; one that raises an error is rolled back alone.
"""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import UNSET, UnsetType

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

SCHEMA_VERSION: Final = 1
"""Raise it with each change of the schema, and upgrade older files where it is opened."""

_SCHEMA: Final = f"""
CREATE TABLE store (identity TEXT NOT NULL);
INSERT INTO store VALUES (lower(hex(randomblob(16))));
CREATE TABLE pets (
    id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id BETWEEN 1 AND {MAX_ID}),
    name TEXT NOT NULL,
    category_id INTEGER NOT NULL,
    status TEXT
);
CREATE INDEX pets_by_status ON pets (status, id);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id BETWEEN 1 AND {MAX_ID}),
    pet_id INTEGER NOT NULL,
    status TEXT NOT NULL,
    placed_at INTEGER NOT NULL -- in microseconds since 1970
);
CREATE INDEX orders_by_status ON orders (status, id);
CREATE UNIQUE INDEX orders_live ON orders (pet_id) WHERE status IN ('placed', 'completed');
CREATE TABLE tokens (
    token BLOB PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    id INTEGER NOT NULL,
    until INTEGER NOT NULL
);
CREATE INDEX tokens_by_until ON tokens (until);
PRAGMA user_version = {SCHEMA_VERSION};
"""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_PETS: Final = "SELECT id, name, category_id, status FROM pets"
_ORDERS: Final = "SELECT id, pet_id, status, placed_at FROM orders"
_PAGE: Final = "WHERE id > ? ORDER BY id LIMIT ?"
_PAGE_OF_STATUS: Final = "WHERE status = ? AND id > ? ORDER BY id LIMIT ?"


def read_store(connection: sqlite3.Connection) -> str | None:
    """Return the identity of the store, or None if there is none."""
    if connection.execute("PRAGMA user_version").fetchone() == (0,):
        return None
    return str(connection.execute("SELECT identity FROM store").fetchone()[0])


def create_store(connection: sqlite3.Connection) -> str:
    """Create an empty store; return its identity."""
    for statement in _SCHEMA.split(";\n"):
        connection.execute(statement)
    return str(connection.execute("SELECT identity FROM store").fetchone()[0])


def create_pet(
    connection: sqlite3.Connection, new: NewPet, token: IdempotencyToken | None = None
) -> Receipt:
    """Insert a row, unless the token has been used."""
    if token and (receipt := _find_token(connection, token)):
        return receipt
    statement = "INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)"
    id_ = _insert(connection, statement, new.name, new.category_id, _to_text(new.status))
    if token:
        _add_token(connection, token, id_)
    return Receipt(id_)


def get_pet(connection: sqlite3.Connection, pet_id: int) -> Pet | None:
    """Look up the row by its primary key."""
    row = connection.execute(f"{_PETS} WHERE id = ?", (pet_id,)).fetchone()
    return row and _to_pet(row)


def list_pets(connection: sqlite3.Connection, query: PetQuery) -> list[Pet]:
    """Read the page in the order of the primary key, or of the index by status."""
    return [_to_pet(row) for row in _page(connection, _PETS, query)]


def place_order(
    connection: sqlite3.Connection,
    pet_id: int,
    at: datetime,
    token: IdempotencyToken | None = None,
) -> Receipt:
    """Make the pet pending, if it is available, and insert its order."""
    if token and (receipt := _find_token(connection, token)):
        return receipt
    reserve = "UPDATE pets SET status = 'pending' WHERE id = ? AND status = 'available'"
    if not connection.execute(reserve, (pet_id,)).rowcount:
        if get_pet(connection, pet_id) is None:
            raise NotFoundError(f"there is no pet {pet_id}")
        raise ConflictError(f"pet {pet_id} is not available")
    statement = "INSERT INTO orders (pet_id, status, placed_at) VALUES (?, 'placed', ?)"
    id_ = _insert(connection, statement, pet_id, (at - _EPOCH) // _MICROSECOND)
    if token:
        _add_token(connection, token, id_)
    return Receipt(id_)


def get_order(connection: sqlite3.Connection, order_id: int) -> Order | None:
    """Look up the row by its primary key."""
    row = connection.execute(f"{_ORDERS} WHERE id = ?", (order_id,)).fetchone()
    return row and _to_order(row)


def list_orders(connection: sqlite3.Connection, query: OrderQuery) -> list[Order]:
    """Read the page in the order of the primary key, or of the index by status."""
    return [_to_order(row) for row in _page(connection, _ORDERS, query)]


def update_order(connection: sqlite3.Connection, order_id: int, status: OrderStatus) -> Order:
    """Complete or cancel the order, if it is placed, and change the status of its pet."""
    order = get_order(connection, order_id)
    if order is None:
        raise NotFoundError(f"there is no order {order_id}")
    if order.status is status:
        return order
    if order.status is not OrderStatus.PLACED:
        raise ConflictError(f"order {order_id} is {order.status}")
    connection.execute("UPDATE orders SET status = ? WHERE id = ?", (status.value, order_id))
    of_pet = (PET_STATUS_BY_ORDER[status].value, order.pet_id)
    connection.execute("UPDATE pets SET status = ? WHERE id = ?", of_pet)
    return Order(order_id, order.pet_id, status, order.placed_at)


def list_tokens(connection: sqlite3.Connection, cursor: str, count: int, now: int) -> TokenPage:
    """Read records in the order of their tokens; the cursor is the last one's, in hex."""
    statement = """SELECT token, fingerprint, until, id FROM tokens
        WHERE token > ? ORDER BY token LIMIT ?"""
    rows = connection.execute(statement, (bytes.fromhex(cursor), count)).fetchall()
    records = [TokenRecord(*row) for row in rows]
    next_ = records[-1].value.hex() if len(records) == count else ""
    return TokenPage([record for record in records if record.until > now], next_)


def restore(
    connection: sqlite3.Connection, items: Sequence[Pet | Order | TokenRecord]
) -> RefusedError | None:
    """Insert items as they are, up to the first that is refused; return its error, or None.

    The error is not raised: that would roll back the items before it.
    """
    try:
        for item in items:
            _restore_item(connection, item)
    except RefusedError as refusal:
        return refusal
    return None


def _restore_item(connection: sqlite3.Connection, item: Pet | Order | TokenRecord) -> None:
    if isinstance(item, TokenRecord):
        statement = "INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?)"
        connection.execute(statement, (item.value, item.fingerprint, item.id, item.until))
        statement = "SELECT token, fingerprint, until, id FROM tokens WHERE token = ?"
        if TokenRecord(*connection.execute(statement, (item.value,)).fetchone()) != item:
            raise ConflictError("its token is taken by another record")
        return
    is_pet = isinstance(item, Pet)
    found = get_pet(connection, item.id) if is_pet else get_order(connection, item.id)
    if found is not None:
        if found != item:
            raise ConflictError(f"its id is taken by {found}")
    elif isinstance(item, Pet):
        row = (item.id, item.name, item.category_id, _to_text(item.status))
        connection.execute("INSERT INTO pets VALUES (?, ?, ?, ?)", row)
    else:
        _check_pet(connection, item)
        at = (item.placed_at - _EPOCH) // _MICROSECOND
        values = (item.id, item.pet_id, item.status.value, at)
        connection.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", values)


def _check_pet(connection: sqlite3.Connection, order: Order) -> None:
    """Refuse an order whose pet is missing, has another status or is in another such order."""
    pet = get_pet(connection, order.pet_id)
    if pet is None:
        raise NotFoundError(f"there is no pet {order.pet_id}")
    if order.status is OrderStatus.CANCELLED:
        return
    if pet.status is not PET_STATUS_BY_ORDER[order.status]:
        raise ConflictError(f"pet {pet.id} is {pet.status or 'without status'}")
    live = "SELECT id FROM orders WHERE pet_id = ? AND status IN ('placed', 'completed')"
    if found := connection.execute(live, (pet.id,)).fetchone():
        raise ConflictError(f"pet {pet.id} is in order {found[0]}")


def _insert(connection: sqlite3.Connection, statement: str, *values: object) -> int:
    """Insert a row and return its id. Raises `StorageError` if no id is left."""
    try:
        return int(connection.execute(statement, values).lastrowid or 0)
    except sqlite3.IntegrityError as error:  # the check that an id is not above `MAX_ID`
        raise StorageError(f"all ids have been assigned: {error}") from error


def _find_token(connection: sqlite3.Connection, token: IdempotencyToken) -> Receipt | None:
    statement = "SELECT fingerprint, id FROM tokens WHERE token = ? AND until > ?"
    row = connection.execute(statement, (token.value, token.now)).fetchone()
    if row is None:
        return None
    if row[0] != token.fingerprint:
        raise TokenReusedError("the token was used for another write")
    return Receipt(row[1], replayed=True)


def _add_token(connection: sqlite3.Connection, token: IdempotencyToken, id_: int) -> None:
    """Record a token, and delete two that have expired: they must not pile up."""
    expired = "SELECT token FROM tokens WHERE until <= ? ORDER BY until LIMIT 2"
    connection.execute(f"DELETE FROM tokens WHERE token IN ({expired})", (token.now,))
    row = (token.value, token.fingerprint, id_, token.until)
    connection.execute("REPLACE INTO tokens VALUES (?, ?, ?, ?)", row)


def _page(
    connection: sqlite3.Connection, select: str, query: PetQuery | OrderQuery
) -> sqlite3.Cursor:
    if query.status is None:
        return connection.execute(f"{select} {_PAGE}", (query.after, query.count))
    values = (query.status.value, query.after, query.count)
    return connection.execute(f"{select} {_PAGE_OF_STATUS}", values)


def _to_pet(row: Any) -> Pet:
    id_, name, category_id, status = row
    return Pet(id_, name, category_id, UNSET if status is None else PetStatus(status))


def _to_order(row: Any) -> Order:
    id_, pet_id, status, placed_at = row
    return Order(id_, pet_id, OrderStatus(status), _EPOCH + placed_at * _MICROSECOND)


def _to_text(status: PetStatus | UnsetType) -> str | None:
    return None if isinstance(status, UnsetType) else status.value
