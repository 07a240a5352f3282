"""Clauses of lists: which pets, how many, in what order."""

import asyncio
from collections.abc import MutableSequence

from msgspec import UNSET

from petstore.conformance.kit import Kit, clause
from petstore.conformance.orders import place_orders
from petstore.contract import MAX_ID, NewPet, Pet, PetStatus, Repository

PET_STATUSES = (*PetStatus, UNSET)


async def add_pets(repository: Repository, count: int) -> list[Pet]:
    """Add `count` pets, of every status and of none in turn; return them in ascending id."""
    pets = []
    for number in range(count):
        new = NewPet(f"{number}", number, PET_STATUSES[number % 4])
        receipt = await repository.create_pet(new)
        pets.append(Pet(receipt.id, new.name, new.category_id, new.status))
    return sorted(pets, key=lambda pet: pet.id)


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
        for after in {0, *(pet.id for pet in pets), *(pet.id + 1 for pet in pets)}:
            expected = [pet for pet in pets if pet.id > after]
            assert list(await repository.list_pets(after, 50, None)) == expected
            sold = [pet for pet in expected if pet.status is PetStatus.SOLD]
            assert list(await repository.list_pets(after, 50, PetStatus.SOLD)) == sold

    @clause("page-count")
    async def test_a_page_is_full_while_there_are_pets(self, repository: Repository) -> None:
        """The limit is applied before the filter, or the backend limits the page itself."""
        pets = await add_pets(repository, 420)
        for status in (None, *PetStatus):
            matching = [pet for pet in pets if status in (None, pet.status)]
            for count in (1, 2, 20, 21, 100, 101, len(matching), len(matching) + 1, 5000):
                assert list(await repository.list_pets(0, count, status)) == matching[:count]

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
        for after in (receipt.id, receipt.id + 1, MAX_ID):
            assert list(await repository.list_pets(after, 20, None)) == []
            assert list(await repository.list_pets(after, 20, PetStatus.PENDING)) == []
        assert list(await repository.list_pets(0, 20, PetStatus.SOLD)) == []

    @clause("page-walk")
    async def test_a_walk_returns_every_pet_once_while_others_are_added(
        self, repository: Repository
    ) -> None:
        """Pages are read by offset, or a pet becomes visible after one with a higher id."""
        before = await add_pets(repository, 60)
        for status in (None, PetStatus.AVAILABLE):
            for count in (1, 7):
                adding = asyncio.create_task(_add_slowly(repository, 40))
                seen: list[int] = []
                while page := await repository.list_pets(seen[-1] if seen else 0, count, status):
                    assert len(page) <= count
                    seen += [pet.id for pet in page]
                    await asyncio.sleep(0)
                await adding
                assert seen == sorted(set(seen))
                assert {pet.id for pet in before if status in (None, pet.status)} <= set(seen)

    @clause("no-aliasing")
    async def test_a_returned_list_belongs_to_the_caller(self, repository: Repository) -> None:
        """A list that the store itself uses is returned, not a copy."""
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
        listed = await repository.list_orders(0, 3, None)
        if isinstance(listed, MutableSequence):
            listed.clear()
        assert list(await repository.list_orders(0, 9, None)) == orders


async def _add_slowly(repository: Repository, count: int) -> None:
    for _ in range(count):
        await repository.create_pet(NewPet("added", 1, PetStatus.AVAILABLE))
        await asyncio.sleep(0)
