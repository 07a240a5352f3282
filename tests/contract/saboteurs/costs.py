"""What a backend may do wrong with the process that it shares with the service."""

import time
from collections.abc import Sequence

from petstore.contract import Order, OrderStatus, Pet
from tests.contract.saboteurs.registry import breaks
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
