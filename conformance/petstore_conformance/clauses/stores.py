"""Clauses of the identity of a store: which one is open, and which one may be made."""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from glob import escape, glob
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from petstore.contract import (
    Access,
    ChangeNeededError,
    Expected,
    OrderStatus,
    StorageError,
    UnavailableError,
    WrongStoreError,
)
from petstore_conformance.clauses.locations import call_all, check_unavailable
from petstore_conformance.clauses.methods import give
from petstore_conformance.clauses.orders import add_pet, check_agreement, place_at, place_orders
from petstore_conformance.clauses.records import read_records
from petstore_conformance.clauses.restore import pet_and_order
from petstore_conformance.harness.effort import sample, yield_to_others
from petstore_conformance.harness.kit import Kit, Location, location_clause
from petstore_conformance.harness.served import open_new
from petstore_conformance.model.calls import cancel, watch
from petstore_conformance.model.reads import read_all
from petstore_conformance.model.values import REX, TIMES, make_token

ONLY_OPEN = Expected(access=Access.WRITE)


def existing(settings: Any, other: Any = None) -> set[str]:
    """Return the paths that settings name, their folders and those beside, if they exist.

    And what is in a folder that other settings do not name: it is no other location's.
    """
    values, others = ([*map(str, astuple(each))] for each in (settings, other or settings))
    beside = [f"{escape(value)}[!0-9a-z]*" for value in values if value]
    own = {*values, *map(os.path.dirname, values)} - {"", *others, *map(os.path.dirname, others)}
    beside += (f"{escape(folder)}/*" for folder in own)
    paths = (*values, *map(os.path.dirname, values), *chain.from_iterable(map(glob, beside)))
    return {path for path in paths if os.path.exists(path)}  # noqa: PTH110 - any text


@contextmanager
def replaced(lost: Any, other: Any) -> Iterator[bool]:
    """Put the files that settings name in the place of those of others; put them back at the end.

    Yields whether there are any: a field of both settings names a file that only one of them has.
    """
    moves = list[tuple[Path, Path]]()
    for name in lost.__struct_fields__:
        place, file = (Path(str(getattr(settings, name))) for settings in (lost, other))
        if place != file and {str(place), str(file)} <= existing(lost) | existing(other):
            moves += [(place, place.with_name(f"aside-{place.name}")), (file, place)]
    with ExitStack() as putting_back:
        for source, target in moves:
            _move(source, target)
            putting_back.callback(_move, target, source)
        yield bool(moves)


def _move(source: Path, target: Path) -> None:
    """Rename a file and those beside it whose names only have another end, such as a log."""
    for file in source.parent.glob(f"{escape(source.name)}*"):
        end = file.name.removeprefix(source.name)
        if not end[:1].isalnum():  # it may be a number of several digits
            place = target.with_name(target.name + end)
            shutil.rmtree(place, ignore_errors=True)  # a folder replaces only an empty one
            file.rename(place)


async def check_refused(location: Location, expected: Expected, error: type[StorageError]) -> None:
    """Check that a location cannot be opened, because of what is expected there."""
    with pytest.raises(error):
        async with location.open(expected):
            pass


