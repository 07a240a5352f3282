"""What a backend may do wrong when a location is opened again."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from time import time
from typing import Any

from msgspec.structs import replace
from petstore_conformance.model.model import matching

from conformance.tests.correct import Correct, Item, Store, Token
from conformance.tests.saboteurs.registry import breaks, pause
from petstore.contract import (
    ConflictError,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    RefusedError,
    UnavailableError,
)


def reopening(clause: str, name: str, change: Callable[[Store], Any]) -> None:
    """Register a saboteur that changes the store when it closes it."""

    def close(self: Correct) -> None:
        Correct.close(self)
        change(self.data)

    breaks(clause)(type(name, (Correct,), {"close": close}))


@breaks("durable-orders")
class LogsBeforeItChecks(Correct):
    """Its log also has the orders that lost a race for a pet; it is read when it is reopened."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        before = self.data.pets.get(pet_id)
        try:
            return await super().place_order(pet_id, at, token)
        except ConflictError:
            if before is not self.data.pets[pet_id]:
                self.noted.add(Order(self.next_order_id(), pet_id, OrderStatus.PLACED, at))
            raise

    def close(self) -> None:
        super().close()
        self.data.orders |= {order.id: order for order in self.noted}


@breaks("durable-pets")
class ReopensWithoutItsIndex(Correct):
    """The kit must not take its `KeyError` for the exception that it raises itself."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        if pet_id in self.loaded.pets:
            raise KeyError(pet_id)
        return await super().get_pet(pet_id)


reopening("durable-ids", "RestartsItsCounter", lambda store: vars(store).update(last_id=0))
# It counts on from the number of what is stored, although ids have gaps.
reopening(
    "durable-ids",
    "CountsItsRows",
    lambda store: vars(store).update(last_id=len(store.pets) + len(store.orders)),
)
reopening(
    "durable-pets",
    "LoadsAThousandPets",
    lambda store: [store.pets.pop(id_) for id_ in sorted(store.pets)[1000:]],
)
reopening(
    "durable-orders",
    "LoadsTheEndOfItsLog",
    lambda store: [store.records.pop(value) for value in list(store.records)[:-1000]],
)


@breaks("durable-pets")
class AcknowledgesWhatItDrops(Correct):
    """Writes in flight at the close go into a buffer that is never stored."""

    def close(self) -> None:
        super().close()
        self.data = Store()


@breaks("durable-pets")  # no other writes later what it has told to be unavailable
class WritesLongAfterItWasClosed(Correct):
    """An order in flight is unavailable when it is closed; a task in the background makes it."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.require_open()
        await asyncio.sleep(0)
        if self.open or pet_id not in self.data.pets:
            return await super().place_order(pet_id, at, token)
        asyncio.get_running_loop().call_later(0.25, self.write, pet_id, at)
        raise UnavailableError("closed")

    def write(self, pet_id: int, at: datetime) -> None:
        if self.data.pets[pet_id].status is PetStatus.AVAILABLE:
            self.set_status(pet_id, PetStatus.PENDING)
            order_id = self.next_id()
            self.data.orders[order_id] = Order(order_id, pet_id, OrderStatus.PLACED, at)


@breaks("durable-ids")
class CountsOnFromLiveOrders(Correct):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        live = [o.id for o in store.orders.values() if o.status is not OrderStatus.CANCELLED]
        store.last_id = max([*store.pets, *live], default=0)


@breaks("durable-orders")
class TakesTheNextFingerprint(Correct):
    """A record that was loaded has none, and gets that of the write that comes next."""

    def find(self, token: Token) -> Receipt | None:
        if token and self.loaded.records.pop(token.value, None):
            recorded = self.data.records[token.value]
            self.data.records[token.value] = replace(recorded, fingerprint=token.fingerprint)
        return super().find(token)


@breaks("durable-pets")
class RollsBackWhenCancelled(Correct):
    """Cancelling the block undoes everything since it was opened."""

    def close(self) -> None:
        super().close()
        if isinstance(sys.exc_info()[1], asyncio.CancelledError):
            self.data.pets = self.loaded.pets


@breaks("durable-pets")
class EndsNoRefusedRestore(Correct):
    """The transaction of a refused restore stays open, and closing rolls it back."""

    async def restore(self, items: Sequence[Item]) -> None:
        try:
            await super().restore(items)
        except RefusedError:
            self.kept = dict(self.data.pets)
            raise

    def close(self) -> None:
        super().close()
        self.data.pets = self.kept or self.data.pets


