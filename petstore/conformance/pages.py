"""Clauses of pages: which animals, how many, in what order."""

import asyncio

from petstore.conformance.kit import Kit, clause
from petstore.contract import MAX_ID, NewPet, Pet, PetStatus, Repository

STATUSES = (PetStatus.AVAILABLE, PetStatus.PENDING, PetStatus.SOLD, None)


async def fill(repository: Repository, count: int) -> list[Pet]:
    """Store animals of every status and of none, in turn; return them in ascending id."""
    pets = []
    for number in range(count):
        status = STATUSES[number % 4]
        new = NewPet(f"{number}", number) if status is None else NewPet(f"{number}", number, status)
        receipt = await repository.create_pet(new)
        pets.append(Pet(receipt.id, new.name, new.category_id, new.status))
    return sorted(pets, key=lambda pet: pet.id)


class PageClauses(Kit):
    """listPets."""

    @clause("page-order")
    async def test_animals_come_in_ascending_id(self, repository: Repository) -> None:
        """Ids are sorted as text, or not at all."""
        await fill(repository, 130)
        for status in (None, *PetStatus):
            ids = [pet.id for pet in await repository.list_pets(0, 200, status)]
            assert ids == sorted(ids)

    @clause("page-after")
    async def test_a_page_begins_right_after_its_cursor(self, repository: Repository) -> None:
        """The animal of the cursor is repeated, or the one after it is skipped."""
        pets = await fill(repository, 12)
        for after in {0, *(pet.id for pet in pets), *(pet.id + 1 for pet in pets)}:
            expected = [pet for pet in pets if pet.id > after]
            assert list(await repository.list_pets(after, 50, None)) == expected
            sold = [pet for pet in expected if pet.status is PetStatus.SOLD]
            assert list(await repository.list_pets(after, 50, PetStatus.SOLD)) == sold

    @clause("page-count")
    async def test_a_page_is_as_long_as_asked_while_there_are_animals(
        self, repository: Repository
    ) -> None:
        """Animals are counted before they are filtered, or a page has a limit of its own."""
        pets = await fill(repository, 420)
        for status in (None, *PetStatus):
            matching = [pet for pet in pets if status in (None, pet.status)]
            for count in (1, 2, 20, 21, 100, 101, len(matching), len(matching) + 1, 5000):
                assert list(await repository.list_pets(0, count, status)) == matching[:count]

    @clause("page-status")
    async def test_a_status_selects_exactly_its_animals(self, repository: Repository) -> None:
        """Animals without a status are counted in, or the last page is not filtered."""
        pets = await fill(repository, 23)
        for status in PetStatus:
            matching = [pet for pet in pets if pet.status is status]
            assert list(await repository.list_pets(0, 50, status)) == matching
            for pet in pets:
                expected = [other for other in matching if other.id > pet.id]
                assert list(await repository.list_pets(pet.id, 50, status)) == expected
                assert list(await repository.list_pets(pet.id, 1, status)) == expected[:1]

    @clause("page-empty")
    async def test_where_nothing_matches_the_page_is_empty(self, repository: Repository) -> None:
        """None or an error is the answer, or a walk begins again at the first animal."""
        for status in (None, *PetStatus):
            assert list(await repository.list_pets(0, 20, status)) == []
            assert list(await repository.list_pets(MAX_ID, 20, status)) == []
        receipt = await repository.create_pet(NewPet("Rex", 7, PetStatus.PENDING))
        for after in (receipt.id, receipt.id + 1, MAX_ID):
            assert list(await repository.list_pets(after, 20, None)) == []
            assert list(await repository.list_pets(after, 20, PetStatus.PENDING)) == []
        assert list(await repository.list_pets(0, 20, PetStatus.SOLD)) == []

    @clause("page-walk")
    async def test_a_walk_meets_every_animal_once_while_others_are_added(
        self, repository: Repository
    ) -> None:
        """Pages are counted off, or an animal can be seen after one with a higher id was."""
        before = await fill(repository, 60)
        for status in (None, PetStatus.AVAILABLE):
            for count in (1, 7):
                adding = asyncio.create_task(_add(repository, 40))
                seen: list[int] = []
                while page := await repository.list_pets(seen[-1] if seen else 0, count, status):
                    assert len(page) <= count
                    seen += [pet.id for pet in page]
                    await asyncio.sleep(0)
                await adding
                assert seen == sorted(set(seen))
                assert {pet.id for pet in before if status in (None, pet.status)} <= set(seen)


async def _add(repository: Repository, count: int) -> None:
    for _ in range(count):
        await repository.create_pet(NewPet("added", 1, PetStatus.AVAILABLE))
        await asyncio.sleep(0)
