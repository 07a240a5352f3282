"""The operations that docs/clients.md does not show, with the generated client.

Its arguments are the address of a service with an empty store, and an API key.
"""

import re
import sys
from collections.abc import Iterator
from typing import TypeVar

from petstore_client import AuthenticatedClient, Client
from petstore_client.api.pets import create_pet, get_pet, list_pets
from petstore_client.api.store import get_order, list_orders, place_order, update_order
from petstore_client.models import (
    Error,
    ErrorCode,
    NewPet,
    Order,
    OrderPlacement,
    OrderStatus,
    OrderUpdate,
    Pet,
    PetStatus,
)
from petstore_client.types import UNSET, Response, Unset

PETS = 45

T = TypeVar("T")

address, key = sys.argv[1:]
client = AuthenticatedClient(f"{address}/v1", key, raise_on_unexpected_status=True)
anonymous = Client(f"{address}/v1", raise_on_unexpected_status=True)


def unwrap(result: T | Error | None) -> T:
    """Return the result, which is not an error."""
    assert result is not None
    assert not isinstance(result, Error), result
    return result


def code(result: object) -> ErrorCode:
    """Return the code of an error."""
    assert isinstance(result, Error), result
    assert result.message
    return result.code


def pages(limit: int, status: PetStatus | Unset = UNSET) -> Iterator[list[Pet]]:
    """Follow the next links to the last page."""
    cursor: str | Unset = UNSET
    while True:
        page = list_pets.sync_detailed(client=client, limit=limit, status=status, cursor=cursor)
        yield unwrap(page.parsed)
        link = re.search(r'[?&]cursor=([^&>]+)[^>]*>; rel="next"', page.headers.get("link", ""))
        if link is None:
            return
        cursor = link[1]


def pets() -> list[Pet]:
    """Add pets: every third one is available, the others have no status."""
    added = []
    for number in range(PETS):
        body = NewPet(f"pet {number}", number)
        if number % 3 == 0:
            body.status = PetStatus.AVAILABLE
        response = create_pet.sync_detailed(client=client, body=body)
        added.append(unwrap(response.parsed))
        assert response.headers["location"] == f"/v1/pets/{added[-1].id}"
    return added


def lists(added: list[Pet]) -> None:
    """List all pets: each exactly once, whether or not the last page is full."""
    for limit, sizes in ((10, [10, 10, 10, 10, 5]), (15, [15, 15, 15]), (100, [45])):
        walked = list(pages(limit))
        assert [len(page) for page in walked] == sizes
        assert [pet for page in walked for pet in page] == added
    available = [pet for page in pages(4, PetStatus.AVAILABLE) for pet in page]
    assert available == added[::3]
    assert list(pages(10, PetStatus.SOLD)) == [[]]


def errors(pet: Pet) -> None:
    """Check that every error is typed and has its code."""
    assert code(list_pets.sync(client=anonymous)) == ErrorCode.UNAUTHORIZED
    assert code(get_pet.sync(pet.id, client=anonymous)) == ErrorCode.UNAUTHORIZED
    assert code(list_pets.sync(client=client, limit=101)) == ErrorCode.INVALID_REQUEST
    assert code(list_pets.sync(client=client, cursor="x")) == ErrorCode.INVALID_REQUEST
    too_large = NewPet("n", 2**63)
    assert code(create_pet.sync(client=client, body=too_large)) == ErrorCode.INVALID_REQUEST
    assert code(get_pet.sync(PETS + 1, client=client)) == ErrorCode.NOT_FOUND
    assert code(get_order.sync(1, client=client)) == ErrorCode.NOT_FOUND
    missing = OrderPlacement(PETS + 1)
    assert code(place_order.sync(client=client, body=missing)) == ErrorCode.NOT_FOUND
    assert unwrap(get_pet.sync(pet.id, client=client)) == pet


def orders(pet: Pet, other: Pet) -> Order:
    """Order a pet, and retry. Another order for it is refused."""
    body = OrderPlacement(pet.id)

    def send(body: OrderPlacement) -> Response[Error | Order]:
        return place_order.sync_detailed(client=client, body=body, idempotency_key="first")

    first, again = send(body), send(body)
    order = unwrap(first.parsed)
    assert order.status == OrderStatus.PLACED
    assert order.placed_at.tzinfo is not None
    assert unwrap(again.parsed) == order
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert code(send(OrderPlacement(other.id)).parsed) == ErrorCode.CONFLICT
    assert code(place_order.sync(client=client, body=body)) == ErrorCode.CONFLICT
    assert unwrap(list_orders.sync(client=client, status=OrderStatus.PLACED)) == [order]
    assert unwrap(get_order.sync(order.id, client=client)) == order
    return order


def endings(pet: Pet, order: Order) -> None:
    """Complete the order: the pet is sold, the order final."""
    completed = OrderUpdate(OrderStatus.COMPLETED)
    cancelled = OrderUpdate(OrderStatus.CANCELLED)
    done = unwrap(update_order.sync(order.id, client=client, body=completed))
    assert done.status == OrderStatus.COMPLETED
    refused = update_order.sync(order.id, client=client, body=cancelled)
    assert code(refused) == ErrorCode.CONFLICT
    assert unwrap(get_pet.sync(pet.id, client=client)).status == PetStatus.SOLD


def retries() -> None:
    """Add a pet twice with the same Idempotency-Key: it is stored once."""
    responses = [
        create_pet.sync_detailed(client=client, body=NewPet("once", 1), idempotency_key="once")
        for _ in range(2)
    ]
    assert len({unwrap(response.parsed).id for response in responses}) == 1
    assert responses[1].headers["idempotency-replayed"] == "true"
    assert sum(len(page) for page in pages(100)) == PETS + 1


added = pets()
lists(added)
errors(added[0])
endings(added[0], orders(added[0], added[3]))
retries()
