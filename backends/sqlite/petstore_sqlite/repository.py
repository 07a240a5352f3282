"""The repository: it reads in the thread of the event loop and writes in the writer's."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, Self, TypeVar

import apsw

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
from petstore_sqlite import rows, writes
from petstore_sqlite.file import LockWait
from petstore_sqlite.idempotency import RecordClock
from petstore_sqlite.schema import READ_ERRORS, unavailable
from petstore_sqlite.writer import Writer

_Result = TypeVar("_Result")

_PAGE: Final = "WHERE id > ? ORDER BY id LIMIT ?"
_STATUS_PAGE: Final = "WHERE status = ? AND id > ? ORDER BY id LIMIT ?"
_PET: Final = f"{rows.SELECT_PETS} WHERE id = ?"
_PETS: Final = f"{rows.SELECT_PETS} {_PAGE}"
_PETS_OF_STATUS: Final = f"{rows.SELECT_PETS_OF_STATUS} {_STATUS_PAGE}"
_ORDER: Final = f"{rows.SELECT_ORDERS} WHERE id = ?"
_ORDERS: Final = f"{rows.SELECT_ORDERS} {_PAGE}"
_ORDERS_OF_STATUS: Final = f"{rows.SELECT_ORDERS} {_STATUS_PAGE}"


class SqliteRepository(Repository):
    """The pets and orders in one file.

    WAL lets a read run beside a commit, so it takes microseconds: less than handing it to a thread
    would take.
    """

    def __init__(
        self, reader: apsw.Connection, writer: apsw.Connection, path: str, busy: LockWait
    ) -> None:
        self._reader = reader.cursor()
        self._writer = Writer(writer, path, busy, self._close)
        self._clock = RecordClock()
        self._path = path
        self._closed = ""

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Insert a row."""
        if token is None:
            self._check_open()
            return await self._writer.insert(new)
        return await self._write(
            partial(writes.create_pet, new=new, token=token, clock=self._clock)
        )

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look up the row by its primary key."""
        pets = self._read(rows.to_pets, _PET, (pet_id,))
        return pets[0] if pets else None

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Read the page in the order of the primary key, or of the index by status."""
        if status is None:
            return self._read(rows.to_pets, _PETS, (after, count))
        convert = partial(rows.to_pets_of, status)
        return self._read(convert, _PETS_OF_STATUS, (status, after, count))

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Make the pet pending and insert its order."""
        clock = self._clock
        write = partial(writes.place_order, pet_id=pet_id, at=at, token=token, clock=clock)
        return await self._write(write)

    async def get_order(self, order_id: int) -> Order | None:
        """Look up the row by its primary key."""
        orders = self._read(rows.to_orders, _ORDER, (order_id,))
        return orders[0] if orders else None

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        """Read the page in the order of the primary key, or of the index by status."""
        if status is None:
            return self._read(rows.to_orders, _ORDERS, (after, count))
        return self._read(rows.to_orders, _ORDERS_OF_STATUS, (status, after, count))

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel the order and change the status of its pet."""
        return await self._write(partial(writes.update_order, order_id=order_id, status=status))

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        """Insert rows in one transaction, up to the first that is refused."""
        if refusal := await self._write(partial(writes.restore, items=tuple(items))):
            raise refusal

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Execute writes until the context exits; then every call raises `UnavailableError`."""
        async with self._writer:
            try:
                yield self
            finally:
                self._close(f"sqlite at {self._path}: the repository is closed")

    def _close(self, reason: str) -> None:
        self._closed = reason

    async def _write(self, write: Callable[[apsw.Connection], _Result]) -> _Result:
        self._check_open()
        return await self._writer.submit(write)

    def _read(
        self,
        convert: Callable[[Sequence[Any]], list[_Result]],
        query: str,
        values: tuple[int | str, ...],
    ) -> list[_Result]:
        self._check_open()
        try:
            return convert(self._reader.execute(query, values).fetchall())
        except READ_ERRORS as error:
            raise unavailable(self._path, error) from error

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError(self._closed)
