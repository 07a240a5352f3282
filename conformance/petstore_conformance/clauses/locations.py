"""Clauses of locations: made, opened, closed and removed."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from inspect import getsource

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    ConflictError,
    Expected,
    IdempotencyToken,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
    StorageError,
    TokenRecord,
    UnavailableError,
)
from petstore_conformance.clauses.orders import place_orders
from petstore_conformance.clauses.pages import add_pets
from petstore_conformance.harness.kit import (
    CancelledOnPurposeError,
    Kit,
    Location,
    RaisedOnPurposeError,
    location_clause,
)
from petstore_conformance.model.calls import AnyCall, Stored, read_all, sample
from petstore_conformance.model.values import AT, NOW, REX, make_token

SECONDS_FOR_LOCATIONS = 4
"""How long may be spent on filling locations: where that is slow, fewer of them are made."""


class LocationClauses(Kit):
    """Clauses of `Backend.open` and `Backend.scratch`."""

    @location_clause("closed")
    async def test_a_closed_repository_is_unavailable(self, location: Location) -> None:
        """Closing only forgets the connection, or later calls raise some other error."""
        closed = list[Repository]()
        endings = (None, RaisedOnPurposeError, CancelledOnPurposeError)
        for status, ending in zip(OrderStatus, endings, strict=True):
            token = make_token(f"create {status}", REX)
            with suppress(RaisedOnPurposeError, CancelledOnPurposeError):
                async with location.open() as repository:
                    closed.append(repository)
                    (placed,) = await place_orders(repository)
                    order = await repository.update_order(placed.id, status)
                    receipt = await repository.create_pet(REX, token)
                    plain = await repository.create_pet(NewPet("Rex", 7))  # it never changes
                    for pet_id in (receipt.id, order.pet_id, plain.id):
                        for read in _reads(repository, pet_id, order.id):  # it may cache them
                            await read()
                    if ending is not None:
                        raise ending
            ids = [(receipt.id, order.id), (order.pet_id, 7), (plain.id, 7), (MAX_ID, MAX_ID)]
            for one in closed:  # also those before, when the location was opened again
                await _check_closed(one, token, ids)
        async with location.open():
            if location.backend.shared:
                async with location.open() as inner:  # closed while another one is open
                    closed.append(inner)
            for one in closed:
                await _check_closed(one, token, ids[:1])

    @location_clause("scratch-empty")
    async def test_a_scratch_location_is_empty(self, location: Location) -> None:
        """Scratch yields the settings that it was given, although something is stored there."""
        async with location.open() as repository:
            assert not await repository.list_pets(PetQuery(0, 1))

    @location_clause("scratch-apart")
    async def test_two_scratch_locations_share_nothing(self, location: Location) -> None:
        """Scratch yields the same location each time, or clears the location that it was given."""
        backend = location.backend
        async with AsyncExitStack() as stack:
            other = await stack.enter_async_context(Location(backend, self.settings).new())
            first_stack = await stack.enter_async_context(AsyncExitStack())
            first = await first_stack.enter_async_context(location.new())
            outer_stack = await stack.enter_async_context(AsyncExitStack())
            stored = dict[Location, Stored]()
            async with location.open() as one, other.open() as two:
                stored[location] = await self._fill(one, 3)
                stored[other] = await self._fill(two, 2)
            time = asyncio.get_running_loop().time
            begin = time()
            async with first.open() as repository:
                stored[first] = await self._fill(repository, 1)
            most = max(2, int(SECONDS_FOR_LOCATIONS / (time() - begin + 1e-9)))
            outer = await outer_stack.enter_async_context(other.new())
            inner = await stack.enter_async_context(outer.new())
            async with inner.open() as three:
                stored[inner] = await self._fill(three, 5)
            await self._check_locations(stored)
            with suppress(RaisedOnPurposeError):
                async with other.new() as new, new.open() as repository:
                    await self._fill(repository, 1)
                    raise RaisedOnPurposeError
            await self._check_locations(stored)
            await outer_stack.aclose()  # the one from which another was made
            await self._check_locations(stored)
            async with other.open() as two:
                many = await sample(two, range(min(20, most)))
            several = [stack.enter_async_context(location.new()) for _ in many]
            for new in await asyncio.gather(*several):  # made at once; a name may have become free
                async with new.open() as repository:
                    stored[new] = await self._fill(repository, 1)
            for _ in range(min(5, most)):  # each made from the one before: names may become long
                new = await stack.enter_async_context(new.new())
                async with new.open() as repository:
                    stored[new] = await self._fill(repository, 1)
            await self._check_locations(stored)
            del stored[first]
            await first_stack.aclose()  # the others' names may begin with its name
            await self._check_locations(stored)
            async with new.open() as repository, other.open() as two:
                await repository.restore([Pet(MAX_ID, "Rex", 7)])
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
        for failure in (
            *(LookupError("raised by the kit"), OSError("raised by the kit"), TimeoutError()),
            *(ConflictError("raised by the kit"), StorageError("raised by the kit")),
            *(UnavailableError("raised by the kit"), asyncio.CancelledError()),
            group,
        ):
            for manager in (
                location.backend.open(location.settings, Expected()),
                location.backend.scratch(self.settings),
            ):
                with pytest.raises(type(failure)) as caught:
                    async with manager:
                        raise failure
                passed: BaseException = caught.value
                if isinstance(passed, ExceptionGroup):  # `suppress` makes another one of the same
                    assert passed.exceptions == group.exceptions
                else:
                    assert passed is failure


async def _check_closed(
    repository: Repository, token: IdempotencyToken, ids: Sequence[tuple[int, int]]
) -> None:
    """Check that every method is unavailable.

    token -- that of a write that was made
    ids -- pairs of the ids of a pet and an order; they may be stored or not
    """
    for pet_id, order_id in ids:
        for call in calls_of_all_methods(repository, token, Pet(pet_id, "Rex", 7), order_id):
            await check_unavailable(call)


async def check_unavailable(call: AnyCall) -> None:
    """Check that a call raises `UnavailableError`; the message shows its source text."""
    try:
        await call()
    except UnavailableError:
        return
    raise AssertionError(f"no UnavailableError is raised by {getsource(call).strip()}")


def _reads(repository: Repository, pet_id: int, order_id: int) -> Sequence[AnyCall]:
    """Return calls of every method that reads."""
    return (
        lambda: repository.get_pet(pet_id),
        lambda: repository.list_pets(PetQuery(0, 1)),
        lambda: repository.list_pets(PetQuery(MAX_ID, 1, PetStatus.SOLD)),
        lambda: repository.get_order(order_id),
        lambda: repository.list_orders(OrderQuery(0, 1)),
        lambda: repository.list_orders(OrderQuery(MAX_ID, 1, OrderStatus.PLACED)),
        lambda: repository.list_tokens("", 1, NOW),
        lambda: repository.check(),  # noqa: PLW0108 - its text is shown
    )


def calls_of_all_methods(
    repository: Repository, token: IdempotencyToken, pet: Pet, order_id: int
) -> Sequence[AnyCall]:
    """Return calls of every method."""
    order = Order(order_id, pet.id, OrderStatus.CANCELLED, AT)
    return (
        *_reads(repository, pet.id, order_id),
        lambda: repository.create_pet(NewPet("Rex", 7)),
        lambda: repository.create_pet(REX, token),
        lambda: repository.create_pet(REX, replace(token, fingerprint=bytes(32))),
        lambda: repository.place_order(pet.id, AT),
        lambda: repository.place_order(-1, AT),
        lambda: repository.place_order(pet.id, AT, make_token("place", pet.id)),
        lambda: repository.place_order(pet.id, AT, replace(token, fingerprint=bytes(32))),
        lambda: repository.update_order(order_id, OrderStatus.PLACED),
        lambda: repository.update_order(order_id, OrderStatus.COMPLETED),
        lambda: repository.restore([]),
        lambda: repository.restore([pet]),
        lambda: repository.restore([pet, order]),
        lambda: repository.restore([TokenRecord(token.value, token.fingerprint, token.until, 1)]),
    )
