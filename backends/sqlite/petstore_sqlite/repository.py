"""The repository: it reads in the thread of the event loop and writes in the writer's."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import apsw
from msgspec import UNSET, UnsetType

from petstore.contract import (
    IdempotencyToken,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    UnavailableError,
)
from petstore_sqlite import writes
from petstore_sqlite.schema import unavailable
from petstore_sqlite.writer import Writer

_Result = TypeVar("_Result")

_STATUS: Final[dict[str | None, PetStatus | UnsetType]] = {
    None: UNSET,
    **{status.value: status for status in PetStatus},
}
_PETS: Final = "SELECT id, name, category_id, status FROM pets"
_PETS_OF_STATUS: Final = "SELECT id, name, category_id FROM pets"
_ORDERS: Final = "SELECT id, pet_id, status, placed_at FROM orders"
_GET: Final = " WHERE id = ?"
_PAGE: Final = " WHERE id > ? ORDER BY id LIMIT ?"
_STATUS_PAGE: Final = " WHERE status = ? AND id > ? ORDER BY id LIMIT ?"


class SqliteRepository(Repository):
    """The pets and orders in one file.

    WAL lets a read run beside a commit, so it takes microseconds: less than handing it to a thread
    would take.
    """

    def __init__(self, reader: apsw.Connection, writer: Writer, path: str) -> None:
        self._reader = reader.cursor()
        self._writer = writer
        self._path = path
        self._open = True

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Insert a row."""
        if token is None:
            self._check_open()
            return await self._writer.insert(new)
        return await self._write(partial(writes.create_pet, new=new, token=token))

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look up the row by its primary key."""
        for id_, name, category_id, status in self._read(_PETS + _GET, (pet_id,)):
            return Pet(id_, name, category_id, _STATUS[status])
        return None

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Read the page in the order of the primary key, or of the index by status."""
        if status is None:
            rows = self._read(_PETS + _PAGE, (after, count))
            return [Pet(id_, name, category, _STATUS[text]) for id_, name, category, text in rows]
        rows = self._read(_PETS_OF_STATUS + _STATUS_PAGE, (status, after, count))
        return [Pet(id_, name, category, status) for id_, name, category in rows]

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Make the pet pending and insert its order."""
        return await self._write(partial(writes.place_order, pet_id=pet_id, at=at, token=token))

    async def get_order(self, order_id: int) -> Order | None:
        """Look up the row by its primary key."""
        for row in self._read(_ORDERS + _GET, (order_id,)):
            return writes.to_order(*row)
        return None

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        """Read the page in the order of the primary key, or of the index by status."""
        if status is None:
            rows = self._read(_ORDERS + _PAGE, (after, count))
        else:
            rows = self._read(_ORDERS + _STATUS_PAGE, (status, after, count))
        return [writes.to_order(*row) for row in rows]

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel the order and change the status of its pet."""
        return await self._write(partial(writes.update_order, order_id=order_id, status=status))

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        """Insert rows in one transaction, up to the first that is refused."""
        if refusal := await self._write(partial(writes.restore, items=tuple(items))):
            raise refusal

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    async def _write(self, write: Callable[[apsw.Connection], _Result]) -> _Result:
        self._check_open()
        return await self._writer.submit(write)

    def _read(self, query: str, values: tuple[int | str, ...]) -> list[Any]:
        self._check_open()
        try:
            return self._reader.execute(query, values).fetchall()
        except apsw.Error as error:
            raise unavailable(self._path, error) from error

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError(f"sqlite at {self._path}: the repository is closed")
