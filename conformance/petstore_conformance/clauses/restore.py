"""Clauses of `restore`: pets and orders of another store, under the ids that they have there."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import count, cycle, product
from typing import Any, Final

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    RefusedError,
    Repository,
    StorageError,
    UnavailableError,
)
from petstore_conformance.clauses.orders import add_pet, place_at, place_orders, status_of
from petstore_conformance.clauses.tokens import count_stored
from petstore_conformance.harness.effort import current, measure, sample, yield_to_others
from petstore_conformance.harness.kit import Kit, Location, clause, location_clause
from petstore_conformance.model.calls import READERS, create, watch
from petstore_conformance.model.model import AnyItem, AnyQuery, Stored, created, send
from petstore_conformance.model.reads import (
    check_page,
    check_pages,
    check_shown,
    check_types,
    every_filter,
    look_up,
    read_all,
    read_each,
    read_page,
)
from petstore_conformance.model.values import (
    AT,
    BORDERS,
    HOSTILE_PETS,
    IDS,
    PET_STATUSES,
    REX,
    TIMES,
    absent_ids,
    make_token,
)

HIGHEST: Final = 2**52  # the highest restored id of most clauses; those above it stay free
# More rows than a statement of a database may have values, to be restored in one call.
ROWS: Final = [Pet(2**41 + n, f"{n}", n, PetStatus.SOLD) for n in range(33_000)]
LATE_POSITIONS: Final = (1999, 2000)  # around a border, if 10, 100 or 500 are stored at once
RESTORING_SECONDS: Final = 25  # for all calls of [restore-sizes]: slow ones restore fewer items
# What is restored first, to see how long an item takes: more than one transaction may have.
MEASURED: Final = [Pet(2**43 + number, "Rex", number) for number in range(200)]
ALL_ITEMS: Final = 41_000  # about how many items the clause restores if there is time
_LIVE: Final = (OrderStatus.PLACED, OrderStatus.COMPLETED)
NOT_STORED: Final = "an item before the refused one is not stored"

RESTORED_PETS: Final = [
    Pet(3, "Rex", 7, PetStatus.AVAILABLE),
    Pet(4, "", -(2**63), PetStatus.PENDING),
    Pet(9, " \0 ", 2**63 - 1, PetStatus.SOLD),
    Pet(300, "\U0001f436", 0),
    Pet(70_000, "é", 2**53 + 1, PetStatus.AVAILABLE),
    Pet(70_001, "e\u0301", -1, PetStatus.PENDING),
    Pet(2**31 + 7, "x" * 300, 7, PetStatus.SOLD),
    Pet(2**40, "null", 7),
    Pet(HIGHEST, "Rex", 7, PetStatus.AVAILABLE),
]
PLACED: Final = Order(70, 4, OrderStatus.PLACED, AT.replace(year=1970, microsecond=0))
RESTORED_ORDERS: Final = [
    # Any pet may have been in cancelled orders, also one without a status.
    *(
        Order(id_, pet.id, OrderStatus.CANCELLED, AT + timedelta(microseconds=id_ % 999_999))
        for id_, pet in zip((1, 2, 8, 500, 2**33, HIGHEST - 1), RESTORED_PETS, strict=False)
    ),
    PLACED,
    Order(7, 9, OrderStatus.COMPLETED, AT.replace(year=2099, microsecond=999_999)),
    Order(HIGHEST, 70_001, OrderStatus.PLACED, AT),
]


def sort_by_id(items: Iterable[AnyItem]) -> list[AnyItem]:
    """Return pets, or orders, in ascending id."""
    return sorted(items, key=lambda item: item.id)


# Not sorted by id, and each pet before its orders.
RESTORED_ITEMS: Final[list[Pet | Order]] = [*reversed(RESTORED_PETS), *reversed(RESTORED_ORDERS)]


def order_of(pet: Pet, at: datetime = AT) -> Order:
    """Return an order that a pet may be in, with the same id."""
    fitting = (order for order, status in PET_STATUS_BY_ORDER.items() if status is pet.status)
    return Order(pet.id, pet.id, next(fitting, OrderStatus.CANCELLED), at)


def pet_and_order(id_: int, status: PetStatus = PetStatus.AVAILABLE) -> tuple[Pet, Order]:
    """Return a pet of a status and an order of it, both with this id."""
    pet = Pet(id_, "Rex", 7, status)
    return pet, order_of(pet)


async def check_stored(repository: Repository, pets: list[Pet], orders: list[Order]) -> None:
    """Check that exactly these are stored, in every list where they belong."""
    stored = Stored(sort_by_id(pets), sort_by_id(orders))
    for query in every_filter(0, 999):
        assert await read_page(repository, query) == stored.page(query)
    await read_each(repository, [*pets, *orders], partial(check_shown, repository))


def conflicting(item: Pet | Order) -> Iterator[Pet | Order]:
    """Yield items that have the id of this one and differ from it in one other field."""
    if isinstance(item, Pet):
        yield from (replace(item, name=item.name + end) for end in " \0")
        if item.name != item.name.swapcase():
            yield replace(item, name=item.name.swapcase())
        yield replace(item, category_id=item.category_id ^ 1)
        if item.category_id > 9:  # the same text if one field follows the other
            digits = str(item.category_id)
            yield replace(item, name=item.name + digits[0], category_id=int(digits[1:]))
    else:
        yield replace(item, placed_at=item.placed_at + timedelta(microseconds=1))
        yield replace(item, pet_id=3 if item.pet_id != 3 else 4)
    statuses: Iterable[Any] = PET_STATUSES if isinstance(item, Pet) else OrderStatus
    for status in {*statuses} - {item.status}:
        yield replace(item, status=status)


async def refuse(repository: Repository, error: type[RefusedError], *items: Pet | Order) -> None:
    """Restore items of which the last one is refused: all before it are stored."""
    with pytest.raises(error):
        await repository.restore(items)
    for item in {*items[:-1]}:
        get: Any = repository.get_pet if isinstance(item, Pet) else repository.get_order
        assert await get(item.id) == item, NOT_STORED


async def restore_before_a_refusal(repository: Repository, distance: int) -> int:
    """Restore items, that with the highest id first, before one that is refused; return that id.

    distance -- how far it is above all ids that are stored
    """
    highest = max((await read_all(repository)).ids) + distance
    refused = Order(highest + 1, MAX_ID, OrderStatus.CANCELLED, AT)
    stored = (*pet_and_order(highest), *pet_and_order(highest - 1))
    await refuse(repository, NotFoundError, *stored, refused)
    return highest


async def refuse_late(repository: Repository, late: Pet | Order, error: type[RefusedError]) -> None:
    """Restore many items of a kind, of which a late one is refused: all before it are there."""
    for position in LATE_POSITIONS:
        first_id = 2**30 * position  # free, and of other pets than the last time
        pairs = [pet_and_order(first_id + number) for number in range(2500)]
        query: AnyQuery = PetQuery(first_id - 1, position)
        items: list[Any] = [pet for pet, _ in pairs]
        if isinstance(late, Order):
            await repository.restore(items)
            items = [order for _, order in pairs]
            query = OrderQuery(first_id - 1, position)
        with pytest.raises(error):
            await repository.restore([*items[:position], late, *items[position:]])
        if isinstance(late, Pet):
            assert await repository.get_pet(late.id) != late, "the stored one is replaced"
        assert await read_page(repository, query) == items[:position], NOT_STORED
        order = await place_at(repository, AT)
        assigned = order.pet_id if isinstance(late, Pet) else order.id
        assert assigned >= first_id + position, "the counter is too low"


async def refuse_others(repository: Repository, order: Order) -> None:
    """Restore other orders of the pet of an order that was placed here; each must be refused."""
    for id_, live in product((9, min(order.id + 2**40, MAX_ID)), _LIVE):
        await refuse(repository, ConflictError, replace(order, id=id_, status=live))


class RestoreClauses(Kit):
    """Clauses of `restore` with pets, and with pets and their orders."""

    @clause("restore-exact")
    async def test_restored_items_are_returned_exactly(self, repository: Repository) -> None:
        """New ids are assigned, filtered lists show restored items later, or times are cut."""
        await repository.restore([])
        await check_stored(repository, [], [])
        await repository.restore(RESTORED_ITEMS)
        await check_stored(repository, RESTORED_PETS, RESTORED_ORDERS)
        for id_ in absent_ids(*(pet.id for pet in RESTORED_PETS)):
            assert await repository.get_pet(id_) is None
        for id_ in absent_ids(*(order.id for order in RESTORED_ORDERS)):
            assert await repository.get_order(id_) is None
        first = await read_all(repository)
        starts = every_filter(0, 3)  # some of these pages are full
        following = [replace(q, after=(await read_page(repository, q))[-1].id) for q in starts]
        pet, order = Pet(1, "later", 1, PetStatus.AVAILABLE), Order(3, 1, OrderStatus.CANCELLED, AT)
        await repository.restore([pet, order])  # lower than the end of these pages
        for query in following:
            assert await read_page(repository, query) == first.page(query)
        stored = await read_all(repository)
        for query in starts:
            assert await read_page(repository, query) == stored.page(query)
        # Hostile pets, and orders of them, under ids of every number of digits.
        ids = [id_ for id_ in (*IDS, *range(70_100, 70_300)) if id_ not in stored.ids]
        long = NewPet(self.long_name(2**22), 7)  # each may be more than a batch
        pets = list(map(created, ids, self.storable([*HOSTILE_PETS, long, long])))
        orders = list(map(order_of, pets, cycle(TIMES)))
        await repository.restore([*pets, *orders])
        await read_each(repository, [*pets, *orders], partial(check_shown, repository))
        await self._read_meanwhile(repository)
        stored = await read_all(repository)
        check_types([*stored.pets, *stored.orders])

    async def _read_meanwhile(self, repository: Repository) -> None:
        """Restore pets with orders while others read: what one read shows, all later ones show."""
        pairs = list(map(pet_and_order, range(83_000, 83_100), cycle(PetStatus)))
        shown = cycle(pairs)

        async def read() -> None:
            pet, order = next(shown)
            found, page = await look_up(repository, order)
            if order in (found, *page):
                await check_shown(repository, order)
                assert await repository.get_pet(pet.id) == pet, "the order is there before its pet"
            found, page = await look_up(repository, pet)
            if pet in (found, *page):
                await check_shown(repository, pet)

        items = [item for pair in pairs for item in pair]
        await watch(partial(repository.restore, items), [read] * READERS)

    @location_clause("restore-sizes")
    async def test_any_number_of_items_is_restored(self, location: Location) -> None:
        """Parts of a call lose what is at their borders, or all of it at the next opening."""
        async with location.open() as repository:
            length, _ = await measure(repository.restore(MEASURED))
            share = RESTORING_SECONDS * len(MEASURED) / max(length.seconds, 1e-9) / ALL_ITEMS
            pets, orders = self._thousands(share)
            left: list[Any] = [*pets, *orders]
            for size in await sample(repository, BORDERS):
                await repository.restore(tuple(left[:size]))
                del left[:size]
            await repository.restore(left)
            pets, orders = sort_by_id([*pets, *MEASURED]), sort_by_id(orders)
            await check_pages(repository, pets)
            await check_pages(repository, orders)
            rows = current().choose(ROWS, share)
            given = [*rows]
            restoring = asyncio.create_task(repository.restore(given))
            for iterations in (1, 3, 20) if location.backend.shared else ():
                await yield_to_others(iterations)
                async with location.open() as other:  # this changes nothing
                    await other.get_pet(1)
            await restoring
            given.clear()  # the list belongs to the caller
            for status in (None, PetStatus.SOLD):
                await check_page(repository, PetQuery(ROWS[0].id - 1, len(rows), status), rows)
        if location.backend.durable:
            pets = sort_by_id([*pets, *rows])
            async with location.open() as repository:
                assert await repository.list_pets(PetQuery(0, 50_000)) == pets
                assert await repository.list_orders(OrderQuery(0, 9999)) == orders
                await repository.restore(pets[:500])  # they are still stored, so they are skipped

    def _thousands(self, share: float) -> tuple[Sequence[Pet], list[Order]]:
        """Return a share of thousands of pets, with ids of all lengths, and orders of a third."""
        long = self.long_name(130_000)  # together more than 16 MiB
        news = [
            *self.storable(HOSTILE_PETS),
            *(NewPet(long, n, PET_STATUSES[n // 33]) for n in range(130)),
        ]
        # Pets of a status come in a row, so that others must be skipped to find them.
        news += [NewPet(f"{n}", n, PET_STATUSES[n // 1250 % 4]) for n in range(5000)]
        pets = [created(1000 + 3 * n, new) for n, new in enumerate(news)]
        ids = (id_ for id_ in IDS if not 1000 <= id_ <= 20_000)  # those have the others
        pets += [Pet(id_, f"{id_}", id_, PET_STATUSES[id_ % 4]) for id_ in ids]
        chosen = current().choose(pets, share)
        return chosen, list(map(order_of, chosen[::3], cycle(TIMES)))

    @clause("restore-again")
    async def test_an_item_that_is_stored_already_is_skipped(self, repository: Repository) -> None:
        """An equal item is refused like a different one, or its order takes effect again."""
        await repository.restore(RESTORED_ITEMS)
        (order,) = await place_orders(repository)  # its id is above all of these
        pet = await repository.get_pet(order.pet_id)
        assert pet is not None
        pets, orders = [*RESTORED_PETS, pet], [*RESTORED_ORDERS, order]
        given: list[Pet | Order] = [*pets, *orders]
        for again in (given, given[::-1], [*given, *given]):
            await repository.restore(again)
        new_pet, new_order = pet_and_order(2**45)
        await repository.restore([new_pet, new_order, new_pet, new_order])  # again in one call
        assert await repository.get_pet(new_pet.id) == new_pet
        other_pet, other_order = pet_and_order(2**45 + 1)
        await repository.restore([pet, other_pet, order, other_order, pet])
        pets += [new_pet, other_pet]
        await check_stored(repository, pets, [*orders, new_order, other_order])

    @clause("restore-other")
    async def test_another_item_with_a_stored_id_is_refused(self, repository: Repository) -> None:
        """The stored item is replaced, or not all items before the refused one are stored."""
        await repository.restore(RESTORED_ITEMS)
        own = await create(repository, REX)
        pets, orders, free = [*RESTORED_PETS, own], [*RESTORED_ORDERS], count(2**45)
        for item in (*RESTORED_ITEMS, own):
            for other in conflicting(item):
                pet, order = pet_and_order(next(free))
                pets.append(pet)
                orders.append(order)
                await refuse(repository, ConflictError, pet, order, other)
        for one in (Pet(next(free), "first", 1), Pet(next(free), "first", 1, PetStatus.SOLD)):
            await refuse(repository, ConflictError, one, replace(one, name="second"))
            pets.append(one)
        orders.append(Order(next(free), own.id, OrderStatus.CANCELLED, AT))
        for other in conflicting(orders[-1]):
            await refuse(repository, ConflictError, orders[-1], other)
        await check_stored(repository, pets, orders)
        order = await place_at(repository, AT, own.id)
        given: list[Pet | Order] = [replace(own, status=PetStatus.PENDING), order, PLACED]
        await repository.restore(given)
        for placed in (order, PLACED):
            await repository.update_order(placed.id, OrderStatus.COMPLETED)
        for old in given:  # what has changed since is a different item
            await refuse(repository, ConflictError, old)
        assert await repository.get_order(order.id) == replace(order, status=OrderStatus.COMPLETED)
        await refuse_late(repository, replace(own, name="another"), ConflictError)

    @clause("restore-next")
    async def test_later_ids_are_higher_than_restored_ones(self, repository: Repository) -> None:
        """The counter is not raised or set to the last id, or a write without an id half done."""
        (order,) = await place_orders(repository)
        alone: Any = Pet(1, "alone", 7), replace(order, status=OrderStatus.CANCELLED)
        for item, is_refused in product(alone, (False, True)):
            id_ = max((await read_all(repository)).ids) + 1000
            both = replace(item, id=id_), replace(item, id=id_ - 9)  # the highest first
            if is_refused:
                without_pet = Order(id_ + 1, MAX_ID, OrderStatus.CANCELLED, AT)
                await refuse(repository, NotFoundError, *both, without_pet)
            else:
                await repository.restore(both)
            (order,) = await place_orders(repository)
            later = order.pet_id if isinstance(item, Pet) else order.id
            assert later > id_, f"the counter is too low after {item}"
        highest, order_ids = 0, list[int]()
        for id_ in (50, 51, 5000, 200, 2**40, 7, HIGHEST - 200, HIGHEST, 77_777):
            if not await repository.get_pet(id_) and not await repository.get_order(id_):
                await repository.restore(pet_and_order(id_))
                highest = max(highest, id_)
            if highest < HIGHEST:  # ids that are reserved end before it, or behind it
                highest = await restore_before_a_refusal(repository, distance=33 if id_ % 2 else 3)
            for at_once in await sample(repository, (*[1] * 8, 20)):  # connections may reserve ids
                placed = await asyncio.gather(*(place_at(repository, AT) for _ in range(at_once)))
                ids = {"pets": [it.pet_id for it in placed], "orders": [it.id for it in placed]}
                for kind, assigned in ids.items():
                    low = f"the counter of {kind} is too low, or what a connection has reserved"
                    assert highest < min(assigned) <= max(assigned) <= MAX_ID, low
                order_ids += ids["orders"]
        stored = await read_all(repository)
        assert len({pet.id for pet in stored.pets}) == len(stored.pets)
        assert len({order.id for order in stored.orders} & {*order_ids}) == len(order_ids)
        await self._write_when_no_id_is_left(repository)

    async def _write_when_no_id_is_left(self, repository: Repository) -> None:
        """Restore the highest id of all: later writes store nothing, and replays need no id."""
        pet_id = await add_pet(repository)
        placing, creating = make_token("placed", pet_id), make_token("created", REX)
        placed = await repository.place_order(pet_id, AT, placing)
        receipt = await repository.create_pet(REX, creating)
        await repository.restore(pet_and_order(MAX_ID))
        await repository.update_order(placed.id, OrderStatus.CANCELLED)
        counts = await count_stored(repository)
        writes = [
            partial(send, repository, payload, token)
            for payload in (REX, pet_id)
            for token in (None, make_token(f"full {payload}", payload))
        ]
        for write in (*writes, *writes):  # a refused one leaves nothing for the next
            with pytest.raises(StorageError) as raised:
                await write()
            assert not isinstance(raised.value, RefusedError | UnavailableError), "no id is left"
        both = (call for write in writes for call in (write(), repository.get_pet(pet_id)))
        replay = repository.place_order(pet_id, AT, placing)
        results = await asyncio.gather(*both, replay, return_exceptions=True)
        beside = "a call fails with one beside it for which no id is left"
        assert sum(isinstance(result, Pet) for result in results) == len(writes), beside
        assert results[-1] == replace(placed, replayed=True), beside
        half = "a write for which no id is left has stored a part of what it writes"
        assert await count_stored(repository) == counts, half
        assert await status_of(repository, pet_id) is PetStatus.AVAILABLE, half
        assert await repository.place_order(pet_id, AT, placing) == replace(placed, replayed=True)
        assert await repository.create_pet(REX, creating) == replace(receipt, replayed=True)

    @clause("restore-order")
    async def test_an_order_needs_its_pet(self, repository: Repository) -> None:
        """Orders are stored without checking that the pet is, or one undoes what is before it."""
        pet_id = await add_pet(repository)
        for status in OrderStatus:
            for absent in absent_ids(pet_id):
                await refuse(repository, NotFoundError, Order(9, absent, status, AT))
        before, refused = Pet(2**44, "before", 7), Order(9, 2**45, OrderStatus.CANCELLED, AT)
        await refuse(repository, NotFoundError, before, refused)
        late = {2**45, 2**46}
        for id_ in late:  # its pet comes too late in the same call
            with pytest.raises(NotFoundError):
                await repository.restore(pet_and_order(id_)[::-1])
        assert await repository.list_orders(OrderQuery(0, 9)) == []
        stored = {pet.id for pet in await repository.list_pets(PetQuery(0, 9))}
        assert {pet_id, before.id} <= stored <= {pet_id, before.id} | late
        await refuse_late(repository, Order(2**47, 2**47, OrderStatus.CANCELLED, AT), NotFoundError)

    @clause("restore-live")
    async def test_an_order_needs_the_right_status_of_its_pet(self, repository: Repository) -> None:
        """An order is stored whose pet has another status, or is in another such order."""
        low_ids, ids = count(1), count(1000)
        pets, orders = list[Pet](), list[Order]()

        async def refuse_of(pet: Pet, status: OrderStatus) -> None:
            for distance in (0, 5000, 2**31, 2**45):  # next to the others, and with more digits
                order = Order(next(ids) + distance, pet.id, status, AT)
                await refuse(repository, ConflictError, order)

        async def restore(order: Order) -> None:
            await repository.restore([order])
            orders.append(order)

        for live in _LIVE:
            for status in PET_STATUSES:
                pet = Pet(next(ids), "Rex", 7, status)
                pets.append(pet)
                if status is not PET_STATUS_BY_ORDER[live]:
                    await refuse(repository, ConflictError, pet, Order(next(ids), pet.id, live, AT))
                else:
                    await repository.restore([pet])
                    await restore(Order(next(ids), pet.id, live, AT))
                    await refuse_of(pet, OrderStatus.PLACED)
                    await refuse_of(pet, OrderStatus.COMPLETED)
                await restore(Order(next(ids), pet.id, OrderStatus.CANCELLED, AT))
                await refuse_of(pet, live)  # also if its last order is cancelled, and another not
            for between in (0, 200):  # two orders in one call, with so many items between them
                pet = Pet(next(ids), "both at once", 7, PET_STATUS_BY_ORDER[live])
                first, second = (Order(next(n), pet.id, live, AT) for n in (low_ids, ids))
                await refuse(repository, ConflictError, pet, first, *[pet] * between, second)
                pets.append(pet)
                orders.append(first)
        await check_stored(repository, pets, orders)
        placed = await asyncio.gather(*(place_at(repository, AT) for _ in OrderStatus))
        for order, later in zip(placed, OrderStatus, strict=True):
            await refuse_others(repository, order)
            await repository.update_order(order.id, later)
            await refuse_others(repository, order)
