"""The operations that docs/clients.md does not show, with the generated client.

Its arguments are the address of a service with an empty store, and an API key.
"""

import sys
from typing import TypeVar

from petstore_client import AuthenticatedClient, Client
from petstore_client.api.pets import create_pet, get_pet, list_pets
from petstore_client.api.store import get_order, list_orders, place_order, update_order
from petstore_client.models import (
    Error,
    ErrorCode,
    NewPet,
    OrderPlacement,
    OrderStatus,
    OrderUpdate,
    Pet,
    PetStatus,
)
from petstore_client.types import UNSET

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


def pets() -> Pet:
    """Add a pet without a status, twice with the same key, and one that is available: return it."""
    body = NewPet("plain", -1)
    added = [
        create_pet.sync_detailed(client=client, body=body, idempotency_key="once") for _ in range(2)
    ]
    plain, again = (unwrap(response.parsed) for response in added)
    assert plain == again == Pet(plain.id, "plain", -1, UNSET)
    assert added[1].headers["idempotency-replayed"] == "true"
    assert added[0].headers["location"] == f"/v1/pets/{plain.id}"
    other = unwrap(create_pet.sync(client=client, body=NewPet("other", 2, PetStatus.AVAILABLE)))
    assert unwrap(list_pets.sync(client=client)) == [plain, other]
    assert unwrap(list_pets.sync(client=client, status=PetStatus.SOLD)) == []
    return other


def errors(pet: Pet) -> None:
    """Check that every error is typed and has its code."""
    assert code(list_pets.sync(client=anonymous)) == ErrorCode.UNAUTHORIZED
    assert code(get_pet.sync(pet.id, client=anonymous)) == ErrorCode.UNAUTHORIZED
    assert code(list_pets.sync(client=client, limit=101)) == ErrorCode.INVALID_REQUEST
    assert code(list_pets.sync(client=client, cursor="x")) == ErrorCode.INVALID_REQUEST
    too_large = NewPet("n", 2**63)
    assert code(create_pet.sync(client=client, body=too_large)) == ErrorCode.INVALID_REQUEST
    assert code(get_pet.sync(pet.id + 1, client=client)) == ErrorCode.NOT_FOUND
    assert code(get_order.sync(1, client=client)) == ErrorCode.NOT_FOUND
    missing = OrderPlacement(pet.id + 1)
    assert code(place_order.sync(client=client, body=missing)) == ErrorCode.NOT_FOUND


def orders(pet: Pet) -> None:
    """Order a pet and complete the order: the pet is sold, the order final."""
    order = unwrap(place_order.sync(client=client, body=OrderPlacement(pet.id)))
    assert order.status == OrderStatus.PLACED
    assert order.placed_at.tzinfo is not None
    assert unwrap(list_orders.sync(client=client, status=OrderStatus.PLACED)) == [order]
    assert unwrap(get_order.sync(order.id, client=client)) == order
    completed, cancelled = map(OrderUpdate, (OrderStatus.COMPLETED, OrderStatus.CANCELLED))
    done = unwrap(update_order.sync(order.id, client=client, body=completed))
    assert done.status == OrderStatus.COMPLETED
    refused = update_order.sync(order.id, client=client, body=cancelled)
    assert code(refused) == ErrorCode.CONFLICT
    assert unwrap(get_pet.sync(pet.id, client=client)).status == PetStatus.SOLD


added = pets()
errors(added)
orders(added)
