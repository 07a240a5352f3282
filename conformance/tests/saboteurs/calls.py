"""What a backend may do wrong when calls overlap."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from random import uniform

from msgspec.structs import replace

from conformance.tests.correct import Correct, Item, Token
from conformance.tests.saboteurs.registry import breaks, pause
from petstore.contract import (
    MAX_ID,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    Receipt,
    RefusedError,
    UnavailableError,
    WrongStoreError,
)


@breaks("read-after-write")
class JoinsEqualReads(Correct):
    """A read gets the result of an equal one that began earlier; a network holds some up."""

    async def get_order(self, order_id: int) -> Order | None:
        if order_id not in self.kept:
            self.kept[order_id] = asyncio.create_task(self.read(order_id))
        return await asyncio.shield(self.kept[order_id])

    async def read(self, order_id: int) -> Order | None:
        try:
            await self.travel()
            order = await super().get_order(order_id)
            await self.travel()
            return order
        finally:
            del self.kept[order_id]

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        await self.travel()
        order = await super().update_order(order_id, status)
        await self.travel()
        return order

    async def travel(self) -> None:
        await asyncio.sleep(uniform(0.001, 0.002))  # noqa: S311 - a delay


@breaks("read-after-write")
class JoinsReadsOfTheSameTurn(Correct):
    """Nothing is held up: the other read has its result, but has not returned yet."""

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        if query not in self.kept:
            self.kept[query] = asyncio.create_task(self.read(query))
            self.kept[query].add_done_callback(lambda _: self.kept.pop(query))
        return [*await asyncio.shield(self.kept[query])]

    async def read(self, query: OrderQuery) -> list[Order]:
        await asyncio.sleep(0)
        page = await super().list_orders(query)
        await asyncio.sleep(0)
        return page


@breaks("read-after-write")
class AnswersBeforeTheCommit(Correct):
    """An order is refused because of another of its group, which is not yet committed."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        if token is None and pet_id in self.noted:
            raise ConflictError("it has just been ordered")
        if pet_id in self.data.pets:
            self.noted.add(pet_id)
        try:
            await pause()
            return await super().place_order(pet_id, at, token)
        finally:
            self.noted.discard(pet_id)

    async def get_pet(self, pet_id: int) -> Pet | None:
        while pet_id in self.noted:  # only another handle reads what was before
            await pause()
        return await super().get_pet(pet_id)


@breaks("token-reused")
class JoinsWritesWithOneToken(Correct):
    """A write gets the receipt of one in flight that has its token, whatever that stores."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if token is None:
            return await super().create_pet(new)
        if token.value in self.kept:
            receipt: Receipt = await asyncio.shield(self.kept[token.value])
            return replace(receipt, replayed=True)
        writing = asyncio.ensure_future(super().create_pet(new, token))
        writing.add_done_callback(lambda _: self.kept.pop(token.value))
        self.kept[token.value] = writing
        return await asyncio.shield(writing)


@breaks("page-overlap")
class DropsWhatMatchesNoMore(Correct):
    """Looks at the orders of a page again, and returns fewer instead of others that match."""

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        page = await super().list_orders(query)
        await pause()
        orders = [self.data.orders[order.id] for order in page]
        return [order for order in orders if query.status in (None, order.status)]


@breaks("overlapping-calls")
class OrdersOfATurnFailTogether(Correct):
    """Orders that are placed in one turn are one transaction, which an absent pet ends."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.require_open()
        group = self.noted
        group.add(pet_id)
        await asyncio.sleep(0)
        self.noted = set()
        if not self.find(token) and not self.data.pets.keys() >= group:
            raise NotFoundError("no such pet")
        return await super().place_order(pet_id, at, token)


