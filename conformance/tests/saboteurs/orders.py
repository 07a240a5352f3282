"""What a backend may do wrong with orders."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from msgspec.structs import replace
from petstore_conformance.harness.forwarding import Forwarding

from conformance.tests.correct import Correct, Token, backend
from conformance.tests.saboteurs.registry import SABOTEURS, breaks, pause
from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    UnavailableError,
)


@breaks("sold-once")
class ChecksThenSells(Correct):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.require_open()
        if receipt := self.find(token):
            return receipt
        pet = self.data.pets.get(pet_id)
        if pet is None:
            raise NotFoundError("no such pet")
        self.check_available(pet)
        await asyncio.sleep(0)
        self.set_status(pet_id, PetStatus.AVAILABLE)
        return await super().place_order(pet_id, at, token)


@breaks("shared-orders")
class LocksOnlyItsOwnRepository(Correct):
    def lock_of(self, _: Token) -> asyncio.Lock:
        return self.lock

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.require_open()
        async with self.lock_of(token):
            if receipt := self.find(token):
                return receipt
            pet = self.data.pets.get(pet_id)
            if pet is None:
                raise NotFoundError("no such pet")
            self.check_available(pet)
            await asyncio.sleep(0)
            order_id = self.next_order_id()
            self.data.orders[order_id] = Order(order_id, pet_id, OrderStatus.PLACED, at)
            self.set_status(pet_id, PetStatus.PENDING)
            self.record(token, order_id)
            return Receipt(order_id)


@breaks("order-reserves")
class ReservesInTwoSteps(Correct):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        if receipt := self.find(token):
            return receipt
        if pet := self.data.pets.get(pet_id):
            self.check_available(pet)
            self.set_status(pet_id, PetStatus.PENDING)
            await asyncio.sleep(0)
            self.set_status(pet_id, PetStatus.AVAILABLE)
        return await super().place_order(pet_id, at, token)


@breaks("order-reserves")
class LeavesThePetAvailable(Correct):
    def set_status(self, pet_id: int, status: PetStatus) -> None:
        if status is not PetStatus.PENDING:
            super().set_status(pet_id, status)


@breaks("order-reserves")
class ReservesLater(Correct):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        receipt = await super().place_order(pet_id, at, token)
        self.set_status(pet_id, PetStatus.AVAILABLE)
        await asyncio.sleep(0)
        self.set_status(pet_id, PetStatus.PENDING)
        return receipt


@breaks("order-reserves")
class FilteredListLagsBehind(Correct):
    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        self.stale = pet_id, status

    def matching(self, query: PetQuery) -> list[Pet]:
        found = super().matching(query)
        pet_id, latest = getattr(self, "stale", (0, None))
        return [pet for pet in found if not (query.status is latest and pet.id == pet_id)]


@breaks("order-id")
class UsesThePetIdAsOrderId(Correct):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        receipt = await super().place_order(pet_id, at, token)
        order = self.data.orders.pop(receipt.id)
        self.data.orders[pet_id] = replace(order, id=pet_id)
        return Receipt(pet_id, receipt.replayed)


@breaks("order-id")
class CountsPlacedOrdersForTheNextId(Correct):
    def next_order_id(self) -> int:
        orders = self.data.orders.values()
        return 1 + len([order for order in orders if order.status is OrderStatus.PLACED])


@breaks("order-of-nothing")
class AbsentPetIsAConflict(Correct):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        try:
            return await super().place_order(pet_id, at, token)
        except NotFoundError:
            raise ConflictError("not available") from None


@breaks("order-refused")
class OrdersPetsWithoutStatus(Correct):
    def check_available(self, pet: Pet) -> None:
        if pet.status:
            super().check_available(pet)


@breaks("order-refused")
class OrdersSoldPets(Correct):
    def check_available(self, pet: Pet) -> None:
        if pet.status is not PetStatus.SOLD:
            super().check_available(pet)


@breaks("order-get")
class ReturnsEveryOrderAsPlaced(Correct):
    async def get_order(self, order_id: int) -> Order | None:
        order = await super().get_order(order_id)
        return order and replace(order, status=OrderStatus.PLACED)


@breaks("orders-page")
class SortsOrdersByPet(Correct):
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        found = await super().list_orders(query)
        return sorted(found, key=lambda order: -order.pet_id)


@breaks("orders-page")
class OrderPagesOverlap(Correct):
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        return await super().list_orders(replace(query, after=max(0, query.after - 1)))


@breaks("orders-page")
class PagesHaveAtMost1000Orders(Correct):
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        return await super().list_orders(replace(query, count=min(query.count, 1000)))


@breaks("orders-status")
class PlacedFilterMatchesEveryOrder(Correct):
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        status = None if query.status is OrderStatus.PLACED else query.status
        return await super().list_orders(replace(query, status=status))


@breaks("order-completed")
class SellsLater(Correct):
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order = await super().update_order(order_id, status)
        if status is OrderStatus.COMPLETED:
            self.set_status(order.pet_id, PetStatus.PENDING)
            await asyncio.sleep(0)
            self.set_status(order.pet_id, PetStatus.SOLD)
        return order


@breaks("order-completed")
class CompletesWithoutSelling(Correct):
    def set_status(self, pet_id: int, status: PetStatus) -> None:
        if status is not PetStatus.SOLD:
            super().set_status(pet_id, status)


@breaks("order-cancelled")
class CancelsWithoutReleasingThePet(Correct):
    def set_status(self, pet_id: int, status: PetStatus) -> None:
        if status is not PetStatus.AVAILABLE:
            super().set_status(pet_id, status)


@breaks("order-same")
class ReleasesThePetAgain(Correct):
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order = await super().update_order(order_id, status)
        if status is OrderStatus.CANCELLED:
            self.set_status(order.pet_id, PetStatus.AVAILABLE)
        return order


@breaks("order-same")
class RefusesTheSameStatus(Correct):
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        if order_id in self.data.orders:
            self.check_placed(self.data.orders[order_id])
        return await super().update_order(order_id, status)


@breaks("order-final")
class ChangesCompletedOrders(Correct):
    def check_placed(self, order: Order) -> None:
        if order.status is OrderStatus.CANCELLED:
            super().check_placed(order)


@breaks("order-absent")
class AcceptsAbsentOrders(Correct):
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        if order_id not in self.data.orders:
            return Order(order_id, 1, status, datetime.now(UTC))
        return await super().update_order(order_id, status)


@breaks("durable-orders")
class ReopensOrdersAsPlaced(Correct):
    def close(self) -> None:
        super().close()
        orders = self.data.orders
        orders |= {id_: replace(o, status=OrderStatus.PLACED) for id_, o in orders.items()}


@breaks("orders-page")
class LosesTheEndOfFullPagesOfOrders(Correct):
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        found = await super().list_orders(replace(query, count=query.count + 1))
        full = query.status and len(found) == query.count >= 20
        return found[: query.count - bool(full)]


@breaks("orders-page")
class FiltersOnePageOfOrders(Correct):
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        orders = await super().list_orders(OrderQuery(query.after, 10 * query.count + 100))
        return [order for order in orders if query.status in (None, order.status)][: query.count]


@breaks("sold-once")
class CancelsLateAgain(Correct):
    """Of two overlapping cancels, the second one releases the pet again."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        self.require_open()
        order = self.data.orders.get(order_id)
        if order is None:
            raise NotFoundError("no such order")
        if order.status is status:
            return order
        self.check_placed(order)
        await asyncio.sleep(0)
        if self.data.orders[order_id].status is not status:
            self.check_placed(self.data.orders[order_id])
        self.data.orders[order_id] = changed = replace(order, status=status)
        self.set_status(order.pet_id, PET_STATUS_BY_ORDER[status])
        return changed


