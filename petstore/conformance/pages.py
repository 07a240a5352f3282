"""Clauses of lists: which pets, how many, in what order."""

import asyncio
from collections.abc import MutableSequence, Sequence
from typing import Any

from msgspec.structs import replace

from petstore.conformance.calls import sample
from petstore.conformance.kit import Kit, clause
from petstore.conformance.orders import FINAL_STATUSES, place_orders, update_orders
from petstore.conformance.values import AT, BORDERS, MANY, MANY_SECONDS, PET_STATUSES
from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    NewPet,
    OrderStatus,
    Pet,
    PetStatus,
    Repository,
)


async def add_pets(repository: Repository, count: int) -> list[Pet]:
    """Add `count` pets, of every status and of none in turn; return them in ascending id."""
    pets = []
    for number in range(count):
        new = NewPet(f"{number}", number, PET_STATUSES[number % 4])
        receipt = await repository.create_pet(new)
        pets.append(Pet(receipt.id, new.name, new.category_id, new.status))
    return sorted(pets, key=lambda pet: pet.id)


async def check_counts(repository: Repository, pets: list[Pet]) -> None:
    """Check that pages of every size are full, given all pets that are stored."""
    counts = (len(pets), *BORDERS, len(pets) + 1, 40_000, 2**31, 2**63 - 1)
    for number, count in enumerate(await sample(repository, counts)):
        after = pets[number % 7].id if number % 3 else 0
        for status in (None, list(PetStatus)[number % 3]):
            matching = [pet for pet in pets if pet.id > after and status in (None, pet.status)]
            assert list(await repository.list_pets(after, count, status)) == matching[:count]