@breaks("restore-exact")
class ListsRestoredOrdersLater(Correct):
    """An order that is restored gets into its list in a second step."""

    async def restore(self, items: Sequence[Item]) -> None:
        for item in items:
            fresh = isinstance(item, Order) and item.id not in self.data.orders
            await super().restore([item])
            unlisted = self.data.extra.setdefault("unlisted", set())
            if fresh:
                unlisted.add(item.id)
                await asyncio.sleep(0)
                unlisted.discard(item.id)

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        unlisted = self.data.extra.get("unlisted", set())
        orders = await super().list_orders(replace(query, count=MAX_ID))
        return [order for order in orders if order.id not in unlisted][: query.count]


@breaks("order-exact")
class PairsOrdersWithTimes(Correct):
    """Orders that are placed in one turn are inserted at once; a refused one shifts the times."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        times: list[datetime] = self.kept.setdefault("times", [])
        times.append(at)
        await asyncio.sleep(0)
        self.kept.pop("times", None)
        if pet_id in self.data.pets:
            at = times.pop(0)
        return await super().place_order(pet_id, at, token)


@breaks("overlapping-calls")
class RollsBackOtherWrites(Correct):
    """All calls use one connection: a refused write rolls back what another has not committed."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        receipt = await super().create_pet(new, token)
        self.noted.add(receipt.id)
        await asyncio.sleep(0)
        self.noted.clear()
        return receipt

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        try:
            return await super().update_order(order_id, status)
        except RefusedError:
            for pet_id in self.noted:
                self.data.pets.pop(pet_id, None)
            raise


@breaks("overlapping-calls")
class PairsIdsWithRows(Correct):
    """Pets that are read together are fetched at once; an id without a row shifts the others."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        self.require_open()
        together = self.noted
        together.add(pet_id)
        await asyncio.sleep(0)
        self.noted = set()
        ids = sorted(together)
        rows = [self.data.pets[id_] for id_ in ids if id_ in self.data.pets]
        return dict(zip(ids, rows, strict=False)).get(pet_id)


@breaks("healthy")
class LetsFiveHundredWait(Correct):
    """Its queue of writes is bounded by less than a service has in flight."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if len(self.noted) >= 500:
            raise UnavailableError("too many calls wait")
        self.noted.add(waiting := object())
        await asyncio.sleep(0)
        self.noted.remove(waiting)
        return await super().create_pet(new, token)


@breaks("healthy")
class GivesUpOnDeadlocks(Correct):
    """Two orders of a pet that overlap lock each other out; the server ends one of them."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        locked = self.data.extra.setdefault("locked", set())
        if pet_id in locked:
            raise UnavailableError("deadlock detected")
        locked.add(pet_id)
        try:
            return await super().place_order(pet_id, at, token)
        finally:
            locked.discard(pet_id)


@breaks("healthy")
class WaitsBrieflyForTheLock(Correct):
    """The file is locked by a writer; another handle waits for some turns, and no longer."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        lock: set[Correct] = self.data.extra.setdefault("writers", set())
        for _ in range(3):
            if not lock - {self}:
                break
            await asyncio.sleep(0)
        else:
            raise UnavailableError("database is locked")
        lock.add(self)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return await super().create_pet(new, token)
        finally:
            lock.discard(self)


@breaks("healthy")
class NotesBeforeItWrites(Correct):
    """Another process takes the store for an older copy meanwhile. No other has notes."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if self.notes:
            self.notes.write(b"%d" % (len(self.data.pets) + 1))
            await pause()
        return await super().create_pet(new, token)

    async def check(self) -> None:
        await super().check()
        notes = self.notes.read() if self.notes else []
        if len(self.data.pets) < max(map(int, notes), default=0):
            raise WrongStoreError("the store is an older copy")


@breaks("read-after-write")
class ReadsTheArchiveFirst(Correct):
    """An order that is completed between two queries is in neither the archive nor the rest."""

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        before = await super().list_orders(replace(query, count=MAX_ID))
        await pause()
        after = await super().list_orders(replace(query, count=MAX_ID))
        archived = {order.id for order in before if order.status is OrderStatus.COMPLETED}
        missed = {o.id for o in after if o.status is OrderStatus.COMPLETED} - archived
        return [order for order in after if order.id not in missed][: query.count]
