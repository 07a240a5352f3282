"""Clauses of locations: made, opened, closed and removed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    ConflictError,
    Expected,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetQuery,
    Repository,
    StorageError,
    UnavailableError,
)
from petstore_conformance.clauses.methods import Given, all_calls_of, attempt, close_in_flight, give
from petstore_conformance.clauses.pets import add_pets
from petstore_conformance.harness.effort import measure, sample, yield_to_others
from petstore_conformance.harness.kit import (
    CancelledOnPurposeError,
    Kit,
    Location,
    RaisedOnPurposeError,
    location_clause,
)
from petstore_conformance.model.calls import cancel
from petstore_conformance.model.model import Stored
from petstore_conformance.model.reads import read_all
from petstore_conformance.model.values import AT, REX, make_token, record_of

SECONDS_FOR_LOCATIONS = 4  # for filling locations: where that is slow, fewer of them are made


class LocationClauses(Kit):
    """Clauses of `Backend.open` and `Backend.scratch`."""

    @location_clause("closed")
    async def test_a_closed_repository_is_unavailable(self, location: Location) -> None:
        """Closing only forgets the connection, or later calls raise some other error."""
        closed = list[tuple[Repository, Given]]()
        for number, ending in enumerate((None, RaisedOnPurposeError, CancelledOnPurposeError)):
            with suppress(RaisedOnPurposeError, CancelledOnPurposeError):
                async with location.open() as repository:
                    given = await give(repository, number)
                    plain = await repository.create_pet(NewPet("Rex", 7))  # it never changes
                    given = replace(given, pet_id=plain.id)
                    for _ in range(2):  # it may cache what it returns, or what is final
                        await call_all(repository, given)
                    if ending is not None:
                        raise ending
            closed.append((repository, given))
            await check_unavailable(repository, given)
        closed.append((repository, replace(given, pet_id=MAX_ID, order_id=MAX_ID)))
        async with location.open() as again:
            if location.backend.shared:
                async with location.open() as inner:  # closed while another one is open
                    closed.append((inner, given))
            for handle in await sample(again, closed):  # also those that were open before
                await check_unavailable(*handle)
        async with location.new() as empty:
            async with empty.open() as unused:
                pass
            await check_unavailable(unused, given)
        async for results in close_in_flight(location):
            for name, result in results.items():
                failed = isinstance(result, BaseException)
                assert not failed or isinstance(result, UnavailableError), f"{name}: {result!r}"
        await self._cancel_the_closing(location, given)

    async def _cancel_the_closing(self, location: Location, given: Given) -> None:
        """Cancel a task that is closing a repository: it is closed all the same."""
        async with location.open() as repository:
            delays = await sample(repository, range(5))
        for iterations in delays:
            opened = asyncio.Future[Repository]()

            async def leave(opened: asyncio.Future[Repository] = opened) -> None:
                async with location.open() as repository:
                    await give(repository, 0)
                    opened.set_result(repository)

            leaving = asyncio.create_task(leave())
            ends: list[asyncio.Future[Any]] = [leaving, opened]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                leaving.result()  # raises what opening has raised
            repository = await opened
            await yield_to_others(iterations)
            await cancel([leaving])
            await check_unavailable(repository, given)

    @location_clause("scratch-empty")
    async def test_a_scratch_location_is_empty(self, location: Location) -> None:
        """Scratch yields the settings that it was given, although something is stored there."""
        async with location.open() as repository:
            assert not await repository.list_pets(PetQuery(0, 1))

    @location_clause("scratch-apart")
    async def test_two_scratch_locations_share_nothing(self, location: Location) -> None:
        """Scratch yields the same location each time, or clears the location that it was given."""
        stored, remove = dict[Location, Stored](), dict[Location, Callable[[], Awaitable[None]]]()
        async with AsyncExitStack() as stack:

            async def make(source: Location) -> Location:
                own = await stack.enter_async_context(AsyncExitStack())
                new = await own.enter_async_context(source.new())
                remove[new] = own.aclose
                async with new.open() as repository:
                    stored[new] = await self._fill(repository, len(stored))
                return new

            length, other = await measure(make(Location(location.backend, self.settings)))
            most = max(2, int(SECONDS_FOR_LOCATIONS / (length.seconds + 1e-9)))
            chain = [await make(location)]
            for _ in range(min(5, most)):  # each made from the one before: names may become long
                chain.append(await make(chain[-1]))
            await self._check_locations(stored)
            with suppress(RaisedOnPurposeError):
                async with chain[0].new() as new, new.open() as repository:
                    await self._fill(repository, 1)
                    raise RaisedOnPurposeError
            await asyncio.gather(*(make(location) for _ in range(min(12, most))))
            for removed in (other, chain.pop(0)):  # others' names may begin with its name
                del stored[removed]
                await remove[removed]()
            late, _ = await asyncio.gather(make(location), make(location))  # a name may be free now
            await self._check_locations(stored)
            async with chain[-1].open() as one, chain[-2].open() as two:
                await remove[late]()
                await one.restore([Pet(MAX_ID, "Rex", 7)])
                assert not (await two.create_pet(REX)).replayed, "places share their ids"

    async def _fill(self, repository: Repository, count: int) -> Stored:
        """Check that a location is empty; store pets and an order, and return what is stored."""
        assert await read_all(repository) == Stored([], [])
        await add_pets(repository, count)
        created = await repository.create_pet(REX, make_token("create", REX))
        placed = await repository.place_order(created.id, AT, make_token("place", "it"))
        assert (created.replayed, placed.replayed) == (False, False), "places share tokens"
        stored = await read_all(repository)
        assert (len(stored.pets), len(stored.orders)) == (count + 1, 1)
        return stored

    async def _check_locations(self, stored: dict[Location, Stored]) -> None:
        """Open each location again, if it is durable; it must have these pets and orders."""
        for location, expected in stored.items():
            if location.backend.durable:
                async with location.open() as repository:
                    assert await read_all(repository) == expected
                    assert (await repository.create_pet(REX, make_token("create", REX))).replayed

    @location_clause("failure-passed")
    async def test_a_failure_in_the_block_is_passed_on(self, location: Location) -> None:
        """Open or scratch logs what is raised in its block, or replaces it by another error."""
        group = ExceptionGroup("raised by the kit", [LookupError()])
        named = (KeyError, ConnectionResetError, ConflictError, StorageError, UnavailableError)
        others = (TimeoutError(), asyncio.CancelledError(), group)
        async with AsyncExitStack() as stack:
            if location.backend.shared:  # what is done last may find another one in its way
                await stack.enter_async_context(location.open())
            for failure in (*(error("raised by the kit") for error in named), *others):
                opening = location.backend.open(location.settings, Expected())
                for manager in (opening, location.backend.scratch(self.settings)):
                    with pytest.raises(type(failure)) as caught:
                        async with manager:
                            raise failure
                    passed: BaseException = caught.value
                    if isinstance(passed, ExceptionGroup):  # `suppress` makes another of the same
                        assert passed.exceptions == group.exceptions
                    else:
                        assert passed is failure


async def call_all(repository: Repository, given: Given) -> None:
    """Call every method that reads, or that writes a single item: they may overlap."""
    calls = all_calls_of(repository, given)
    single = (attempt(call) for name, call in calls.items() if not name.startswith("restore"))
    await asyncio.gather(*single)


async def check_unavailable(repository: Repository, given: Given) -> None:
    """Check that every method raises `UnavailableError`, whether what is given is stored or not."""
    calls, pet = all_calls_of(repository, given), Pet(given.pet_id, "Rex", 7)
    order = Order(given.order_id, pet.id, OrderStatus.CANCELLED, AT)
    for item in (pet, order, record_of(given.used, pet.id)):
        calls[f"restore, of {item}"] = partial(repository.restore, [item])
    results = await asyncio.gather(*(call() for call in calls.values()), return_exceptions=True)
    for name, result in zip(calls, results, strict=True):
        raised = isinstance(result, UnavailableError)
        assert raised, f"no UnavailableError is raised by a call of {name}, but {result!r}"