class PageClauses(Kit):
    """Clauses of `list_pets`, and the one of returned lists."""

    @clause("page-order")
    async def test_pets_are_in_ascending_id(self, repository: Repository) -> None:
        """Ids are sorted as text, or not at all."""
        await add_pets(repository, 130)
        for status in (None, *PetStatus):
            ids = [pet.id for pet in await repository.list_pets(0, 200, status)]
            assert ids == sorted(ids)

    @clause("page-after")
    async def test_a_page_begins_right_after_the_given_id(self, repository: Repository) -> None:
        """The pet with the given id is repeated, or the one after it is skipped."""
        pets = await add_pets(repository, 12)
        beyond = {min(pet.id + 1, MAX_ID) for pet in pets}
        for after in {0, *(pet.id for pet in pets), *beyond}:
            expected = [pet for pet in pets if pet.id > after]
            assert list(await repository.list_pets(after, 50, None)) == expected
            sold = [pet for pet in expected if pet.status is PetStatus.SOLD]
            assert list(await repository.list_pets(after, 50, PetStatus.SOLD)) == sold
        pages = [(pet.id, count) for pet in pets for count in range(1, 30)]
        for after, count in await sample(repository, pages):  # nothing changes between them
            expected = [pet for pet in pets if pet.id > after]
            assert list(await repository.list_pets(after, count, None)) == expected[:count]

    @clause("page-count")
    async def test_a_page_is_full_while_there_are_pets(self, repository: Repository) -> None:
        """The limit is applied before the filter, or the backend limits the page itself."""
        pets = await add_pets(repository, 40)
        time = asyncio.get_running_loop().time
        end = time() + MANY_SECONDS
        while len(pets) < MANY and time() < end:
            some = range(len(pets), len(pets) + 100)
            # Those of a status come in a row, so that others must be skipped; some have long names.
            names = [f"{n}" * (1 if n % 60 else 20_000) for n in some]
            statuses = [PET_STATUSES[n // 400 % 3] for n in some]
            news = [NewPet(*fields) for fields in zip(names, some, statuses, strict=True)]
            receipts = await asyncio.gather(*(repository.create_pet(new) for new in news))
            for receipt, new in zip(receipts, news, strict=True):
                pets.append(Pet(receipt.id, new.name, new.category_id, new.status))
        pets.sort(key=lambda pet: pet.id)
        await check_counts(repository, pets)
        ids = [pet.id for pet in pets if pet.status is PetStatus.AVAILABLE]
        ordered = len(await sample(repository, ids[:300]))  # no page may stop at what has changed
        await asyncio.gather(*(repository.place_order(id_, AT) for id_ in ids[:ordered]))
        available = await repository.list_pets(0, 3, PetStatus.AVAILABLE)
        assert [pet.id for pet in available] == ids[ordered : ordered + 3]

    @clause("page-status")
    async def test_a_status_selects_exactly_its_pets(self, repository: Repository) -> None:
        """Pets without a status match, or a page that is not full is not filtered."""
        pets = await add_pets(repository, 23)
        for status in PetStatus:
            matching = [pet for pet in pets if pet.status is status]
            assert list(await repository.list_pets(0, 50, status)) == matching
            for pet in pets:
                expected = [other for other in matching if other.id > pet.id]
                assert list(await repository.list_pets(pet.id, 50, status)) == expected
                assert list(await repository.list_pets(pet.id, 1, status)) == expected[:1]

    @clause("page-empty")
    async def test_the_page_is_empty_if_nothing_matches(self, repository: Repository) -> None:
        """None is returned, an error is raised, or a page past the end has the first pets."""
        for status in (None, *PetStatus):
            assert list(await repository.list_pets(0, 20, status)) == []
            assert list(await repository.list_pets(MAX_ID, 20, status)) == []
        receipt = await repository.create_pet(NewPet("Rex", 7, PetStatus.PENDING))
        for after in (receipt.id, min(receipt.id + 1, MAX_ID), MAX_ID):
            assert list(await repository.list_pets(after, 20, None)) == []
            assert list(await repository.list_pets(after, 20, PetStatus.PENDING)) == []
        assert list(await repository.list_pets(0, 20, PetStatus.SOLD)) == []

    @clause("page-walk")
    async def test_a_walk_returns_every_pet_once_while_others_are_added(
        self, repository: Repository
    ) -> None:
        """Pages are read by offset or from a snapshot, or lack a pet while others are added."""
        before = await add_pets(repository, 40)
        for status in (None, PetStatus.AVAILABLE):
            for count in (1, 7):
                adding = asyncio.create_task(_add_slowly(repository, 25))
                seen: list[int] = []
                while page := await repository.list_pets(seen[-1] if seen else 0, count, status):
                    assert len(page) <= count
                    seen += [pet.id for pet in page]
                    await asyncio.sleep(0)
                await adding
                assert seen == sorted(set(seen))
                assert {pet.id for pet in before if status in (None, pet.status)} <= set(seen)
        for status in (None, PetStatus.AVAILABLE):
            await _walk_and_change(repository, status, [OrderStatus.PLACED] * 3)
        for status in (None, PetStatus.PENDING):
            await _walk_and_change(repository, status, FINAL_STATUSES)

    @clause("no-aliasing")
    async def test_a_returned_list_belongs_to_the_caller(self, repository: Repository) -> None:
        """A list that the store itself uses is returned, not a copy."""
        for read in (repository.list_pets, repository.list_orders):
            page: Any = await read(0, 10, None)
            if isinstance(page, MutableSequence):
                page.append(None)
            assert list(await read(0, 10, None)) == [], "empty pages are one list"
        pets = []
        for number in range(5):
            receipt = await repository.create_pet(NewPet(f"{number}", number, PetStatus.SOLD))
            pets.append(Pet(receipt.id, f"{number}", number, PetStatus.SOLD))
        for status in (None, PetStatus.SOLD):
            page = await repository.list_pets(0, 10, status)
            if isinstance(page, MutableSequence):
                page.clear()
            later = await repository.list_pets(0, 10, status)
            await repository.create_pet(NewPet("later", 1, PetStatus.SOLD))
            expected = sorted(pets, key=lambda pet: pet.id)
            assert [pet for pet in later if pet.name != "later"] == expected
            assert len(later) == (5 if status is None else 6)
        orders = await place_orders(repository, 3)
        for count in (3, 99):
            listed = await repository.list_orders(0, count, None)
            if isinstance(listed, MutableSequence):
                listed.clear()
            assert list(await repository.list_orders(0, count, None)) == orders
        kept = [
            await repository.list_pets(0, 99, None),
            await repository.list_pets(0, 99, PetStatus.PENDING),
            await repository.list_orders(0, 99, None),
            await repository.list_orders(0, 99, OrderStatus.PLACED),
        ]
        before = [list(page) for page in kept]
        await update_orders(repository, orders)
        await place_orders(repository, 2)
        assert [list(page) for page in kept] == before, "a page has changed afterwards"


async def _walk_and_change(
    repository: Repository, status: PetStatus | None, changes: Sequence[OrderStatus]
) -> None:
    """Walk; before each page is read, order two pets on it, or update their orders."""
    pets = {pet.id: pet for pet in await repository.list_pets(0, 9999, None)}
    placed = await repository.list_orders(0, 9999, OrderStatus.PLACED)
    order_ids = {order.pet_id: order.id for order in placed}
    after = 0
    for change in changes:
        page = await repository.list_pets(after, 4, status)
        matching = [pet for pet in pets.values() if status in (None, pet.status)]
        assert list(page) == [pet for pet in matching if pet.id > after][:4]
        after = page[-1].id
        if change is OrderStatus.PLACED:
            changed = [pet for pet in pets.values() if pet.status is PetStatus.AVAILABLE]
        else:
            changed = [pets[pet_id] for pet_id in sorted(order_ids)]
        for pet in [pet for pet in changed if pet.id > after][:2]:
            if change is OrderStatus.PLACED:
                await repository.place_order(pet.id, AT)
            else:
                await repository.update_order(order_ids.pop(pet.id), change)
            pets[pet.id] = replace(pet, status=PET_STATUS_BY_ORDER[change])


async def _add_slowly(repository: Repository, count: int) -> None:
    for _ in range(count):
        await repository.create_pet(NewPet("added", 1, PetStatus.AVAILABLE))
        await asyncio.sleep(0)