class StoreClauses(Kit):
    """Clauses of `Repository.store`, `Repository.check` and `Expected`."""

    @location_clause("store-identity")
    async def test_all_handles_of_a_store_have_its_identity(self, location: Location) -> None:
        """The identity is made when the store is opened, or is that of the server, or a time."""
        backend = location.backend
        async with location.open() as one, location.new() as other, other.open() as two:
            identity: Any = one.store
            assert type(identity) is str
            assert re.fullmatch("[ -~]{1,64}", identity)
            for repository in (one, two):
                await repository.check()
                await repository.restore(pet_and_order(7))
                await place_orders(repository)
                await repository.check()
            stored: list[Any] = [await read_all(one), await read_records(one, 9)]
            if backend.shared:
                async with location.open(Expected(store=identity)) as again:
                    assert again.store == identity
                    await again.check()
            assert one.store == identity
        async with AsyncExitStack() as stack:  # stores that are made at the same time
            news = (open_new(backend, self.settings, Expected()) for _ in range(5))
            made = await asyncio.gather(*map(stack.enter_async_context, news))
            identities = {repository.store for repository in made}
        for _ in range(3):  # one after the other: a file may take the place of a removed one
            async with open_new(backend, self.settings, Expected()) as repository:
                identities.add(repository.store)
        assert len(identities) == 8, "two have one identity"
        if backend.shared:  # one of several that open a location at once, as workers do, makes it
            async with location.new() as new, AsyncExitStack() as stack:
                opening = (stack.enter_async_context(new.open()) for _ in range(5))
                handles = await asyncio.gather(*opening)
                for handle in handles:
                    await handle.check()
                async with new.open() as later:
                    assert {handle.store for handle in handles} == {later.store}
        if backend.durable:
            for expected in (Expected(store=identity), ONLY_OPEN, Expected(access=Access.READ)):
                async with location.open(expected) as again:
                    assert again.store == identity
                    reads = read_all(again), read_records(again, 9), again.check()
                    assert [*await asyncio.gather(*reads)] == [*stored, None]
            async with location.new() as empty:
                async with empty.open() as repository:
                    kept = repository.store
                async with empty.open(Expected(store=kept)) as again:
                    assert again.store == kept, "an empty store is not kept"

    @location_clause("store-gone", needs="durable")
    async def test_a_store_that_is_gone_is_not_served_and_not_made_again(
        self, location: Location
    ) -> None:
        """Calls find nothing where the store was, or the connection makes the store anew."""
        async with AsyncExitStack() as stack:
            removed = await stack.enter_async_context(AsyncExitStack())
            lost = await removed.enter_async_context(location.new())
            opened = await stack.enter_async_context(lost.open_several(2))
            given = await give(opened[0], 0)
            for repository in opened:  # it may cache what it reads
                await call_all(repository, given)
            await removed.aclose()
            left = existing(lost.settings)
            for repository in opened:
                for _ in range(2):
                    with pytest.raises(UnavailableError):
                        await repository.check()
                    await check_unavailable(repository, given)
            await self._check_absent(lost, opened[0].store, left)
        await self._check_absent(lost, opened[0].store, left)
        async with location.open() as repository:  # another one is not affected
            await repository.check()
        await self._put_another_in_its_place(location)

    async def _put_another_in_its_place(self, location: Location) -> None:
        """Put the files of another store in the place of those of an open one, if it has any."""
        async with location.new() as lost, location.new() as other:
            async with other.open() as repository:
                await place_orders(repository)
                stored, identity = await read_all(repository), repository.store
            async with lost.open() as repository:
                given = await give(repository, 0)
                with replaced(lost.settings, other.settings) as is_replaced:
                    if not is_replaced:
                        return
                    with pytest.raises(UnavailableError) as raised:
                        await repository.check()
                    await check_unavailable(repository, given)
                    with suppress(StorageError):  # without its files, its place may be gone
                        async with other.open() as new:
                            assert new.store != identity, "a new store has an old one's identity"
                if raised.type is WrongStoreError:  # its own store is back, but others were told
                    await check_unavailable(repository, given)
            async with other.open() as repository:
                assert await read_all(repository) == stored, "another store was written to"

    async def _check_absent(self, location: Location, identity: str, left: set[str]) -> None:
        """Check that there is no store at a location, nor more than when it was removed."""
        for access in Access:
            await check_refused(location, Expected(store=identity, access=access), UnavailableError)
        await check_refused(location, ONLY_OPEN, StorageError)  # the location may be gone, too
        assert existing(location.settings) <= left, "a file or folder was created"

    @location_clause("store-expected")
    async def test_only_the_expected_store_is_opened(self, location: Location) -> None:
        """Another store is opened, or one is made where the expected one is missing."""
        backend = location.backend
        expect = partial(Expected, snapshot=backend.snapshots)
        async with location.open() as repository:
            await place_orders(repository, 3)
            stored, identity = await read_all(repository), repository.store
            others = {*map(identity.__add__, "x "), "x", identity[:-1] + "~", identity.swapcase()}
            others -= {identity}
            if backend.shared or not backend.durable:
                for other, access in product(others, Access):
                    expected = Expected(store=other, access=access)
                    await check_refused(location, expected, WrongStoreError)
            assert await read_all(repository) == stored
        async with location.new() as empty:
            look = partial(existing, empty.settings, location.settings)
            before = look()
            for other, access in product((*others, identity), Access):
                await check_refused(empty, expect(store=other, access=access), WrongStoreError)
            assert look() == before, "a file or folder was created"
            if backend.durable:
                await check_refused(empty, ONLY_OPEN, ChangeNeededError)
        if backend.durable:
            for other, access in product(others, Access):
                await check_refused(location, expect(store=other, access=access), WrongStoreError)
            async with location.open(Expected(store=identity)) as again:
                assert await read_all(again) == stored

    @location_clause("snapshot", needs="snapshots")
    async def test_a_snapshot_shows_one_moment(self, location: Location) -> None:
        """Some reads show what was written later, or it begins with the first read."""
        async with AsyncExitStack() as stack:
            writing = await stack.enter_async_context(AsyncExitStack())
            writer = await writing.enter_async_context(location.open())
            orders = [await place_at(writer, at) for at in TIMES[:3]]
            await writer.create_pet(REX, make_token("before", REX))
            before = await read_all(writer), await read_records(writer, 1)
            snapshot = Expected(store=writer.store, access=Access.READ, snapshot=True)
            opened = await stack.enter_async_context(location.open(snapshot))
            assert opened.store == writer.store
            for iterations, order, access in zip((1, 3, 9), orders, Access, strict=True):
                await writer.create_pet(REX, make_token(f"after {order.id}", REX))
                await writer.update_order(order.id, OrderStatus.COMPLETED)
                async with location.open(replace(snapshot, access=access)) as again:
                    after = await read_all(writer), await read_records(writer, 1)
                    await writer.restore(pet_and_order(order.id + 100))
                    assert (await read_all(again), await read_records(again, 1)) == after
                reading = asyncio.create_task(read_all(opened))
                await yield_to_others(iterations)
                await cancel([reading])
                await opened.check()  # nothing is wrong with the store
                assert await asyncio.gather(*map(read_all, [opened] * 3)) == [before[0]] * 3
                assert await read_records(opened, 1) == before[1]
                await check_agreement(opened)
                assert await opened.get_pet(order.pet_id) in before[0].pets
                assert await opened.get_order(order.id) == order

            async def take_snapshots() -> None:
                for _ in await sample(writer, range(4), reads=True):
                    async with location.open(snapshot) as taken:
                        shown = await asyncio.gather(*map(read_all, [taken] * 3))
                        assert shown == [shown[0]] * 3, "its reads show several moments"
                        await check_agreement(taken)

            await watch(take_snapshots, [partial(place_orders, writer)] * 2)
            await writing.aclose()
            assert await read_all(opened) == before[0], "it ends with the repository that writes"

    @location_clause("store-kept")
    async def test_a_store_is_only_created_with_leave_to_do_so(self, location: Location) -> None:
        """The store is created all the same, or half of it, before the error is raised."""
        async with location.new() as empty:
            look = partial(existing, empty.settings, location.settings)
            before, only_read = look(), Expected(access=Access.READ)
            snapshot = replace(only_read, snapshot=location.backend.snapshots)
            for expected in (only_read, ONLY_OPEN, snapshot):
                with suppress(ChangeNeededError):
                    async with empty.open(expected) as repository:
                        assert not location.backend.durable, "a store was created without leave"
                        await (add_pet(repository) if expected is ONLY_OPEN else repository.check())
                assert look() == before, "a file was created without leave"
            async with empty.open():
                pass
            if location.backend.durable:
                async with empty.open(ONLY_OPEN) as repository:  # nothing is in it, but it is there
                    await repository.check()
            async with empty.open() as repository:
                await place_orders(repository)
                stored = await read_all(repository)
                assert len(stored.pets) == len(stored.orders) == 1
            if location.backend.durable:
                async with empty.open(ONLY_OPEN) as repository:
                    assert await read_all(repository) == stored
                    await place_orders(repository)
