"""The Store group: listOrders."""

from typing import Any

from litestar import get

from petstore.api import ServiceController


class StoreController(ServiceController):
    """The orders. There are none yet: the operation exists, and answers an empty list."""

    path = "/v1/store/orders"
    tags = ("Store",)

    @get(operation_id="listOrders", summary="List orders", opt={"experimental": True})
    async def list_orders(self) -> list[Any]:
        """Return the orders. This operation is experimental: there are no orders yet."""
        return []
