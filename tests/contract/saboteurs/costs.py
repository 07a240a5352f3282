"""What a backend may do wrong with the process that it shares with the service."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from msgspec.structs import replace
from petstore_memory import MemoryRepository
from petstore_memory import backend as memory

from petstore.contract import (
    MAX_ID,
    ConflictError,
    IdempotencyToken,
    Order,
    OrderStatus,
    Pet,
    Receipt,
)
from tests.contract.saboteurs.registry import SABOTEURS, breaks
from tests.support.honest import Honest


@breaks("cost")
class GoesThroughAll(Honest):
    """Finds a page by looking at every item, as a repository without an index does."""


@breaks("cost")
class SearchesForOrders(Honest):
    """Has its orders in a list."""

    async def get_order(self, order_id: int) -> Order | None:
        self.check()
        return next((o for o in self.store.orders.values() if o.id == order_id), None)


@breaks("event-loop")
class WaitsOnTheEventLoop(Honest):
    """Calls a driver that blocks."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        time.sleep(0.11)  # noqa: ASYNC251 - the mistake
        return await super().update_order(order_id, status)


@breaks("event-loop")
class SyncsEachItem(Honest):
    """Makes every restored item durable by itself, without a turn for other calls."""

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        await super().restore(items)
        time.sleep(0.0002 * len(items))  # noqa: ASYNC251 - the mistake


class NamesTheOrderInTheWay(MemoryRepository):
    """Has indexes, but searches all orders for the one that its message names."""

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        try:
            return await super().place_order(pet_id, at, token)
        except ConflictError:
            for order in await self.list_orders(0, MAX_ID, None):
                if order.pet_id == pet_id:
                    raise ConflictError(f"the pet is in order {order.id}") from None
            raise


@asynccontextmanager
async def open_naming(_: object) -> AsyncIterator[NamesTheOrderInTheWay]:
    yield NamesTheOrderInTheWay()


SABOTEURS["NamesTheOrderInTheWay"] = "cost", replace(memory, open=open_naming)


@breaks("event-loop")
class CompactsItsRecords(Honest):
    """Every 200th record of a token is followed by a pause to compact them all."""

    def record(self, token: IdempotencyToken | None, id_: int) -> None:
        super().record(token, id_)
        if token and len(self.store.records) % 200 == 0:
            time.sleep(0.2)
