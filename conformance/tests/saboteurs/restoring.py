"""What a backend may do wrong in `restore`, first with any items, then with orders."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from conformance.tests.correct import ALL, Correct, Item, Store, Token
from conformance.tests.saboteurs.registry import breaks, pause
from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    Pet,
    PetQuery,
    Receipt,
    StorageError,
    TokenRecord,
    UnavailableError,
)


@breaks("restore-exact")
class NeedsAnItem(Correct):
    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore([items[0], *items[1:]])


@breaks("restore-exact")
class IndexesStatusesAfterwards(Correct):
    """The index of a restored item is filled once all items are stored."""

    def add(self, item: Pet | Order) -> None:
        super().add(item)
        self.noted.add(item.id)

    def matching(self, query: PetQuery) -> list[Pet]:
        found = super().matching(query)
        return [pet for pet in found if query.status is None or pet.id not in self.noted]

    async def restore(self, items: Sequence[Item]) -> None:
        try:
            await super().restore(items)
        finally:
            self.noted.clear()


@breaks("restore-exact")
class LeavesOutWhatFitsInNoBatch(Correct):
    """Items are sent together until there are two megabytes; a larger one is never sent."""

    def add(self, item: Pet | Order) -> None:
        if isinstance(item, Order) or len(item.name) < 2**21:
            super().add(item)


@breaks("restore-again")
class ChecksThePetBeforeTheStoredOrder(Correct):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if isinstance(item, Order):
            self.check_pet(item)
        super().check_same(item, stored)


@breaks("restore-other")
class ComparesNamesUpToANull(Correct):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if isinstance(item, Pet) and isinstance(stored, Pet):
            item = replace(item, name=item.name.rstrip("\0"))
            stored = replace(stored, name=stored.name.rstrip("\0"))
        super().check_same(item, stored)


@breaks("restore-order")
class RestoresItemsTogether(Correct):
    """Of long lists, ten items are stored at once; a refusal is raised while others still are."""

    async def restore(self, items: Sequence[Item]) -> None:
        async def insert(item: Item) -> None:
            stored = self.data.orders if isinstance(item, Order) else self.data.pets
            absent = isinstance(item, Order) and item.pet_id not in {*self.data.pets, *given}
            if item.id not in stored and not absent:  # those are refused at once
                await pause()
            await Correct.restore(self, [item])

        given = {item.id for item in items if isinstance(item, Pet)}
        size = 10 if len(items) > 100 else 1
        for begin in range(0, len(items), size):
            await asyncio.gather(*(insert(item) for item in items[begin : begin + size]))


@breaks("restore-next")
class CountsOrdersOnly(Correct):
    """Pets and orders have one counter. In most restores, an order has the highest id of all."""

    def raise_counter(self, item: Pet | Order) -> None:
        if isinstance(item, Order):
            super().raise_counter(item)


@breaks("restore-next")
class ReservesIdsForEachConnection(Correct):
    """A restore raises the counter, but not what each connection but the first has reserved."""

    in_flight = 0  # the number of the connection

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        self.in_flight += 1
        try:
            return await super().create_pet(new, token)
        finally:
            self.in_flight -= 1

    def choose_id(self) -> int:
        if self.in_flight < 2:
            return super().choose_id()
        reserved: list[int] = self.kept.setdefault(self.in_flight, [])
        if not reserved:
            first = super().choose_id()
            reserved += range(first, first + 20)
            self.data.last_id = reserved[-1]
        return reserved.pop(0)


@breaks("restore-next")
class AssignsIdsAboveTheMaximum(Correct):
    def next_id(self) -> int:
        self.data.last_id += 1
        return self.data.last_id


@breaks("restore-next")
class FailsWhatIsBeside(Correct):
    """A write for which no id is left fails the replays that are made together with it."""

    def choose_id(self) -> int:
        if self.data.last_id == MAX_ID:
            self.noted.add(len(self.noted))
        return super().choose_id()

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        before = len(self.noted)
        await asyncio.sleep(0)
        if len(self.noted) > before:
            raise StorageError("all ids have been assigned")
        return await super().place_order(pet_id, at, token)


@breaks("restore-next")
class IsUnavailableWithoutAnId(Correct):
    def next_id(self) -> int:
        try:
            return super().next_id()
        except StorageError:
            raise UnavailableError("full") from None


@breaks("restore-sizes")
class LosesAnItemBetweenChunks(Correct):
    """The bounds of its chunks are off by one."""

    async def restore(self, items: Sequence[Item]) -> None:
        for begin in range(0, len(items), 501):
            await super().restore(items[begin : begin + 500])


@breaks("restore-other")
class SkipsWhatItHasSeen(Correct):
    """Skips an item that it has restored before, although the stored one has changed since."""

    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if item not in self.noted:
            super().check_same(item, stored)
        self.noted.add(item)


@breaks("restore-again")
class LooksForTheBatchAtOnce(Correct):
    """Looks up what is stored before it inserts the items of a call."""

    async def restore(self, items: Sequence[Item]) -> None:
        self.before = {*self.data.pets.values(), *self.data.orders.values()}
        await super().restore(items)

    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if stored not in self.before:
            raise ConflictError("duplicate key")
        super().check_same(item, stored)


@breaks("restore-next")
class TakesAnIdBeforeItReplays(Correct):
    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        self.require_open()
        self.next_id()
        return await super().create_pet(new, token)


@breaks("restore-next")
class RecordsIdsIn32Bits(Correct):
    def record(self, token: Token, id_: int) -> None:
        super().record(token, id_ % 2**32)


@breaks("restore-exact")
class CountsBackFromTheFirst(Correct):
    """Finds a pet by its distance from the first one, which may be negative."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        self.require_open()
        if not self.data.pets:
            return None
        first, last = min(self.data.pets), max(self.data.pets)
        return self.data.pets.get(pet_id if pet_id >= first else last + 1 + pet_id - first)


