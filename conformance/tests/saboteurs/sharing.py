"""What a backend may do wrong when a location is opened several times at once."""

import asyncio
from datetime import datetime

from msgspec.structs import replace

from conformance.tests.correct import STORES, Correct, Store, Token, backend, find
from conformance.tests.saboteurs.registry import SABOTEURS, Caching, NotingRestored, breaks, pause
from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    Expected,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    StorageError,
    TokenPage,
)


@breaks("shared-reads")
class CachesAbsence(Caching):
    """What was not found once is not looked for again."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        if pet_id not in self.kept and (pet := await super().get_pet(pet_id)):
            return pet
        self.kept[pet_id] = None
        return None


@breaks("shared-orders")
class RemembersRefusals(Correct):
    """A pet that was not available once is refused again, unless this handle has released it."""

    def check_available(self, pet: Pet) -> None:
        if pet.status is not PetStatus.AVAILABLE:
            self.noted.add(pet.id)
        if pet.id in self.noted:
            raise ConflictError("the pet is not available")

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        self.noted.discard(pet_id)


@breaks("shared-orders")  # what a retry gets from another handle: no other breaks this
class LooksForItsTokenBefore(Correct):
    """Looks for its token, then locks the pet; another handle may use both in between."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.require_open()
        async with self.lock:
            found = self.find(token)
            await pause()
            pet = self.data.pets.get(pet_id)
            if pet and not found:
                self.check_available(pet)
            return await super().place_order(pet_id, at, token)


@breaks("shared-orders")  # a token takes effect in only one: no other breaks this for creates
class LocksTokensOfItsOwnCreates(Correct):
    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        self.require_open()
        async with self.lock:
            if receipt := self.find(token):
                return receipt
            receipt = await super().create_pet(new)
            self.record(token, receipt.id)
            return receipt


@breaks("shared-reads")  # every read: no other breaks this for `list_tokens`
class ListsOnlyItsOwnRecords(NotingRestored):
    """Records that another handle has stored since this one was opened are in no page."""

    def record(self, token: Token, id_: int) -> None:
        super().record(token, id_)
        self.noted.add(token and token.value)

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        page = await super().list_tokens(cursor, count, now)
        own = self.noted | self.loaded.records.keys()
        return replace(page, records=[r for r in page.records if r.value in own])


@breaks("shared-orders")
class RemembersUnusedTokens(Correct):
    """Does not look again for a token that it has not found, unless it has recorded it itself."""

    def find(self, token: Token) -> Receipt | None:
        if token is None or token.value in self.noted:
            return None
        if token.value not in self.data.records:
            self.noted.add(token.value)
        return super().find(token)

    def record(self, token: Token, id_: int) -> None:
        super().record(token, id_)
        if token:
            self.noted.discard(token.value)


@breaks("shared-reads")
class SavesWhatItHasRead(Correct):
    """Writes its copies back when it closes, also those that another handle has changed."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        if pet := await super().get_pet(pet_id):
            self.kept[pet_id] = pet
        return pet

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        self.kept.pop(pet_id, None)

    def close(self) -> None:
        super().close()
        self.data.pets |= self.kept


@breaks("shared-reads")
class KeepsFullPages(Correct):
    """A full page cannot grow any more: only a restore of its own may change it."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        page = await super().list_pets(query)
        if query.status or len(page) < query.count:
            return page
        ids = self.kept.setdefault((query.after, query.count), [pet.id for pet in page])
        return [self.data.pets[id_] for id_ in ids]

    def raise_counter(self, item: Pet | Order) -> None:
        super().raise_counter(item)
        self.kept.clear()


@breaks("restore-exact")
class KeepsFullPagesFromBefore(KeepsFullPages):
    def raise_counter(self, item: Pet | Order) -> None:
        Correct.raise_counter(self, item)


async def find_initialized(location: str, _: Expected) -> Store:
    """Make a new location ready for use, although another process may be doing the same."""
    if location not in STORES:
        await asyncio.sleep(0)
        STORES[location] = Store()
    return STORES[location]


