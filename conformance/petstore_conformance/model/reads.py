"""Reads of a repository, several at a time, and checks of what they return."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import UnsetType
from msgspec.structs import astuple, replace

from petstore.contract import (
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    Repository,
    TokenRecord,
)
from petstore_conformance.harness.effort import AT_A_TIME, AnyItem, sample
from petstore_conformance.model.model import AnyQuery, Stored, matching
from petstore_conformance.model.values import BORDERS

EXACT_TYPES: Final[dict[type, Sequence[tuple[type, ...]]]] = {
    Pet: [(int, str, int, PetStatus), (int, str, int, UnsetType)],
    Order: [(int, int, OrderStatus, datetime)],
    Receipt: [(int, bool)],
    TokenRecord: [(bytes, bytes, int, int)],
}
"""The types of the values in each struct."""


async def each(items: Iterable[AnyItem], try_: Callable[[AnyItem], Awaitable[None]]) -> None:
    """Try each item; several at a time, so that a repository far away takes no longer."""
    left = iter(items)

    async def try_some() -> None:
        for item in left:
            await try_(item)

    await asyncio.gather(*(try_some() for _ in range(AT_A_TIME)))


async def read_each(
    repository: Repository, items: Sequence[AnyItem], read: Callable[[AnyItem], Awaitable[None]]
) -> None:
    """Read what belongs to each item that there is time for, several at a time."""
    await each(await sample(repository, items, together=True, reads=True), read)


async def read_page(repository: Repository, query: AnyQuery) -> list[Any]:
    """Return the page of pets or orders that a query asks for."""
    if isinstance(query, PetQuery):
        return await repository.list_pets(query)
    return await repository.list_orders(query)


def every_filter(after: int, count: int) -> list[AnyQuery]:
    """Return queries of pets and of orders, for each status and for all."""
    pets = [PetQuery(after, count, status) for status in (None, *PetStatus)]
    return [*pets, *(OrderQuery(after, count, status) for status in (None, *OrderStatus))]


async def look_up(repository: Repository, item: Pet | Order) -> tuple[Any, list[Any]]:
    """Return what is found by the id of an item, and on a page of its status that begins there."""
    if isinstance(item, Pet):
        query = PetQuery(item.id - 1, 1, item.status or None)
        return await repository.get_pet(item.id), await repository.list_pets(query)
    orders = OrderQuery(item.id - 1, 1, item.status)
    return await repository.get_order(item.id), await repository.list_orders(orders)


async def check_shown(repository: Repository, item: Pet | Order) -> None:
    """Check that an item is returned by its id, and by a page of its status that begins there."""
    found, listed = await look_up(repository, item)
    assert found == item
    assert listed == [item]
    check_types([found, *listed])


async def check_page(repository: Repository, query: AnyQuery, items: Sequence[Any]) -> None:
    """Check that a page has those of all pets, or of all orders, that the query asks for."""
    assert await read_page(repository, query) == matching(items, query)[: query.count]


async def check_pages(repository: Repository, items: Sequence[Any]) -> None:
    """Check pages of many sizes, given all pets, or all orders, in ascending id."""
    query_type = PetQuery if isinstance(items[0], Pet) else OrderQuery
    of_all, *of_a_status = [one for one in every_filter(0, 1) if isinstance(one, query_type)]

    async def read(numbered: tuple[int, int]) -> None:
        number, count = numbered
        filtered, item = of_a_status[number % 3], items[number % len(items)]  # they take turns
        begin = item.id if number % 3 else 0
        for query in (of_all, filtered):
            # The last page that is full, with the id before it; an index may have more behind it.
            last_page = [0, *(it.id for it in matching(items, query))][-1 - count :]
            for after in (begin, *last_page[:2]):  # the last page from its first item on is short
                await check_page(repository, replace(query, after=after, count=count), items)

    await read_each(repository, [*enumerate((*BORDERS, 9999, 40_000, 2**31, 2**63 - 1))], read)


async def read_all(repository: Repository) -> Stored:
    """Return all pets and orders, as two lists show them."""
    pets = await repository.list_pets(PetQuery(0, 9999))
    return Stored(pets, await repository.list_orders(OrderQuery(0, 9999)))


def check_types(items: Iterable[Pet | Order | Receipt | TokenRecord]) -> None:
    """Check that all values have exactly the contract's types, which == does not: 1 == 1.0."""
    for item in items:
        types = tuple(type(value) for value in astuple(item))
        assert types in EXACT_TYPES.get(type(item), ()), item
        assert not isinstance(item, Order) or item.placed_at.utcoffset() == timedelta(0)
