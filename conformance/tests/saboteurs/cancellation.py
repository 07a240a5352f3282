"""What a backend may do wrong when calls are cancelled."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from conformance.tests.correct import Correct, Item, Token
from conformance.tests.saboteurs.registry import breaks, pause
from petstore.contract import (
    MAX_ID,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    StorageError,
    UnavailableError,
)


@breaks("after-cancellation")
class LeavesACursorOpen(Correct):
    """A cancelled page of several parts leaves its cursor open, and with it a transaction."""

    pets: dict[int, Pet] | None = None

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        found = await super().list_pets(query)
        self.pets = dict(self.data.pets)
        for _ in found[50::50]:
            await asyncio.sleep(0)
        self.pets = None
        return found

    async def get_pet(self, pet_id: int) -> Pet | None:
        self.require_open()
        return (self.data.pets if self.pets is None else self.pets).get(pet_id)


@breaks("cancelled-write")
class KeepsTheFileLocked(Correct):
    """The transaction of a cancelled create stays open until its handle creates another pet."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if self.data.extra.setdefault("locked", self) is not self:
            raise UnavailableError("the file is locked")
        receipt = await super().create_pet(new, token)
        self.data.extra.pop("locked", None)
        return receipt


@breaks("cancelled-write")
class KeepsPagesIfItIsCancelled(Correct):
    """Its writes are made in a thread, and the pages that it keeps are dropped after that."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        return [*self.kept.setdefault(query, await super().list_pets(query))]

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        receipt = await asyncio.shield(super().create_pet(new, token))
        self.kept.clear()
        return receipt

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        self.kept.clear()

    def add(self, item: Pet | Order) -> None:
        super().add(item)
        self.kept.clear()


@breaks("cancellation")
class IgnoresCancellation(Correct):
    async def check(self) -> None:
        with suppress(asyncio.CancelledError):
            await pause()
        await super().check()


@breaks("cancelled-write")
class TakesBackWhatIsCancelled(Correct):
    """A create whose caller has gone is taken back later, although reads show it meanwhile."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        receipt = await super().create_pet(new, token)
        try:
            await pause()
        except asyncio.CancelledError:
            if token is None:
                self.take_back(receipt.id, 5)
            raise
        return receipt

    def take_back(self, pet_id: int, iterations: int) -> None:
        if iterations:
            asyncio.get_running_loop().call_soon(self.take_back, pet_id, iterations - 1)
        else:
            self.data.pets.pop(pet_id, None)


@breaks("cancellation")
class WaitsForItsTurn(Correct):
    """A cancelled create, one at a time, waits for the end of its transaction."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        task = asyncio.create_task(self.create_in_turn(new, token))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def create_in_turn(self, new: NewPet, token: Token) -> Receipt:
        async with self.lock:
            await asyncio.sleep(0.001)
            return await super().create_pet(new, token)


@breaks("after-cancellation")
class HandsAnOrderToTheNextCaller(Correct):
    """The reply to a cancelled read of an order is returned to the next one, until a restore."""

    late: Order | None = None

    async def get_order(self, order_id: int) -> Order | None:
        late, self.late = self.late, None
        await pause()
        order = await super().get_order(order_id)
        try:
            await pause()
        except asyncio.CancelledError:
            self.late = order
            raise
        return late or order

    async def restore(self, items: Sequence[Item]) -> None:
        self.late = None
        await super().restore(items)


@breaks("cancelled-write")
class MakesCancelledWritesLater(Correct):
    """What is cancelled in a queue, behind three others, is made in the background."""

    work, late, queued = 0.002, 1.0, 0

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        self.queued += 1
        try:
            await asyncio.sleep(self.work)
        except asyncio.CancelledError:
            if self.queued > 3:
                pet = Pet(self.next_id(), new.name, new.category_id, new.status)
                asyncio.get_running_loop().call_later(self.late, self.put, pet)
            raise
        finally:
            self.queued -= 1
        return await super().create_pet(new, token)


@breaks("cancelled-write")
class FlushesWithTheNextWrite(Correct):
    """Writes wait for a batch; that of a caller that has gone is made with the next one."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        left, self.noted = self.noted, set()
        for late in left:
            await super().create_pet(late)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.noted.add(new)
            raise
        return await super().create_pet(new, token)


@breaks("cancelled-write")
class RecordsWhatIsCancelled(Correct):
    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.record(token, self.next_id())
            raise
        return await super().create_pet(new, token)


