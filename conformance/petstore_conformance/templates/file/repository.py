"""The repository: each method is a transaction.

REPLACE the bodies of the methods: a transaction sees every other one completely or not at all, and
takes effect completely or not at all. Here it is SQL for sqlite3.
"""

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from msgspec import UNSET
from msgspec.structs import astuple, replace

from petstore.contract import (
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
from petstore_conformance.templates.file.engine import Engine

_RESTORED_TOGETHER: Final = 1000  # items of a transaction, so that it ends well before its time

_PETS: Final = "SELECT id, name, category_id, status FROM pets"
_ORDERS: Final = "SELECT id, pet_id, status, placed_at FROM orders"
_RECORDS: Final = "SELECT token, fingerprint, until, id FROM tokens"

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _transaction(
    work: Callable[Concatenate[Any, _Arguments], _Result],
) -> Callable[Concatenate[Any, _Arguments], Coroutine[Any, Any, _Result]]:
    """Let a method run in the engine's thread, as one transaction; its callers await it."""

    @wraps(work)
    async def method(self: Any, /, *given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        result: _Result = await self._engine.run(partial(work, self, *given, **named))
        return result

    return method


class FileTemplateRepository(Repository):
    """The pets and orders of one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._execute = engine.execute
        self.store = engine.store

    @_transaction
    def check(self) -> None:
        """Do nothing: each transaction begins by comparing the store with that which was opened."""

    @_transaction
    def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Insert a row, unless the token has been used."""
        if token and (receipt := self._find_token(token)):
            return receipt
        statement = "INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)"
        return self._insert(token, statement, new.name, new.category_id, new.status or None)

    @_transaction
    def get_pet(self, pet_id: int) -> Pet | None:
        """Look up the row by its primary key."""
        return self._find_pet(pet_id)

    @_transaction
    def list_pets(self, query: PetQuery) -> list[Pet]:
        """Read the page in the order of the primary key, or of the index by status."""
        return [_to_pet(row) for row in self._page(_PETS, query)]

    @_transaction
    def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Make the pet pending, if it is available, and insert its order."""
        if token and (receipt := self._find_token(token)):
            return receipt
        reserve = "UPDATE pets SET status = 'pending' WHERE id = ? AND status = 'available'"
        if not self._execute(reserve, (pet_id,)).rowcount:
            if self._find_pet(pet_id) is None:
                raise NotFoundError(f"there is no pet {pet_id}")
            raise ConflictError(f"pet {pet_id} is not available")
        statement = "INSERT INTO orders (pet_id, status, placed_at) VALUES (?, 'placed', ?)"
        return self._insert(token, statement, pet_id, at.isoformat())

    @_transaction
    def get_order(self, order_id: int) -> Order | None:
        """Look up the row by its primary key."""
        return self._find_order(order_id)

    @_transaction
    def list_orders(self, query: OrderQuery) -> list[Order]:
        """Read the page in the order of the primary key, or of the index by status."""
        return [_to_order(row) for row in self._page(_ORDERS, query)]

    @_transaction
    def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel the order, if it is placed, and change the status of its pet."""
        order = self._find_order(order_id)
        if order is None:
            raise NotFoundError(f"there is no order {order_id}")
        if order.status is status:
            return order
        if order.status is not OrderStatus.PLACED:
            raise ConflictError(f"order {order_id} is {order.status}")
        self._execute("UPDATE orders SET status = ? WHERE id = ?", (status, order_id))
        of_pet = (PET_STATUS_BY_ORDER[status], order.pet_id)
        self._execute("UPDATE pets SET status = ? WHERE id = ?", of_pet)
        return replace(order, status=status)

    @_transaction
    def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Read records in the order of their tokens; the cursor is the last one's, in hex."""
        page = f"{_RECORDS} WHERE token > ? ORDER BY token LIMIT ?"
        records = [TokenRecord(*row) for row in self._execute(page, (bytes.fromhex(cursor), count))]
        next_ = records[-1].value.hex() if len(records) == count else ""
        return TokenPage([record for record in records if record.until > now], next_)

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Insert the items, up to the first that is refused, some in each transaction."""
        given = tuple(items)
        for begin in range(0, len(given) or 1, _RESTORED_TOGETHER):
            if refusal := await self._restore(given[begin : begin + _RESTORED_TOGETHER]):
                raise refusal

    @_transaction
    def _restore(self, items: Sequence[Pet | Order | TokenRecord]) -> RefusedError | None:
        """Return the error of the first that is refused; raised, it would undo those before it."""
        try:
            for item in items:
                self._restore_item(item)
        except RefusedError as refusal:
            return refusal
        return None

    def _restore_item(self, item: Pet | Order | TokenRecord) -> None:
        if isinstance(item, TokenRecord):
            self._execute("INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?)", astuple(item))
            stored = self._execute(f"{_RECORDS} WHERE token = ?", (item.value,)).fetchone()
            if TokenRecord(*stored) != item:
                raise ConflictError("its token is taken by another record")
            return
        found = self._find_pet(item.id) if isinstance(item, Pet) else self._find_order(item.id)
        if found is not None:
            if found != item:
                raise ConflictError(f"its id is taken by {found}")
        elif isinstance(item, Pet):
            row = (item.id, item.name, item.category_id, item.status or None)
            self._execute("INSERT INTO pets VALUES (?, ?, ?, ?)", row)
        else:
            self._check_pet(item)
            values = (item.id, item.pet_id, item.status, item.placed_at.isoformat())
            self._execute("INSERT INTO orders VALUES (?, ?, ?, ?)", values)

    def _check_pet(self, order: Order) -> None:
        """Refuse an order whose pet is missing, has another status or is in another such order."""
        pet = self._find_pet(order.pet_id)
        if pet is None:
            raise NotFoundError(f"there is no pet {order.pet_id}")
        if order.status is OrderStatus.CANCELLED:
            return
        if pet.status is not PET_STATUS_BY_ORDER[order.status]:
            raise ConflictError(f"pet {pet.id} is {pet.status or 'without status'}")
        live = "SELECT id FROM orders WHERE pet_id = ? AND status IN ('placed', 'completed')"
        if found := self._execute(live, (pet.id,)).fetchone():
            raise ConflictError(f"pet {pet.id} is in order {found[0]}")

    def _find_pet(self, pet_id: int) -> Pet | None:
        row = self._execute(f"{_PETS} WHERE id = ?", (pet_id,)).fetchone()
        return row and _to_pet(row)

    def _find_order(self, order_id: int) -> Order | None:
        row = self._execute(f"{_ORDERS} WHERE id = ?", (order_id,)).fetchone()
        return row and _to_order(row)

    def _page(self, select: str, query: PetQuery | OrderQuery) -> sqlite3.Cursor:
        page = "id > ? ORDER BY id LIMIT ?"
        if query.status is None:
            return self._execute(f"{select} WHERE {page}", (query.after, query.count))
        values = (query.status, query.after, query.count)
        return self._execute(f"{select} WHERE status = ? AND {page}", values)

    def _insert(self, token: IdempotencyToken | None, statement: str, *values: object) -> Receipt:
        """Insert a row, and its id under the token. Raises `StorageError` if no id is left."""
        try:
            id_ = int(self._execute(statement, values).lastrowid or 0)
        except sqlite3.IntegrityError as error:  # the check that an id is not above `MAX_ID`
            raise StorageError(f"all ids have been assigned: {error}") from error
        if token:
            self._add_token(token, id_)
        return Receipt(id_)

    def _find_token(self, token: IdempotencyToken) -> Receipt | None:
        statement = "SELECT fingerprint, id FROM tokens WHERE token = ? AND until > ?"
        row = self._execute(statement, (token.value, token.now)).fetchone()
        if row is None:
            return None
        if row[0] != token.fingerprint:
            raise TokenReusedError("the token was used for another write")
        return Receipt(row[1], replayed=True)

    def _add_token(self, token: IdempotencyToken, id_: int) -> None:
        """Record a token, and delete two that have expired: they must not pile up."""
        expired = "SELECT token FROM tokens WHERE until <= ? ORDER BY until LIMIT 2"
        self._execute(f"DELETE FROM tokens WHERE token IN ({expired})", (token.now,))
        row = (token.value, token.fingerprint, token.until, id_)
        self._execute("REPLACE INTO tokens VALUES (?, ?, ?, ?)", row)


def _to_pet(row: Any) -> Pet:
    id_, name, category_id, status = row
    return Pet(id_, name, category_id, UNSET if status is None else PetStatus(status))


def _to_order(row: Any) -> Order:
    id_, pet_id, status, placed_at = row
    return Order(id_, pet_id, OrderStatus(status), datetime.fromisoformat(placed_at))
