"""The Store group: listOrders, placeOrder, getOrder, updateOrder. It is experimental."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from litestar import Controller, Request, Response, get, patch, post
from litestar.params import FromPath, JSONBody
from litestar.types import Scope
from msgspec import Meta, Struct

from petstore.contract import (
    ConflictError,
    Int64,
    NotFoundError,
    Order,
    OrderStatus,
    StorageError,
)
from petstore.http.api.resources import created, parse_id
from petstore.http.errors import conflict, not_found
from petstore.http.fast_path import FastResponse
from petstore.http.idempotency import to_token
from petstore.http.pagination import Collection
from petstore.http.state import ServiceState, get_state

ORDERS_PATH: Final = "/v1/store/orders"

ORDERS: Final = Collection("o", OrderStatus, ORDERS_PATH)


class NewOrder(Struct, frozen=True, rename="camel"):
    """An order to be placed."""

    pet_id: Annotated[Int64, Meta(description="The pet: an integer, not 1.0 or 1e2.")]


class OrderUpdate(Struct, frozen=True):
    """The new status of an order."""

    status: OrderStatus


async def _require_order(request: Request[Any, Any, Any]) -> None:
    """Respond with 404 for an unknown order before the body is looked at."""
    await _find(get_state(request.scope), request.path_params["order_id"])


class OrdersController(Controller):
    """The orders."""

    path = "/store/orders"
    tags = ("Store",)
    opt = {"experimental": True}  # noqa: RUF012 - Litestar reads it, nothing changes it

    @get(
        operation_id="listOrders",
        summary="List orders",
        opt={"errors": (400,), "collection": ORDERS},
    )
    async def list_orders(self, scope: Scope) -> Response[Sequence[Order]]:
        """Return a page of orders in ascending id, optionally only those with a given status.

        If there is a next page, the response carries a `Link` header with `rel="next"`. Follow
        the link unchanged until a page has none.
        """
        state = get_state(scope)
        query = ORDERS.parse(scope["query_string"])
        found = await state.repository.list_orders(query.after, query.limit + 1, query.status)
        page, link = ORDERS.page(query, found, state.root_path)
        return FastResponse(page, headers={"link": link} if link else None)

    @post(
        operation_id="placeOrder",
        summary="Order a pet",
        opt={"errors": (400, 404, 409, 413, 415), "creates": True},
    )
    async def place_order(self, scope: Scope, data: JSONBody[NewOrder]) -> Response[Order]:
        """Order an available pet, which becomes `pending` in the same atomic step.

        Further orders of the pet get 409: no pet is sold twice.
        """
        state = get_state(scope)
        at = state.clock()
        try:
            receipt = await state.repository.place_order(data.pet_id, at, to_token(scope, data))
        except NotFoundError:
            raise not_found("Pet") from None
        except ConflictError:
            raise conflict("The pet is not available.") from None
        if receipt.replayed:  # the first response again, whatever became of the order since
            first = await state.repository.get_order(receipt.id)
            if first is None:
                raise StorageError(f"order {receipt.id} is recorded under a token but not stored")
            at = first.placed_at
        order = Order(receipt.id, data.pet_id, OrderStatus.PLACED, at)
        return created(state, ORDERS_PATH, order, receipt)

    @get(
        "/{order_id:str}",
        operation_id="getOrder",
        summary="Get an order by its id",
        opt={"errors": (404,)},
    )
    async def get_order(self, scope: Scope, order_id: FromPath[str]) -> Order:
        """Return one order, whatever its status: placed, completed or cancelled."""
        return await _find(get_state(scope), order_id)

    @patch(
        "/{order_id:str}",
        operation_id="updateOrder",
        summary="Complete or cancel an order",
        before_request=_require_order,
        opt={"errors": (400, 404, 409, 413, 415)},
    )
    async def update_order(
        self, scope: Scope, order_id: FromPath[str], data: JSONBody[OrderUpdate]
    ) -> Order:
        """Change the status of an order that is `placed`.

        `completed`: its pet becomes `sold`. `cancelled`: its pet becomes `available` again. The
        status that the order already has changes nothing.
        """
        repository = get_state(scope).repository
        try:
            return await repository.update_order(int(order_id), data.status)
        except ConflictError:
            raise conflict("The order is no longer placed.") from None


async def _find(state: ServiceState, order_id: str) -> Order:
    """Return the order with the id in a path segment. Raises `ApiError` (404)."""
    id_ = parse_id(order_id)
    order = None if id_ is None else await state.repository.get_order(id_)
    if order is None:
        raise not_found("Order")
    return order
