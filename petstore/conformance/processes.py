"""Clauses of places that several processes open, and of processes that are killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace

from petstore.conformance.calls import kind
from petstore.conformance.child import Child, child
from petstore.conformance.kit import Kit, Place, place_clause
from petstore.conformance.orders import FINAL_STATUSES, add_pet, check_agreement
from petstore.conformance.values import AT, REX, TIMES, make_token
from petstore.contract import (
    Backend,
    ConflictError,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    UnavailableError,
)


@asynccontextmanager
async def _open_new(backend: Backend, settings: Any) -> AsyncIterator[Repository]:
    async with backend.scratch(settings) as scratch, backend.open(scratch) as repository:
        yield repository


class ProcessClauses(Kit):
    """Clauses of `Backend` for which a second process is started."""

    @place_clause("shared-processes", needs="shared")
    async def test_two_processes_share_a_place(self, place: Place) -> None:
        """A lock, counter or cache is local to a process, or two get the same scratch place."""
        async with place.open() as one, child(place) as other:
            openings: tuple[Repository, Repository] = one, other
            creates = [r.create_pet(NewPet(f"{n}", n)) for n in range(40) for r in openings]
            receipts = await asyncio.gather(*creates)
            assert len({receipt.id for receipt in receipts}) == 80
            for opening in openings:
                listed = await opening.list_pets(0, 999, None)
                assert {pet.id for pet in listed} == {receipt.id for receipt in receipts}
            for number in range(20):
                writer, reader = openings if number % 2 else openings[::-1]
                pet_id = await add_pet(writer)
                pet = Pet(pet_id, "Rex", 7, PetStatus.AVAILABLE)
                assert await reader.get_pet(pet_id) == pet
                assert pet in await reader.list_pets(0, 999, PetStatus.AVAILABLE)
                order = await self._sell_once(openings, pet_id, number)
                for opening in openings:
                    assert await opening.get_order(order.id) == order
                    assert order in await opening.list_orders(0, 999, order.status)
            await check_agreement(other)
        await self._make_new_places(place)

    async def _make_new_places(self, place: Place) -> None:
        """Let two processes make their first new place at once: each must have its own."""
        backend = replace(place.backend, open=partial(_open_new, place.backend))
        new = Place(backend, self.settings)
        async with child(new, closes=True) as one, child(new, closes=True) as other:
            for opening in (one, other):
                assert list(await opening.list_pets(0, 9, None)) == []
                await add_pet(opening)
            assert len(await one.list_pets(0, 9, None)) == 1

    async def _sell_once(
        self, openings: tuple[Repository, Repository], pet_id: int, number: int
    ) -> Order:
        """Order a pet through both, with a token and without; then complete and cancel at once."""
        token = make_token(f"place {number}", pet_id)
        placings = [opening.place_order(pet_id, AT, token) for opening in openings * 2]
        placings += [opening.place_order(pet_id, AT) for opening in openings * 2]
        results = await asyncio.gather(*placings, return_exceptions=True)
        receipts = [result for result in results if isinstance(result, Receipt)]
        assert len([receipt for receipt in receipts if not receipt.replayed]) == 1, results
        assert {kind(result) for result in results} == {Receipt, ConflictError}, results
        assert len({receipt.id for receipt in receipts}) == 1
        updates = [
            opening.update_order(receipts[0].id, status)
            for opening, status in zip(openings, FINAL_STATUSES, strict=True)
        ]
        updated = await asyncio.gather(*updates, return_exceptions=True)
        (order,) = [result for result in updated if isinstance(result, Order)]
        assert {kind(result) for result in updated} == {Order, ConflictError}, updated
        return order

    @place_clause("durable-killed", needs="durable")
    async def test_what_was_acknowledged_survives_a_kill(self, place: Place) -> None:
        """What was written is saved on closing, or by a timer."""
        pets, orders = dict[int, Pet](), dict[int, Order]()
        for turn in range(3):
            async with child(place) as killed:
                receipts = await self._write_until_killed(killed, turn, pets, orders)
            async with place.open() as repository:
                stored = {pet.id: pet for pet in await repository.list_pets(0, 9999, None)}
                placed = {order.id: order for order in await repository.list_orders(0, 9999, None)}
                assert pets.items() <= stored.items()
                assert orders.items() <= placed.items()
                for name, receipt in receipts.items():
                    again = await repository.create_pet(REX, make_token(name, REX))
                    assert again == Receipt(receipt.id, replayed=True)
                assert await add_pet(repository) not in stored, "an id is assigned again"
                await check_agreement(repository)

    async def _write_until_killed(
        self, killed: Child, turn: int, pets: dict[int, Pet], orders: dict[int, Order]
    ) -> dict[str, Receipt]:
        """Write, note what must be stored, and kill while more is written; return receipts."""
        receipts = {}
        for number in range(6):
            name = f"{turn} {number}"
            receipts[name] = receipt = await killed.create_pet(REX, make_token(name, REX))
            order_id = (await killed.place_order(receipt.id, TIMES[number])).id
            orders[order_id] = await killed.update_order(order_id, list(OrderStatus)[number % 3])
            pet = await killed.get_pet(receipt.id)
            assert pet is not None
            pets[pet.id] = pet
        highest = max(*pets, *orders)
        if turn == 1:
            restored = Pet(highest + 100, "restored", turn, PetStatus.SOLD)
            await killed.restore([restored])
            pets[restored.id] = restored
        more = [asyncio.create_task(killed.create_pet(NewPet("last", n))) for n in range(20)]
        await asyncio.wait(more, return_when=asyncio.FIRST_COMPLETED)
        await killed.kill()
        for number, result in enumerate(await asyncio.gather(*more, return_exceptions=True)):
            if isinstance(result, Receipt):
                pets[result.id] = Pet(result.id, "last", number)
            else:
                assert isinstance(result, UnavailableError), result
        return receipts