@breaks("durable-orders")
class LoadsStatusesAsText(Correct):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        for order in store.orders.values():
            store.orders[order.id] = replace(order, status=str(order.status))


@breaks("durable-pets")
class LimitsBeforeItMerges(Correct):
    """A page takes as many pets as it needs from the old data; some have changed since."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        loaded = self.loaded.pets
        old = matching([*loaded.values()], query)[: query.count]
        new = [pet for pet in self.matching(query) if loaded.get(pet.id) is not pet]
        merged = {pet.id: pet for pet in (*old, *new)}
        found = [self.data.pets[id_] for id_ in sorted(merged)]
        return [pet for pet in found if query.status in (None, pet.status)][: query.count]


@breaks("durable-ids")
class WritesAfterItWasClosed(Correct):
    """A cancelled write is still made, in another turn, with an id that it has reserved."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        self.require_open()
        return await asyncio.shield(asyncio.ensure_future(self._write(new, token)))

    async def _write(self, new: NewPet, token: Token) -> Receipt:
        async with self.lock:
            if receipt := self.find(token):
                return receipt
            pet_id = self.next_id()
            await pause()
            self.record(token, pet_id)
            self.put(Pet(pet_id, new.name, new.category_id, new.status))
            return Receipt(pet_id)

    def close(self) -> None:
        super().close()
        self.data.last_id = max([*self.data.pets, *self.data.orders], default=0)


class LeavesCancelledUncommitted(Correct):
    """A cancelled write is visible, but the next writer commits it; closing rolls it back."""

    async def commit(self, receipt: Receipt) -> Receipt:
        self.noted.add(receipt.id)
        await asyncio.sleep(0)
        self.require_open()
        self.noted.clear()
        return receipt


@breaks("durable-reads")
class LeavesCancelledPetsUncommitted(LeavesCancelledUncommitted):
    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        return await self.commit(await super().create_pet(new, token))

    def close(self) -> None:
        super().close()
        for pet_id in self.noted:
            self.data.pets.pop(pet_id, None)
            for record in [r for r in self.data.records.values() if r.id == pet_id]:
                del self.data.records[record.value]


@breaks("durable-reads")  # a pet or an order: no other breaks this for orders
class LeavesCancelledOrdersUncommitted(LeavesCancelledUncommitted):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        return await self.commit(await super().place_order(pet_id, at, token))

    def close(self) -> None:
        super().close()
        for order_id in self.noted:
            self.set_status(self.data.orders.pop(order_id).pet_id, PetStatus.AVAILABLE)


@breaks("durable-orders")
class IndexesOnlyNewOrders(Correct):
    """Which orders a pet is in is not known of those that were there when it was opened."""

    def orders_of(self, pet_id: int) -> list[Order]:
        return [o for o in super().orders_of(pet_id) if o.id not in self.loaded.orders]


@breaks("durable-orders")
class CompactsByItsOwnClock(Correct):
    """Writes its log anew once most of it is out of date, without records that it takes for old."""

    def close(self) -> None:
        super().close()
        if len(self.data.orders) > 2000 + len(self.data.pets):
            records = self.data.records.items()
            self.data.records = {key: it for key, it in records if it.until > time()}


@breaks("durable-ids")
class RepeatsWhatItWasWriting(Correct):
    """Makes what is in its log again, although it has been stored; a read empties the log."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        for new in store.extra.pop("log", ()):
            self.put(Pet(self.next_id(), new.name, new.category_id, new.status))

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        receipt = await super().create_pet(new, token)
        if token is None:
            self.noted.add(new)
            await asyncio.sleep(0)  # it may be cancelled here
            self.noted.discard(new)
        return receipt

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.noted.clear()
        return await super().list_pets(query)

    def close(self) -> None:
        super().close()
        self.data.extra["log"] = list(self.noted)


@breaks("restore-sizes")
class StoresTheGivenListLater(Correct):
    """The end of a long list is stored when it is closed, if the list is still the same."""

    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore(items)
        if len(items) > 10_000:
            self.kept[len(self.kept)] = items, items[10_000:]

    def close(self) -> None:
        super().close()
        for items, end in self.kept.values():
            for item in end if not items else ():
                self.data.pets.pop(item.id, None)