@breaks("order-absent")
class RemembersAbsentOrders(Correct):
    """An update of an order that is not there leaves an empty row behind."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        self.require_open()
        if order_id not in self.data.orders:
            self.noted.add(order_id)
        return await super().update_order(order_id, status)

    async def get_order(self, order_id: int) -> Order | None:
        order = await super().get_order(order_id)
        if order is None and order_id in self.noted:
            raise KeyError("pet_id")
        return order


@breaks("order-completed")
class IndexesSalesLater(Correct):
    """The list of sold pets is updated a moment after the order and its pet."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order = await super().update_order(order_id, status)
        self.noted.add(order.pet_id)
        await asyncio.sleep(0)
        self.noted.discard(order.pet_id)
        return order

    def matching(self, query: PetQuery) -> list[Pet]:
        pets = super().matching(query)
        return [
            pet for pet in pets if query.status is not PetStatus.SOLD or pet.id not in self.noted
        ]


@breaks("order-cancelled")
class NumbersVersionsInAByte(Correct):
    """A pet is replaced by a later version, and the number of the version is a signed byte."""

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        versions = self.data.extra.setdefault("versions", Counter())
        if versions[pet_id] < 127:
            versions[pet_id] += 1
            super().set_status(pet_id, status)


@breaks("order-refused")
class LeasesForADay(Correct):
    """An order holds its pet for a day, by the time of the next order."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        held = [
            order.placed_at
            for order in self.data.orders.values()
            if order.pet_id == pet_id and order.status is OrderStatus.PLACED
        ]
        if held and at - max(held) > timedelta(days=1):
            self.set_status(pet_id, PetStatus.AVAILABLE)
        return await super().place_order(pet_id, at, token)


class InTwoTransactions(Forwarding, Correct):
    """Order and pet are two transactions, between which only another handle can read.

    A handle has one connection, which a call keeps until it ends.
    """

    method: ClassVar[str]
    between: ClassVar[PetStatus]
    after: ClassVar[PetStatus]

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        async with self.lock:
            result = await getattr(Correct, method)(self, *arguments, **named)
            if method == self.method:
                order = self.data.orders[result.id]
                if self.data.pets[order.pet_id].status is self.after:
                    self.set_status(order.pet_id, self.between)
                    await pause()
                    self.set_status(order.pet_id, self.after)
            return result


@breaks("order-reserves")
class PlacesInTwoTransactions(InTwoTransactions):
    method, between, after = "place_order", PetStatus.AVAILABLE, PetStatus.PENDING


@breaks("order-completed")
class CompletesInTwoTransactions(InTwoTransactions):
    method, between, after = "update_order", PetStatus.PENDING, PetStatus.SOLD


@breaks("order-cancelled")
class CancelsInTwoTransactions(InTwoTransactions):
    method, between, after = "update_order", PetStatus.PENDING, PetStatus.AVAILABLE


@breaks("order-of-nothing")
class TakesTheEndOfIdsForAnOutage(Correct):
    """The id comes first: if none is left, it asks its clients to try again."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        if self.data.last_id == MAX_ID:
            raise UnavailableError("no id was assigned")
        return await super().place_order(pet_id, at, token)


class LocksTokensApart(LocksOnlyItsOwnRepository):
    """Orders with a token wait for each other, and so do those without."""

    def lock_of(self, token: Token) -> asyncio.Lock:
        lock: asyncio.Lock = self.kept.setdefault(token is None, asyncio.Lock())
        return lock


# A shared one is caught by `shared-orders`, too.
SABOTEURS["LocksTokensApart"] = "sold-once", replace(backend(LocksTokensApart), shared=False)


class DropsItsLocks(LocksOnlyItsOwnRepository):
    """Whoever has the lock of a pet drops it, although others wait; the next makes another one."""

    def lock_of(self, _: Token) -> asyncio.Lock:
        return asyncio.Lock()  # that of the pet is enough

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        async with self.kept.setdefault(pet_id, asyncio.Lock()):
            try:
                await pause()
                return await super().place_order(pet_id, at, token)
            finally:
                self.kept.pop(pet_id, None)


SABOTEURS["DropsItsLocks"] = "sold-once", replace(backend(DropsItsLocks), shared=False)
