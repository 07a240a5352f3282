"""Calls of all methods: one table, from which each clause of every call takes its calls."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    IdempotencyToken,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    RefusedError,
    Repository,
    TokenRecord,
)
from petstore_conformance.clauses.orders import add_pet, place_at
from petstore_conformance.harness.alarm import CANCEL_SECONDS, within
from petstore_conformance.harness.effort import WRITES, measure, sample
from petstore_conformance.harness.kit import Location
from petstore_conformance.model.calls import AnyCall
from petstore_conformance.model.values import AT, NOW, REX, make_token

LOCAL: Final = ("check", "list_tokens", "restore")  # the methods that a service does not pass on
CREATED_NAME: Final = "cancelled"  # the name of the pets that these calls create


class Given(Struct, frozen=True):
    """What calls are made with.

    number -- tells the names and tokens of several trials apart
    pet_id, other_id -- two available pets, each of which is ordered by one call
    order_id, other_order_id -- two orders that are placed, each of which is updated by one call
    ordered_id -- the pet of an order that is placed or completed
    used -- the token of a create that was made
    items -- what is restored
    count -- how many items are on a page
    """

    number: int
    pet_id: int
    other_id: int
    order_id: int
    other_order_id: int
    ordered_id: int
    used: IdempotencyToken
    items: Sequence[Pet | Order | TokenRecord] = ()
    count: int = 20


async def give(repository: Repository, number: int) -> Given:
    """Store what calls are made with, and return it."""
    used = make_token(f"used {number}", REX)
    pet_id, other_id, order, other, _ = await asyncio.gather(
        add_pet(repository),
        add_pet(repository),
        place_at(repository, AT),
        place_at(repository, AT),
        repository.create_pet(REX, used),
    )
    return Given(number, pet_id, other_id, order.id, other.id, order.pet_id, used)


def calls_of(repository: Repository, given: Given, *, remote: bool = False) -> dict[str, AnyCall]:
    """Return calls of every method, by names that begin with that of the method.

    remote -- whether those are left out that a service does not pass on
    """
    number, count = given.number, given.count
    new = NewPet(CREATED_NAME, number, PetStatus.SOLD)
    creating, placing = make_token(f"c {number}", new), make_token(f"p {number}", given.other_id)
    pets, orders = PetQuery(0, count), OrderQuery(0, count)
    pending = replace(pets, status=PetStatus.PENDING)
    placed = replace(orders, status=OrderStatus.PLACED)
    calls: dict[str, AnyCall] = {  # restores first: what is created takes free ids
        "restore": lambda: repository.restore(given.items),
        "check": lambda: repository.check(),  # noqa: PLW0108 - a wrapper may replace it
        "create_pet": lambda: repository.create_pet(new),
        "create_pet, with a token": lambda: repository.create_pet(new, creating),
        "place_order": lambda: repository.place_order(given.pet_id, AT),
        "place_order, with a token": lambda: repository.place_order(given.other_id, AT, placing),
        "update_order": lambda: repository.update_order(given.order_id, OrderStatus.COMPLETED),
        "update_order, to cancelled": lambda: repository.update_order(
            given.other_order_id, OrderStatus.CANCELLED
        ),
        "get_pet": lambda: repository.get_pet(given.pet_id),
        "list_pets": lambda: repository.list_pets(pets),
        "list_pets, deep": lambda: repository.list_pets(replace(pets, after=given.pet_id)),
        "list_pets, of a status": lambda: repository.list_pets(pending),
        "get_order": lambda: repository.get_order(given.order_id),
        "list_orders": lambda: repository.list_orders(orders),
        "list_orders, deep": lambda: repository.list_orders(replace(orders, after=given.order_id)),
        "list_orders, of a status": lambda: repository.list_orders(placed),
        "list_tokens": lambda: repository.list_tokens("", count, NOW),
    }
    return {name: call for name, call in calls.items() if not (remote and name in LOCAL)}


def all_calls_of(repository: Repository, given: Given) -> dict[str, AnyCall]:
    """Return these calls, and those that change nothing, for which a method may do less."""
    reused = replace(given.used, fingerprint=bytes(32))
    pets, orders = PetQuery(MAX_ID, 1, PetStatus.SOLD), OrderQuery(MAX_ID, 1, OrderStatus.PLACED)
    calls = calls_of(repository, given)
    return calls | {  # in this order: what is replayed or refused has been made
        "create_pet, replayed": lambda: repository.create_pet(REX, given.used),
        "create_pet, refused": lambda: repository.create_pet(REX, reused),
        "place_order, replayed": calls["place_order, with a token"],
        "place_order, refused": lambda: repository.place_order(given.pet_id, AT, reused),
        "place_order, of no pet": lambda: repository.place_order(-1, AT),
        "place_order, of an ordered pet": lambda: repository.place_order(given.ordered_id, AT),
        "update_order, of no order": lambda: repository.update_order(MAX_ID, OrderStatus.COMPLETED),
        "update_order, to the same": calls["update_order"],
        "update_order, refused": lambda: repository.update_order(
            given.order_id, OrderStatus.PLACED
        ),
        "get_pet, of none": lambda: repository.get_pet(MAX_ID),
        "get_order, of none": lambda: repository.get_order(MAX_ID),
        "restore, of nothing": lambda: repository.restore([]),
        "list_pets, after the last": lambda: repository.list_pets(pets),
        "list_orders, after the last": lambda: repository.list_orders(orders),
    }


async def attempt(call: AnyCall) -> Any:
    """Make a call; return its result, or None if it is refused."""
    with suppress(RefusedError):
        return await call()
    return None


async def close_in_flight(location: Location) -> AsyncIterator[dict[str, Any]]:
    """Close a repository at several moments while a call of every method is in flight.

    Yields the calls by name with their results, or with what they have raised.
    """
    async with location.open() as repository:
        length, _ = await measure(repository.create_pet(REX))
        tenths = await sample(repository, range(1, 10))
    for tenth in tenths:
        left_out = ("restore",) if tenth % 2 else WRITES  # no caller makes them during a restore
        async with location.open() as repository:
            items = [Pet(2**40 + 1000 * tenth + n, "Rex", 7) for n in range(300)]
            given = replace(await give(repository, tenth), items=items)  # not in one step
            all_ = all_calls_of(repository, given).items()
            calls = {name: call for name, call in all_ if not name.startswith(left_out)}
            tasks = [asyncio.create_task(attempt(call)) for call in calls.values()]
            await length.wait(tenth)
        async with within(CANCEL_SECONDS, "a call in flight while the repository was closed"):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        yield dict(zip(calls, results, strict=True))
