"""The repository: its reads are the reader's, its writes the writer's."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from petstore.contract import (
    IdempotencyToken,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    Receipt,
    Repository,
    TokenPage,
    TokenRecord,
)
from petstore_sqlite import rows, writes
from petstore_sqlite.reader import Reader
from petstore_sqlite.store import OpenStore
from petstore_sqlite.writer import Writer
from petstore_sqlite.writes import Creation, Placement

_PAGE: Final = "WHERE id > ? ORDER BY id LIMIT ?"
_STATUS_PAGE: Final = "WHERE status = ? AND id > ? ORDER BY id LIMIT ?"
_PET: Final = f"{rows.SELECT_PETS} WHERE id = ?"
_PETS: Final = f"{rows.SELECT_PETS} {_PAGE}"
_PETS_OF_STATUS: Final = f"{rows.SELECT_PETS} {_STATUS_PAGE}"
_ORDER: Final = f"{rows.SELECT_ORDERS} WHERE id = ?"
_ORDERS: Final = f"{rows.SELECT_ORDERS} {_PAGE}"
_ORDERS_OF_STATUS: Final = f"{rows.SELECT_ORDERS} {_STATUS_PAGE}"
_TOKENS: Final = f"{rows.SELECT_TOKENS} WHERE number > ? ORDER BY number LIMIT ?"


class SqliteRepository(Repository):
    """The pets and orders in one file."""

    def __init__(self, reader: Reader, writer: Writer, store: OpenStore) -> None:
        self.store = store.identity
        self._open_store = store
        self._reader = reader
        self._read = reader.read
        self._writer = writer

    async def check(self) -> None:
        """Check the file that the path leads to, and what the open one holds."""
        self._open_store.check_open()
        self._open_store.check_file()
        await self._reader.call(self._open_store.check_content)

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Insert a row."""
        receipt: Receipt = await self._writer.submit(Creation(new, token))
        return receipt

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Look up the row by its primary key."""
        pets = await self._read(rows.to_pets, _PET, (pet_id,))
        return pets[0] if pets else None

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        """Read the page in the order of the primary key, or of the index by status."""
        if query.status is None:
            return await self._read(rows.to_pets, _PETS, (query.after, query.count))
        return await self._read(
            rows.to_pets, _PETS_OF_STATUS, (query.status, query.after, query.count)
        )

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Make the pet pending and insert its order."""
        receipt: Receipt = await self._writer.submit(Placement(pet_id, at, token))
        return receipt

    async def get_order(self, order_id: int) -> Order | None:
        """Look up the row by its primary key."""
        orders = await self._read(rows.to_orders, _ORDER, (order_id,))
        return orders[0] if orders else None

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        """Read the page in the order of the primary key, or of the index by status."""
        if query.status is None:
            return await self._read(rows.to_orders, _ORDERS, (query.after, query.count))
        return await self._read(
            rows.to_orders, _ORDERS_OF_STATUS, (query.status, query.after, query.count)
        )

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel the order and change the status of its pet."""
        write = partial(writes.update_order, order_id=order_id, status=status)
        order: Order = await self._writer.submit(write)
        return order

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Read records in the order in which they were written; the cursor is a number.

        Expired ones count, so that a page takes no longer if there are many of them.
        """
        found = await self._read(rows.to_records, _TOKENS, (int(cursor or 0), count))
        next_ = str(found[-1][0]) if len(found) == count else ""
        return TokenPage([record for _, record in found if record.until > now], next_)

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Insert rows in one transaction, up to the first that is refused."""
        write = partial(writes.restore, items=tuple(items), clock=self._open_store.clock)
        await self._writer.submit(write)