@breaks("restore-sizes")
class UndoesWhatAnOtherRestores(Correct):
    """Opening takes a restore that is going on for one that a crash has ended."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        for pet_id in store.extra.get("restoring", ()):
            store.pets.pop(pet_id, None)

    async def restore(self, items: Sequence[Item]) -> None:
        self.data.extra["restoring"] = [item.id for item in items if isinstance(item, Pet)]
        try:
            await super().restore(items)
        finally:
            self.data.extra.pop("restoring", None)


@breaks("restore-sizes")
class SendsSixteenMebibytesAtMost(Correct):
    """Sends the items of a call at once, and the server takes no more in a request."""

    async def restore(self, items: Sequence[Item]) -> None:
        if sum(len(item.name) for item in items if isinstance(item, Pet)) > 2**24:
            raise StorageError("the request is too large")
        await super().restore(items)


@breaks("restore-next")
class RoundsHighOrderIds(Correct):
    """Ids of orders pass through text with fourteen digits."""

    def next_order_id(self) -> int:
        return min(int(float(f"{super().next_order_id():.14g}")), MAX_ID)


@breaks("restore-again")
class ResumesARestore(Correct):
    """Items before one that is stored already are taken for stored, too."""

    async def restore(self, items: Sequence[Item]) -> None:
        stored = (self.data.pets, self.data.orders)
        for index in reversed(range(len(items))):
            if stored[isinstance(items[index], Order)].get(items[index].id) == items[index]:
                items = items[index + 1 :]
                break
        await super().restore(items)


@breaks("restore-exact")
class RemembersAnOffset(Correct):
    """The end of a page is remembered as an offset, for the page after it."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        begin = {0: 0, **self.kept}.get(query.after)
        if query.status is not None or begin is None:
            return await super().list_pets(query)
        page = self.matching(ALL)[begin : begin + query.count]
        self.kept = {pet.id: begin + len(page) for pet in page[-1:]}
        return page