@breaks("after-cancellation")
class GivesBackOrderIds(Correct):
    """An order takes an id from a counter of its own, and gives it back if it is cancelled."""

    def next_order_id(self) -> int:
        return int(self.kept.pop(asyncio.current_task()))

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        last = max(self.data.extra.get("orders", 0), self.data.restored)
        if last == MAX_ID:
            if receipt := self.find(token):
                return receipt
            raise StorageError("all ids have been assigned")
        self.data.extra["orders"] = last + 1
        try:
            await pause()
        except asyncio.CancelledError:
            self.data.extra["orders"] -= 1
            raise
        self.kept[asyncio.current_task()] = last + 1
        return await super().place_order(pet_id, at, token)


@breaks("after-cancellation")
class FollowersEndWithTheirLeader(Correct):
    """Writes with one token share a task, which is cancelled with the first of them."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if token is None:
            return await super().create_pet(new)
        if token in self.kept:
            receipt: Receipt = await self.kept[token]
            return replace(receipt, replayed=True)
        writing = asyncio.create_task(super().create_pet(new, token))
        self.kept[token] = writing
        try:
            return await writing
        finally:
            del self.kept[token]


@breaks("cancelled-write")
class RaisesItsCounterUnlessCancelled(Correct):
    """Raises its counter after the items of a call, refused or not, unless it is cancelled."""

    async def restore(self, items: Sequence[Item]) -> None:
        self.restored: list[Pet | Order] = []
        try:
            await super().restore(items)
        except asyncio.CancelledError:
            self.restored.clear()
            raise
        finally:
            for item in self.restored:
                super().raise_counter(item)

    def raise_counter(self, item: Pet | Order) -> None:
        self.restored.append(item)


@breaks("after-cancellation")
class LeaksConnections(Correct):
    """A reader that is cancelled while it connects loses the connection; there are ten of them."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        unused: asyncio.Semaphore = self.kept.setdefault("unused", asyncio.Semaphore(10))
        await unused.acquire()
        if len(self.noted) < 10:
            await pause()
            self.noted.add(object())
        unused.release()
        return await super().get_pet(pet_id)


@breaks("after-cancellation")
class SharesItsFirstStep(Correct):
    """The first readers wait for one connection, which is given up with any of them."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        connecting = self.kept.setdefault("connecting", asyncio.ensure_future(pause()))
        try:
            await connecting
        except asyncio.CancelledError:
            self.kept.pop("connecting", None)
            raise
        return await super().get_pet(pet_id)


@breaks("after-cancellation")
class SendsAgainAfterACancel(Correct):
    """A cancelled call resets the connection; the calls that wait for it are sent again."""

    resets = 0

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        resets = self.resets
        try:
            receipt = await super().create_pet(new, token)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.resets += 1
            raise
        return await super().create_pet(new, token) if self.resets > resets else receipt


@breaks("cancelled-write")
class UpdatesDistantPetsLater(Correct):
    """An order and a pet in different shards of a thousand ids are changed in two steps."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order = self.data.orders.get(order_id)
        pet = self.data.pets.get(order.pet_id) if order else None
        updated = await super().update_order(order_id, status)
        if order and pet and updated is not order and order_id // 1000 != pet.id // 1000:
            after, self.data.pets[pet.id] = self.data.pets[pet.id], pet
            await asyncio.sleep(0)
            self.data.pets[pet.id] = after
        return updated


class KeepsRepliesOfRestores(Correct):
    """The reply to a cancelled restore stays unread, until a pet is created."""

    late = False

    async def restore(self, items: Sequence[Item]) -> None:
        try:
            await super().restore(items)
        except asyncio.CancelledError:
            self.late = True
            raise

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        self.late = False
        return await super().create_pet(new, token)


@breaks("after-cancellation")
class HandsARestoreToTheNextReader(KeepsRepliesOfRestores):
    async def get_pet(self, pet_id: int) -> Pet | None:
        late, self.late = self.late, False
        return None if late else await super().get_pet(pet_id)


@breaks("after-cancellation")
class HandsARestoreToTheNextRestore(KeepsRepliesOfRestores):
    async def restore(self, items: Sequence[Item]) -> None:
        late, self.late = self.late, False
        if not late:
            await super().restore(items)


class MakesCancelledWritesSoon(MakesCancelledWritesLater):
    """Not in the registry: only in virtual time it is certain that "soon" is late."""

    work, late = 0.02, 0.5
