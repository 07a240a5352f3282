"""Clauses of locations that several processes open, and of processes that are killed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    Backend,
    Expected,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    Repository,
    UnavailableError,
)
from petstore_conformance.clauses.orders import add_pet, check_agreement
from petstore_conformance.clauses.restore import pet_and_order
from petstore_conformance.clauses.sharing import sell_once, write_once
from petstore_conformance.harness.child import Child, child
from petstore_conformance.harness.effort import current
from petstore_conformance.harness.kit import Kit, Location, location_clause
from petstore_conformance.model.calls import every_filter, measure, read_all, read_page
from petstore_conformance.model.values import AT, REX, TIMES, make_token

KILLS: Final = 5
"""About how many processes are killed within their writes, if there is time for them."""

KILLING_SECONDS = 20
"""After this time no more of them are started."""

MEETINGS: Final = 20
"""How often two processes write the same at once."""

Read = Callable[[Repository], Awaitable[Any]]


@asynccontextmanager
async def _open_new(
    backend: Backend, settings: Any, expected: Expected
) -> AsyncIterator[Repository]:
    async with (
        backend.scratch(settings) as scratch,
        backend.open(scratch, expected) as repository,
    ):
        yield repository


async def _change(repository: Repository, read: Read, before: Any) -> Any:
    """Read until there is something else than before, and return that."""
    while (found := await read(repository)) == before:
        pass
    return found


class ProcessClauses(Kit):
    """Clauses of `Backend` for which a second process is started."""

    @location_clause("shared-processes", needs="shared")
    async def test_two_processes_share_a_location(self, location: Location) -> None:
        """A lock, counter, cache or time is local to a process, or two share a scratch location."""
        async with location.open() as one, child(location) as other:
            handles: tuple[Repository, Repository] = one, other
            assert other.store == one.store, "each process has an identity of its own"
            creates = [h.create_pet(NewPet(f"{n}", n)) for n in range(40) for h in handles]
            ids = {receipt.id for receipt in await asyncio.gather(*creates)}
            assert len(ids) == len(creates), "an id is assigned twice"
            for handle in handles:
                assert {pet.id for pet in await handle.list_pets(PetQuery(0, 999))} == ids
            length, _ = await measure(other.create_pet(REX))
            for number in range(MEETINGS):
                writer, reader = handles if number % 2 else handles[::-1]
                # The process that is farther away begins by up to the length of a call earlier.
                delay = length.seconds * number / MEETINGS
                pet_id = await write_once((other, one), REX, f"create {number}", delay)
                pet = Pet(pet_id, "Rex", 7, PetStatus.AVAILABLE)
                assert await reader.get_pet(pet_id) == pet
                assert pet in await reader.list_pets(PetQuery(0, 999, PetStatus.AVAILABLE))
                order = await sell_once(writer, reader, pet_id, begin_with_token=number % 4 < 2)
                assert order.placed_at == AT, "one process stores its local time"
                for handle in handles:
                    assert await handle.get_order(order.id) == order
                    assert order in await handle.list_orders(OrderQuery(0, 999, order.status))
            await check_agreement(other)
            for reader, writer in (handles, handles[::-1]):
                await self._only_read(reader, writer)
        await self._make_new_locations(location)

    async def _only_read(self, reader: Repository, writer: Repository) -> None:
        """Read all that may change through one process, while only the other one writes."""
        pet_ids, order_ids = set[int](), set[int]()

        async def views(repository: Repository) -> list[Any]:
            # The ids that come next, too: it may remember that they were not there.
            near = {id_ + more for id_ in (*pet_ids, *order_ids) for more in range(2)} | {1}
            near = {id_ for id_ in near if id_ <= MAX_ID}
            reads: list[Coroutine[Any, Any, Any]] = [repository.get_pet(id_) for id_ in near]
            reads += [repository.get_order(id_) for id_ in near]
            for queries in (every_filter(0, 999), every_filter(max(0, max(near) - 3), 2)):
                reads += [read_page(repository, query) for query in queries]
            return await asyncio.gather(*reads)

        async def create() -> None:
            pet_ids.add(await add_pet(writer))

        async def place() -> None:
            token = make_token(f"{len(order_ids)} of {max(pet_ids)}", max(pet_ids))
            order_ids.add((await writer.place_order(max(pet_ids), AT, token)).id)

        async def restore() -> None:
            # Ids of two processes need not be in order: the other may have assigned the next one.
            free = (await read_all(writer)).free_ids(max(*pet_ids, *order_ids))
            await writer.restore(pet_and_order(next(free)))

        for write in (
            create,
            place,
            lambda: writer.update_order(max(order_ids), OrderStatus.CANCELLED),
            place,
            lambda: writer.update_order(max(order_ids), OrderStatus.COMPLETED),
            restore,
            create,
        ):
            before = await views(reader)
            await write()
            after = await views(reader)
            assert after == await views(writer), "it does not see what only the other has written"
            assert after != before

    async def _make_new_locations(self, location: Location) -> None:
        """Let two processes make their first new location at once: each must have its own."""
        backend = replace(location.backend, open=partial(_open_new, location.backend))
        new = Location(backend, self.settings)
        async with child(new, closes=True) as one, child(new, closes=True) as other:
            for handle in (one, other):
                assert await handle.list_pets(PetQuery(0, 9)) == []
                await add_pet(handle)
            assert len(await one.list_pets(PetQuery(0, 9))) == 1

    @location_clause("durable-killed", needs="durable")
    async def test_what_was_acknowledged_survives_a_kill(self, location: Location) -> None:
        """Writes are saved on closing, by a timer, or in several steps."""
        pets, orders = dict[int, Pet](), dict[int, Order]()
        for number in range(3):
            async with child(location, last_write=0) as killed:
                await self._sell(killed, f"sold {number}")
                writes = range(1, killed.writes + 1)
                receipts = await self._write_until_killed(killed, number, pets, orders)
            async with location.open() as repository:
                stored = {pet.id: pet for pet in await repository.list_pets(PetQuery(0, 9999))}
                placed = {
                    order.id: order for order in await repository.list_orders(OrderQuery(0, 9999))
                }
                assert pets.items() <= stored.items()
                assert orders.items() <= placed.items()
                for name, receipt in receipts.items():
                    again = await repository.create_pet(REX, make_token(name, REX))
                    assert again == Receipt(receipt.id, replayed=True)
                assert await add_pet(repository) not in stored, "an id is assigned again"
                await check_agreement(repository)
        await self._kill_within_writes(location, writes)
        await self._kill_while_it_reads(location)

    async def _kill_within_writes(self, location: Location, writes: range) -> None:
        """Kill a process after one of the writes to a file or a server that its calls make.

        writes -- those of `_sell`, counted from 1
        """
        time = asyncio.get_running_loop().time
        end = time() + KILLING_SECONDS
        step = len(writes) // KILLS
        # A step that is not even, so that other steps of each call come last.
        chosen = writes[:: step if step % 2 else step + 1]
        for number, last in enumerate(chosen):
            if time() > end:
                current().note(number, len(chosen))
                return
            name = f"killed after write {last}"
            async with child(location, last_write=last) as killed:
                with suppress(UnavailableError):
                    await self._sell(killed, name)
            async with location.open() as repository:
                await check_agreement(repository)
                await self._sell(repository, name)  # the same writes, with the same tokens
                stored = await read_all(repository)
                pets = [pet for pet in stored.pets if pet.name == name]
                assert [pet.status for pet in pets] == [PetStatus.SOLD], "it is stored twice"
                orders = [order for order in stored.orders if order.pet_id == pets[0].id]
                assert [order.status for order in orders] == [OrderStatus.COMPLETED]

    async def _kill_while_it_reads(self, location: Location) -> None:
        """Kill a process as soon as a call shows what it is writing: that must be stored."""
        reads: tuple[Read, ...] = (
            lambda repository: repository.get_pet(pet_id),
            lambda repository: repository.list_pets(PetQuery(0, 9999)),
            lambda repository: repository.list_pets(PetQuery(0, 9999, PetStatus.PENDING)),
            lambda repository: repository.list_orders(OrderQuery(0, 9999)),
            lambda repository: repository.list_orders(OrderQuery(0, 9999, OrderStatus.PLACED)),
        )
        for name in ("first", "second"):
            async with child(location) as killed:
                pet_id = await add_pet(killed)
                token = make_token(name, pet_id)
                changes = [_change(killed, read, await read(killed)) for read in reads]
                orders = [killed.place_order(pet_id, AT, token) for _ in range(2)]
                tasks = [asyncio.create_task(call) for call in (*orders, *changes)]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                await killed.kill()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            for error in found:
                if isinstance(error, Exception) and not isinstance(error, UnavailableError):
                    raise error
            async with location.open() as repository:
                after = [await read(repository) for read in reads]
                again = await repository.place_order(pet_id, AT, token)
            shown = any(not isinstance(result, Exception) for result in found)
            assert again.replayed or not shown, "it was shown, and is gone"
            for before, stored in zip(found[2:], after, strict=True):
                assert before == stored or isinstance(before, UnavailableError)

    async def _sell(self, repository: Repository, name: str) -> None:
        """Create a pet, order it and complete the order, with tokens made from its name."""
        new = NewPet(name, 7, PetStatus.AVAILABLE)
        pet_id = (await repository.create_pet(new, make_token(name, new))).id
        token = make_token(f"order of {name}", pet_id)
        placed = await repository.place_order(pet_id, AT, token)
        await repository.update_order(placed.id, OrderStatus.COMPLETED)

    async def _write_until_killed(
        self, killed: Child, attempt: int, pets: dict[int, Pet], orders: dict[int, Order]
    ) -> dict[str, Receipt]:
        """Write, note what must be stored, and kill while more is written; return receipts."""
        receipts = {}
        for number in range(6):
            name = f"{attempt} {number}"
            receipts[name] = receipt = await killed.create_pet(REX, make_token(name, REX))
            order_id = (await killed.place_order(receipt.id, TIMES[number])).id
            order = Order(order_id, receipt.id, list(OrderStatus)[number % 3], TIMES[number])
            assert await killed.update_order(order_id, order.status) == order
            orders[order_id] = order
            pet = await killed.get_pet(receipt.id)
            assert pet is not None
            pets[pet.id] = pet
        highest = max(*pets, *orders)
        if attempt == 1:
            restored = Pet(highest + 100, "restored", attempt, PetStatus.SOLD)
            await killed.restore([restored])
            pets[restored.id] = restored
        last = range(1 if attempt == 2 else 20)  # one that nothing follows, or others in flight
        more = [asyncio.create_task(killed.create_pet(NewPet("last", n))) for n in last]
        await asyncio.wait(more, return_when=asyncio.FIRST_COMPLETED)
        await killed.kill()
        for number, result in enumerate(await asyncio.gather(*more, return_exceptions=True)):
            if isinstance(result, Receipt):
                pets[result.id] = Pet(result.id, "last", number)
            else:
                assert isinstance(result, UnavailableError), result
        return receipts