@breaks("restore-other")
class ReplacesForAMoment(Correct):
    """A refused pet replaces the stored one, until the last part of a long call is rolled back."""

    async def restore(self, items: Sequence[Item]) -> None:
        try:
            await super().restore(items)
        except ConflictError:
            for pet in items if len(items) > 100 else ():
                if isinstance(pet, Pet) and (stored := self.data.pets.get(pet.id, pet)) != pet:
                    self.put(pet)
                    asyncio.get_running_loop().call_soon(self.put, stored)
            raise


@breaks("restore-other")
class RestoresChunksTogether(Correct):
    """A refusal of one chunk is raised while those before it are still being stored."""

    async def restore(self, items: Sequence[Item]) -> None:
        end = next((n for n, item in enumerate(items) if not isinstance(item, Pet)), len(items))
        chunks = [items[begin : min(begin + 1000, end)] for begin in range(0, end, 1000)]
        await asyncio.gather(*(Correct.restore(self, chunk) for chunk in chunks))
        await super().restore(items[end:])


@breaks("restore-order")
class OrderOfAnAbsentPetIsAConflict(Correct):
    def check_pet(self, order: Order) -> None:
        try:
            super().check_pet(order)
        except NotFoundError:
            raise ConflictError("no such pet") from None


@breaks("restore-live")
class TrustsPetsOfTheCall(Correct):
    """Compares the status of a pet only if that was stored before the call."""

    async def restore(self, items: Sequence[Item]) -> None:
        self.before = dict(self.data.pets)
        await super().restore(items)

    def check_live(self, order: Order, pet: Pet) -> None:
        fitting = replace(pet, status=PET_STATUS_BY_ORDER[order.status])
        super().check_live(order, pet if pet.id in self.before else fitting)


@breaks("restore-live")
class OverlooksOrdersOfTheSameCall(Correct):
    """Looks for other orders of a pet only among those that were stored before the call."""

    async def restore(self, items: Sequence[Item]) -> None:
        self.before = dict(self.data.orders)
        await super().restore(items)

    def orders_of(self, pet_id: int) -> list[Order]:
        return [order for order in super().orders_of(pet_id) if order.id in self.before]


@breaks("restore-token")
class RestoresRecordsLast(Correct):
    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore(sorted(items, key=lambda item: isinstance(item, TokenRecord)))


@breaks("restore-order")
class RestoresPetsFirst(Correct):
    """Sorts the items, so that an order may come before its pet."""

    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore(sorted(items, key=lambda item: isinstance(item, Order)))


@breaks("restore-other")
class RestoresOrdersLast(Correct):
    """Groups the items by their kind: an order is lost before a pet that is refused."""

    async def restore(self, items: Sequence[Item]) -> None:
        known, fitting = {*self.data.pets}, list[Item]()
        for item in items:  # up to an order whose pet is not there
            known |= {item.id} if isinstance(item, Pet) else set()
            fitting.append(item)
            if isinstance(item, Order) and item.pet_id not in known:
                break
        await super().restore(sorted(fitting, key=lambda item: isinstance(item, Order)))


@breaks("restore-live")
class LinksTheLastOrder(Correct):
    """Has a column for the order of a pet, which a cancelled order takes, too."""

    def orders_of(self, pet_id: int) -> list[Order]:
        return super().orders_of(pet_id)[-1:]


@breaks("restore-live")
class LinksOneOrderOfATurn(Correct):
    """Orders of one turn are stored together, but only the last is linked to its pet."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.kept["last"] = pet_id
        receipt = await super().place_order(pet_id, at, token)
        if self.kept["last"] != pet_id:
            self.data.extra.setdefault("unlinked", set()).add(receipt.id)
        return receipt

    def orders_of(self, pet_id: int) -> list[Order]:
        unlinked = self.data.extra.get("unlinked", set())
        return [order for order in super().orders_of(pet_id) if order.id not in unlinked]
