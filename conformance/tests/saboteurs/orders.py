"""What a backend may do wrong with orders."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from msgspec.structs import replace
from petstore_conformance.harness.forwarding import Forwarding

from conformance.tests.correct import Correct, Token
from conformance.tests.saboteurs.registry import breaks, pause
from petstore.contract import (
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
)


@breaks("order-reserves")
class LeavesThePetAvailable(Correct):
    def set_status(self, pet_id: int, status: PetStatus) -> None:
        if status is not PetStatus.PENDING:
            super().set_status(pet_id, status)


@breaks("sold-once")
class ChecksThenSells(Correct):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        if not self.find(token) and (pet := self.data.pets.get(pet_id)):
            super().check_available(pet)
        return await super().place_order(pet_id, at, token)

    def check_available(self, _: Pet) -> None:
        pass


@breaks("shared-orders")
class LocksOnlyItsOwnRepository(ChecksThenSells):
    def lock_of(self, _: Token) -> asyncio.Lock:
        return self.lock

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        async with self.lock_of(token):
            return await super().place_order(pet_id, at, token)


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


@breaks("order-get")
class ReturnsEveryOrderAsPlaced(Correct):
    async def get_order(self, order_id: int) -> Order | None:
        order = await super().get_order(order_id)
        return order and replace(order, status=OrderStatus.PLACED)


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


@breaks("orders-page")
class FiltersOnePageOfOrders(Correct):
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        orders = await super().list_orders(OrderQuery(query.after, 10 * query.count + 100))
        return [order for order in orders if query.status in (None, order.status)][: query.count]


@breaks("sold-once")
class CancelsLateAgain(Correct):
    """Of two overlapping cancels, the second one releases the pet again."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        before = self.data.orders.get(order_id)
        await asyncio.sleep(0)
        order = await super().update_order(order_id, status)
        if before and before.status is not status:
            self.set_status(order.pet_id, PET_STATUS_BY_ORDER[status])
        return order


@breaks("sold-once", shared=False)
class LooksThenUpdates(Correct):
    """Another call may end an order between the look at it and the change of it."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order = self.data.orders.get(order_id)
        if order is None or order.status is not OrderStatus.PLACED:
            return await super().update_order(order_id, status)
        await asyncio.sleep(0)
        self.data.orders[order_id] = order
        return await super().update_order(order_id, status)


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


# A shared one is caught by `shared-orders`, too.
@breaks("sold-once", shared=False)
class LocksTokensApart(LocksOnlyItsOwnRepository):
    """Orders with a token wait for each other, and so do those without."""

    def lock_of(self, token: Token) -> asyncio.Lock:
        lock: asyncio.Lock = self.kept.setdefault(token is None, asyncio.Lock())
        return lock
