"""What can be wrong with orders."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from petstore.contract import (
    ConflictError,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Retry,
)
from tests.honest import Honest, Store
from tests.saboteurs.registry import breaks


@breaks("sold-once")
class ChecksThenSells(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        pet = self.store.pets.get(pet_id)
        if pet is None:
            raise NotFoundError("no such animal")
        self.check_available(pet)
        await asyncio.sleep(0)
        self.move(pet_id, PetStatus.AVAILABLE)
        return await super().place_order(pet_id, at, retry)


@breaks("shared-orders")
class LocksItsOwnOpeningOnly(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.lock = asyncio.Lock()

    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        async with self.lock:
            if receipt := self.find(retry):
                return receipt
            self.check_available(self.store.pets[pet_id])
            await asyncio.sleep(0)
            number = self.next_order_id()
            self.store.orders[number] = Order(number, pet_id, OrderStatus.PLACED, at)
            self.move(pet_id, PetStatus.PENDING)
            self.record(retry, number)
            return Receipt(number)


@breaks("order-reserves")
class LeavesTheAnimalAvailable(Honest):
    def move(self, pet_id: int, status: PetStatus) -> None:
        if status is not PetStatus.PENDING:
            super().move(pet_id, status)


@breaks("order-reserves")
class ReservesAfterwards(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        receipt = await super().place_order(pet_id, at, retry)
        self.move(pet_id, PetStatus.AVAILABLE)
        await asyncio.sleep(0)
        self.move(pet_id, PetStatus.PENDING)
        return receipt


@breaks("order-reserves")
class FilterFollowsLater(Honest):
    def move(self, pet_id: int, status: PetStatus) -> None:
        super().move(pet_id, status)
        self.stale = pet_id, status

    def matching(self, after: int, status: PetStatus | None) -> list[Pet]:
        found = super().matching(after, status)
        stale, moved = getattr(self, "stale", (0, None))
        return [pet for pet in found if not (status is moved and pet.id == stale)]


@breaks("order-id")
class NumbersOrdersByAnimal(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        receipt = await super().place_order(pet_id, at, retry)
        order = self.store.orders.pop(receipt.id)
        self.store.orders[pet_id] = replace(order, id=pet_id)
        return Receipt(pet_id, receipt.replayed)


@breaks("order-id")
class NumbersOrdersByHowManyAreOpen(Honest):
    def next_order_id(self) -> int:
        orders = self.store.orders.values()
        return 1 + len([order for order in orders if order.status is OrderStatus.PLACED])


@breaks("order-exact")
class TimeInWholeSeconds(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        return await super().place_order(pet_id, at.replace(microsecond=0), retry)


@breaks("order-exact")
class TimeLosesItsZone(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        return await super().place_order(pet_id, at.replace(tzinfo=None), retry)


@breaks("order-of-nothing")
class OrdersWhatIsNotThere(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        self.store.pets.setdefault(pet_id, Pet(pet_id, "", 0, PetStatus.AVAILABLE))
        return await super().place_order(pet_id, at, retry)


@breaks("order-of-nothing")
class AbsentIsAConflict(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        try:
            return await super().place_order(pet_id, at, retry)
        except NotFoundError:
            raise ConflictError("not available") from None


@breaks("order-refused")
class OrdersAnimalsWithoutStatus(Honest):
    def check_available(self, pet: Pet) -> None:
        if pet.status:
            super().check_available(pet)


@breaks("order-refused")
class OrdersWhatIsSold(Honest):
    def check_available(self, pet: Pet) -> None:
        if pet.status is not PetStatus.SOLD:
            super().check_available(pet)


@breaks("order-get")
class RemembersHowItWasPlaced(Honest):
    async def get_order(self, order_id: int) -> Order | None:
        order = await super().get_order(order_id)
        return order and replace(order, status=OrderStatus.PLACED)


@breaks("orders-page")
class SortsOrdersByAnimal(Honest):
    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        found = await super().list_orders(after, count, status)
        return sorted(found, key=lambda order: -order.pet_id)


@breaks("orders-page")
class OrdersPagesOverlap(Honest):
    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        return await super().list_orders(max(0, after - 1), count, status)


@breaks("orders-status")
class StaysInItsFirstList(Honest):
    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        wanted = None if status is OrderStatus.PLACED else status
        return await super().list_orders(after, count, wanted)


@breaks("order-completed")
class SellsAfterwards(Honest):
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order = await super().update_order(order_id, status)
        if status is OrderStatus.COMPLETED:
            self.move(order.pet_id, PetStatus.PENDING)
            await asyncio.sleep(0)
            self.move(order.pet_id, PetStatus.SOLD)
        return order


@breaks("order-completed")
class CompletesWithoutSelling(Honest):
    def move(self, pet_id: int, status: PetStatus) -> None:
        if status is not PetStatus.SOLD:
            super().move(pet_id, status)


@breaks("order-cancelled")
class CancelsWithoutGivingBack(Honest):
    def move(self, pet_id: int, status: PetStatus) -> None:
        if status is not PetStatus.AVAILABLE:
            super().move(pet_id, status)


@breaks("order-same")
class MovesTheAnimalAgain(Honest):
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order = await super().update_order(order_id, status)
        if status is OrderStatus.CANCELLED:
            self.move(order.pet_id, PetStatus.AVAILABLE)
        return order


@breaks("order-same")
class RefusesTheSame(Honest):
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        if order_id in self.store.orders:
            self.check_placed(self.store.orders[order_id])
        return await super().update_order(order_id, status)


@breaks("order-final")
class CancelsWhatIsCompleted(Honest):
    def check_placed(self, order: Order) -> None:
        if order.status is OrderStatus.CANCELLED:
            super().check_placed(order)


@breaks("order-absent")
class ChangesNothingSilently(Honest):
    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        if order_id not in self.store.orders:
            return Order(order_id, 1, status, datetime.now(UTC))
        return await super().update_order(order_id, status)


@breaks("durable-orders")
class ReopensOrdersAsPlaced(Honest):
    def close(self) -> None:
        super().close()
        orders = self.store.orders
        orders |= {n: replace(o, status=OrderStatus.PLACED) for n, o in orders.items()}