SABOTEURS["InitializesTheLocationTwice"] = "shared-ids", backend(Correct, find=find_initialized)


@breaks("shared-reads")
class MapsWhatWasThere(Correct):
    """Opening finds as many pets as its map has room for, which only its own writes extend."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.room = len(store.pets) + 256

    def put(self, pet: Pet) -> None:
        super().put(pet)
        self.room = len(self.data.pets) + 256

    async def get_pet(self, pet_id: int) -> Pet | None:
        pet = await super().get_pet(pet_id)
        return pet if pet in [*self.data.pets.values()][: self.room] else None


@breaks("shared-ids")
class LocksItsOwnReservations(Correct):
    """Only within one handle no two orders reserve a block of ids at once."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.ids: list[int] = [*range(store.last_id + 1, store.last_id + 1001)]
        store.last_id += 1000

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        async with self.lock:
            if not self.ids or self.ids[0] <= self.data.restored:
                begin = self.data.last_id + 1
                await asyncio.sleep(0)
                self.ids, self.data.last_id = [*range(begin, begin + 1000)], begin + 999
            return await super().place_order(pet_id, at, token)

    def next_order_id(self) -> int:
        if self.ids[0] > MAX_ID:
            raise StorageError("all ids have been assigned")
        return self.ids.pop(0)


@breaks("shared-orders")
class ProlongsWhatItCaches(Correct):
    """A record that another handle has stored is cached with the `until` of the retry."""

    def find(self, token: Token) -> Receipt | None:
        if token is None:
            return None
        receipt = super().find(token)
        if receipt is None and self.kept.get(token.value, 0) > token.now:
            return Receipt(self.data.records[token.value].id, replayed=True)
        if receipt is not None:
            self.kept.setdefault(token.value, token.until)
        return receipt

    def record(self, token: Token, id_: int) -> None:
        super().record(token, id_)
        if token is not None:
            self.kept[token.value] = token.until


@breaks("shared-reads")
class UndoesWhatAnotherUpdates(Correct):
    """Opening takes the updates that are in flight for those that a crash has ended."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.journal: dict[int, Order] = store.extra.setdefault("journal", {})
        store.orders |= self.journal
        for order in self.journal.values():
            self.set_status(order.pet_id, PET_STATUS_BY_ORDER[order.status])

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        before = self.data.orders.get(order_id)
        order = await super().update_order(order_id, status)
        if before is not None and before is not order:
            self.journal[order_id] = before
        await asyncio.sleep(0)
        self.journal.pop(order_id, None)
        return order


async def find_and_count(location: str, expected: Expected) -> Store:
    """Read the highest id, and set the counter to it a moment later."""
    store = await find(location, expected)
    highest = max([store.restored, *store.pets, *store.orders])
    await pause()
    store.last_id = highest
    return store


SABOTEURS["SetsTheCounterAMomentLater"] = "shared-ids", backend(Correct, find=find_and_count)


@breaks("shared-reads")
class HearsOfChangesLater(Caching):
    """Its cache of pets hears of another handle's changes while it reads a page."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        if pet_id not in self.kept:
            self.kept[pet_id] = await super().get_pet(pet_id)
        pet: Pet | None = self.kept[pet_id]
        return pet

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        await pause()
        self.kept.clear()
        return await super().list_pets(query)


@breaks("shared-reads")  # what another handle is writing: no other hides what was written before
class ReadsItsCopyBesideAnother(Correct):
    """Does not wait while another handle creates a pet: it shows what it has read before."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        async with self.lock:
            creating = self.data.extra.setdefault("creating", set())
            creating.add(self)
            try:
                await pause()
                return await super().create_pet(new, token)
            finally:
                creating.remove(self)

    async def get_pet(self, pet_id: int) -> Pet | None:
        pet = await super().get_pet(pet_id)
        if self.data.extra.get("creating", set()) <= {self}:
            self.kept = {**self.data.pets}
            return pet
        return self.kept.get(pet_id)
