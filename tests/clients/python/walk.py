"""What the README leaves out, with the generated client: an empty store, the address, a key."""

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
    NewOrder,
    NewPet,
    Order,
    OrderStatus,
    OrderUpdate,
    Pet,
    PetStatus,
)
from petstore_client.types import UNSET, Response, Unset

ANIMALS = 45

T = TypeVar("T")

address, key = sys.argv[1:]
client = AuthenticatedClient(f"{address}/v1", key, raise_on_unexpected_status=True)
anonymous = Client(f"{address}/v1", raise_on_unexpected_status=True)


def wanted(answer: T | Error | None) -> T:
    """Return what was asked for."""
    assert answer is not None
    assert not isinstance(answer, Error), answer
    return answer


def code(answer: object) -> ErrorCode:
    """Return the code of an error."""
    assert isinstance(answer, Error), answer
    assert answer.message
    return answer.code


def pages(limit: int, status: PetStatus | Unset = UNSET) -> Iterator[list[Pet]]:
    """Walk from page to page until one has no successor."""
    cursor: str | Unset = UNSET
    while True:
        page = list_pets.sync_detailed(client=client, limit=limit, status=status, cursor=cursor)
        yield wanted(page.parsed)
        link = re.search(r'[?&]cursor=([^&>]+)[^>]*>; rel="next"', page.headers.get("link", ""))
        if link is None:
            return
        cursor = link[1]


def animals() -> list[Pet]:
    """Add animals: every third one is available, the others have no status."""
    added = []
    for number in range(ANIMALS):
        body = NewPet(f"animal {number}", number)
        if number % 3 == 0:
            body.status = PetStatus.AVAILABLE
        answer = create_pet.sync_detailed(client=client, body=body)
        added.append(wanted(answer.parsed))
        assert answer.headers["location"] == f"/v1/pets/{added[-1].id}"
    return added


def lists(added: list[Pet]) -> None:
    """List them: each once, in as many pages as it takes, the last one full or not."""
    for limit, sizes in ((10, [10, 10, 10, 10, 5]), (15, [15, 15, 15]), (100, [45])):
        walked = list(pages(limit))
        assert [len(page) for page in walked] == sizes
        assert [pet for page in walked for pet in page] == added
    available = [pet for page in pages(4, PetStatus.AVAILABLE) for pet in page]
    assert available == added[::3]
    assert list(pages(10, PetStatus.SOLD)) == [[]]


def errors(pet: Pet) -> None:
    """Every error is typed, and told by its code."""
    assert code(list_pets.sync(client=anonymous)) == ErrorCode.UNAUTHORIZED
    assert code(get_pet.sync(pet.id, client=anonymous)) == ErrorCode.UNAUTHORIZED
    assert code(list_pets.sync(client=client, limit=101)) == ErrorCode.INVALID_REQUEST
    assert code(list_pets.sync(client=client, cursor="x")) == ErrorCode.INVALID_REQUEST
    too_large = NewPet("n", 2**63)
    assert code(create_pet.sync(client=client, body=too_large)) == ErrorCode.INVALID_REQUEST
    assert code(get_pet.sync(ANIMALS + 1, client=client)) == ErrorCode.NOT_FOUND
    assert code(get_order.sync(1, client=client)) == ErrorCode.NOT_FOUND
    missing = NewOrder(ANIMALS + 1)
    assert code(place_order.sync(client=client, body=missing)) == ErrorCode.NOT_FOUND
    assert wanted(get_pet.sync(pet.id, client=client)) == pet


def orders(pet: Pet, other: Pet) -> Order:
    """Order an animal, as often as it takes; nobody else gets it."""

    def send(body: NewOrder) -> Response[Error | Order]:
        return place_order.sync_detailed(client=client, body=body, idempotency_key="first")

    first, again = send(NewOrder(pet.id)), send(NewOrder(pet.id))
    order = wanted(first.parsed)
    assert order.status == OrderStatus.PLACED
    assert order.placed_at.tzinfo is not None
    assert wanted(again.parsed) == order
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert code(send(NewOrder(other.id)).parsed) == ErrorCode.CONFLICT
    assert code(place_order.sync(client=client, body=NewOrder(pet.id))) == ErrorCode.CONFLICT
    assert wanted(list_orders.sync(client=client, status=OrderStatus.PLACED)) == [order]
    assert wanted(get_order.sync(order.id, client=client)) == order
    return order


def endings(pet: Pet, order: Order) -> None:
    """Complete it: the animal is sold, the order final."""
    completed = OrderUpdate(OrderStatus.COMPLETED)
    cancelled = OrderUpdate(OrderStatus.CANCELLED)
    done = wanted(update_order.sync(order.id, client=client, body=completed))
    assert done.status == OrderStatus.COMPLETED
    refused = update_order.sync(order.id, client=client, body=cancelled)
    assert code(refused) == ErrorCode.CONFLICT
    assert wanted(get_pet.sync(pet.id, client=client)).status == PetStatus.SOLD


def retries() -> None:
    """Add an animal with an Idempotency-Key, twice: it is there once."""
    answers = [
        create_pet.sync_detailed(client=client, body=NewPet("once", 1), idempotency_key="once")
        for _ in range(2)
    ]
    assert len({wanted(answer.parsed).id for answer in answers}) == 1
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert sum(len(page) for page in pages(100)) == ANIMALS + 1


added = animals()
lists(added)
errors(added[0])
endings(added[0], orders(added[0], added[3]))
retries()
