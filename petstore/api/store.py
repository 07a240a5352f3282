"""The Store group: listOrders, placeOrder, getOrder, updateOrder. All of it is experimental."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Self

from litestar import Request, Response
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from petstore.api import ServiceController, created, parse_id
from petstore.api.idempotency import to_retry
from petstore.api.lean import Reply, get, patch, post
from petstore.contract import (
    ConflictError,
    Int64,
    NotFoundError,
    Order,
    OrderStatus,
    StorageError,
)
from petstore.errors import conflict, not_found
from petstore.paging import Collection
from petstore.service import Service

ORDERS: Final = "/v1/store/orders"
KIND: Final = "o"  # what the cursors of orders begin with

_OPT: Final = {"experimental": True}


class NewOrder(Struct, frozen=True, rename="camel"):
    """An order to be placed."""

    pet_id: Annotated[Int64, Meta(description="The animal: an integer, no 1.0 or 1e2.")]


class OrderUpdate(Struct, frozen=True):
    """What is to become of an order."""

    status: OrderStatus


async def _require_order(request: Request[Any, Any, Any]) -> None:
    """Answer 404 for an order that does not exist before anything is said about the body."""
    await _find(request.app.state.service, request.path_params["order_id"])


class StoreController(ServiceController):
    """The orders."""

    path = ORDERS
    tags = ("Store",)
    collection: ClassVar[Collection[OrderStatus]]

    @classmethod
    def of(cls, service: Service) -> type[Self]:
        """Return this controller, bound to a service."""
        bound = super().of(service)
        bound.collection = Collection(KIND, OrderStatus, service.root + ORDERS)
        return bound

    @get(
        operation_id="listOrders",
        summary="List orders",
        opt=_OPT | {"errors": (400,), "collection": KIND},
    )
    async def list_orders(self, request: Request[Any, Any, Any]) -> Response[Sequence[Order]]:
        """Return a page of orders in ascending id, optionally of one status.

        Every page that has a successor carries a `Link` header with `rel="next"`; follow it as
        it is, until a page has none.
        """
        query = self.collection.parse(request.scope["query_string"])
        repository = self.service.repository
        found = await repository.list_orders(query.after, query.limit + 1, query.status)
        page, link = self.collection.page(query, found)
        return Reply(page, headers={"link": link} if link else None)

    @post(
        operation_id="placeOrder",
        summary="Order an animal",
        opt=_OPT | {"errors": (400, 404, 409, 413, 415), "created": True},
    )
    async def place_order(
        self, request: Request[Any, Any, Any], data: JSONBody[NewOrder]
    ) -> Response[Order]:
        """Order an available animal, which becomes `pending` in the same step.

        Whoever comes second gets 409: no animal is sold twice.
        """
        repository = self.service.repository
        at = self.service.clock()
        try:
            receipt = await repository.place_order(
                data.pet_id, at, to_retry(request, self.service, data)
            )
        except NotFoundError:
            raise not_found("This animal") from None
        except ConflictError:
            raise conflict("This animal is not available.") from None
        if receipt.replayed:  # the first answer, whatever has become of the order since
            first = await repository.get_order(receipt.id)
            if first is None:
                raise StorageError(f"order {receipt.id} is recorded for a retry but not stored")
            at = first.placed_at
        order = Order(receipt.id, data.pet_id, OrderStatus.PLACED, at)
        return created(order, f"{self.service.root}{ORDERS}", receipt)

    @get(
        "/{order_id:str}",
        operation_id="getOrder",
        summary="Get an order by its id",
        opt=_OPT | {"errors": (404,)},
    )
    async def get_order(self, order_id: FromPath[str]) -> Order:
        """Return one order, whatever its status: placed, completed or cancelled."""
        return await _find(self.service, order_id)

    @patch(
        "/{order_id:str}",
        operation_id="updateOrder",
        summary="Complete or cancel an order",
        before_request=_require_order,
        opt=_OPT | {"errors": (400, 404, 409, 413, 415)},
    )
    async def update_order(self, order_id: FromPath[str], data: JSONBody[OrderUpdate]) -> Order:
        """Change the status of an order that is `placed`.

        `completed`: its animal becomes `sold`. `cancelled`: it becomes `available` again. The
        status that the order already has changes nothing.
        """
        try:
            return await self.service.repository.update_order(int(order_id), data.status)
        except ConflictError:
            raise conflict("This order is no longer placed.") from None


async def _find(service: Service, order_id: str) -> Order:
    """Return the order that a path segment names. Raises `ApiError` (404)."""
    number = parse_id(order_id)
    order = None if number is None else await service.repository.get_order(number)
    if order is None:
        raise not_found("This order")
    return order
