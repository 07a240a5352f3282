"""The Store group: listOrders, placeOrder, getOrder, updateOrder. It is experimental."""

from typing import Annotated, Any, Final

from litestar import Controller, get, patch, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from petstore.contract import (
    ConflictError,
    Int64,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    UnavailableError,
)
from petstore.http.api.resources import created, parse_id
from petstore.http.errors import ORDER_NOT_PLACED, PET_NOT_AVAILABLE, ApiError, ErrorCode, not_found
from petstore.http.idempotency import to_token
from petstore.http.pagination import Collection
from petstore.http.request import Response, ServiceRequest, ServiceState
from petstore.http.routes import API_PREFIX

ORDERS_PATH: Final = f"{API_PREFIX}/store/orders"

ORDERS: Final = Collection("o", OrderQuery, ORDERS_PATH)


class OrderPlacement(Struct, frozen=True, rename="camel"):
    """An order to be placed."""

    pet_id: Annotated[Int64, Meta(description="The pet: an integer, not 1.0 or 1e2.")]


class OrderUpdate(Struct, frozen=True):
    """The new status of an order."""

    status: OrderStatus


async def order_guard(request: Any, _: Any) -> None:
    """Refuse a request for an unknown order with 404 before its body is read."""
    request.scope["order"] = await _find(request.service, request.scope["path_params"]["order_id"])


class OrdersController(Controller):
    """What clients may do with orders of pets."""

    path = "/store/orders"
    tags = ("Store",)
    opt = {"experimental": True}  # noqa: RUF012 - Litestar reads it, nothing changes it

    @get(
        operation_id="listOrders",
        summary="List orders",
        opt={"errors": (400,), "collection": ORDERS},
    )
    async def list_orders(self, request: ServiceRequest) -> Response[list[Order]]:
        """Return a page of orders in ascending id, optionally only those with a given status.

        If there is a next page, the response carries a `Link` header with `rel="next"`. Follow
        the link unchanged until a page has none.
        """
        service = request.service
        query = ORDERS.parse(request.scope["query_string"])
        if (turn := request.acquire_page(query.count)) is not None:
            await turn
        found = await service.repository.list_orders(query)
        return ORDERS.page(query, found, service.root_path)

    @post(
        operation_id="placeOrder",
        summary="Order a pet",
        opt={"errors": (400, 404, 409, 413, 415), "creates": True},
    )
    async def place_order(
        self, request: ServiceRequest, data: JSONBody[OrderPlacement]
    ) -> Response[Order]:
        """Order an available pet, which becomes `pending` in the same atomic step.

        Further orders of the pet get 409: no pet is sold twice.
        """
        service = request.service
        at, token = service.clock(), to_token(request, data)
        request.writing = True
        try:
            receipt = await service.repository.place_order(data.pet_id, at, token)
        except NotFoundError:
            raise not_found("Pet") from None
        except ConflictError:
            raise ApiError(ErrorCode.CONFLICT, PET_NOT_AVAILABLE) from None
        if receipt.replayed:  # the first response again, whatever became of the order since
            request.writing = False
            first = await service.repository.get_order(receipt.id)
            if first is None:
                raise UnavailableError(
                    f"order {receipt.id} is recorded under an idempotency key, but it was deleted:"
                    f" restore it, or delete the record of the token {token and token.value.hex()}"
                )
            at = first.placed_at
        order = Order(receipt.id, data.pet_id, OrderStatus.PLACED, at)
        return created(request, ORDERS_PATH, order, receipt)

    @get(
        "/{order_id:str}",
        operation_id="getOrder",
        summary="Get an order by its id",
        opt={"errors": (404,)},
    )
    async def get_order(self, request: ServiceRequest, order_id: FromPath[str]) -> Order:
        """Return one order, whatever its status: placed, completed or cancelled."""
        return await _find(request.service, order_id)

    @patch(
        "/{order_id:str}",
        operation_id="updateOrder",
        summary="Complete or cancel an order",
        guards=[order_guard],
        opt={"errors": (400, 404, 409, 413, 415)},
    )
    async def update_order(
        self, request: ServiceRequest, order_id: FromPath[str], data: JSONBody[OrderUpdate]
    ) -> Order:
        """Change the status of an order that is `placed`.

        `completed`: its pet becomes `sold`. `cancelled`: its pet becomes `available` again. The
        status that the order already has changes nothing.
        """
        service = request.service
        request.writing = True
        try:
            order = await service.repository.update_order(int(order_id), data.status)
        except ConflictError:
            raise ApiError(ErrorCode.CONFLICT, ORDER_NOT_PLACED) from None
        if order != request.scope["order"]:
            service.storage_health.wrote()
        return order


async def _find(service: ServiceState, order_id: str) -> Order:
    """Return the order with the id in a path segment. Raises `ApiError` (404)."""
    id_ = parse_id(order_id)
    order = None if id_ is None else await service.repository.get_order(id_)
    if order is None:
        raise not_found("Order")
    return order
