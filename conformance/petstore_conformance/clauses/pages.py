"""Clauses of lists: which pets, how many, in what order."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    RefusedError,
    Repository,
)
from petstore_conformance.clauses.orders import FINAL_STATUSES, add_pet
from petstore_conformance.clauses.records import record_of
from petstore_conformance.harness.kit import Kit, clause
from petstore_conformance.model.calls import (
    check_pages,
    create_all,
    created,
    every_filter,
    fill,
    read_each,
    read_page,
    sample,
)
from petstore_conformance.model.model import matching
from petstore_conformance.model.values import AT, MANY, NOW, PET_STATUSES, REX, make_token


async def add_pets(repository: Repository, count: int) -> list[Pet]:
    """Add `count` pets, of every status and of none; return them in ascending id."""
    pets = []
    for number in range(count):
        new = NewPet(f"{number}", number, PET_STATUSES[number % 4])
        receipt = await repository.create_pet(new)
        pets.append(created(receipt.id, new))
    return sorted(pets, key=lambda pet: pet.id)


class PageClauses(Kit):
    """Clauses of `list_pets`, and the one of returned lists."""

    @clause("page-order")
    async def test_pets_are_in_ascending_id(self, repository: Repository) -> None:
        """Ids are sorted as text, or not at all."""
        await add_pets(repository, len(await sample(repository, range(130))))
        for status in (None, *PetStatus):
            ids = [pet.id for pet in await repository.list_pets(PetQuery(0, 200, status))]
            assert ids == sorted(ids)

    @clause("page-after")
    async def test_a_page_begins_right_after_the_given_id(self, repository: Repository) -> None:
        """The pet with the given id is repeated, or the one after it is skipped."""
        pets = await add_pets(repository, 12)
        beyond = {min(pet.id + 1, MAX_ID) for pet in pets}
        for after in {0, *(pet.id for pet in pets), *beyond}:
            for status in (None, *PetStatus):
                query = PetQuery(after, 50, status)
                assert await repository.list_pets(query) == matching(pets, query)
        queries = [PetQuery(pet.id, count) for pet in pets for count in range(1, 30)]

        async def read(query: PetQuery) -> None:
            assert await repository.list_pets(query) == matching(pets, query)[: query.count]

        await read_each(repository, queries, read)

    @clause("page-count")
    async def test_a_page_is_full_while_there_are_pets(self, repository: Repository) -> None:
        """The limit is applied before the filter, or the backend limits the page itself."""

        async def create(some: range) -> list[Pet]:
            # Those of a status come in a row, so that others must be skipped; some have long names.
            names = [f"{n}" * (1 if n % 60 else self.longest_name(80_000) // 4) for n in some]
            statuses = [PET_STATUSES[n // 400 % 3] for n in some]
            news = [NewPet(*fields) for fields in zip(names, some, statuses, strict=True)]
            return await create_all(repository, news)

        pets = await add_pets(repository, 40) + await fill(MANY, create)
        pets.sort(key=lambda pet: pet.id)
        await check_pages(repository, pets)
        ids = [pet.id for pet in pets if pet.status is PetStatus.AVAILABLE]
        many = await sample(repository, ids[:300], together=True)
        ordered = len(many)  # no page may stop at what has changed
        await asyncio.gather(*(repository.place_order(id_, AT) for id_ in ids[:ordered]))
        available = await repository.list_pets(PetQuery(0, 3, PetStatus.AVAILABLE))
        assert [pet.id for pet in available] == ids[ordered : ordered + 3]

    @clause("page-status")
    async def test_a_status_selects_exactly_its_pets(self, repository: Repository) -> None:
        """Pets without a status match, or a page that is not full is not filtered."""
        pets = await add_pets(repository, 23)
        for status in PetStatus:
            query = PetQuery(0, 50, status)
            assert await repository.list_pets(query) == matching(pets, query)
            for pet in pets:
                found = await repository.list_pets(replace(query, after=pet.id))
                assert {pet.status for pet in found} <= {status}

    @clause("page-empty")
    async def test_the_page_is_empty_if_nothing_matches(self, repository: Repository) -> None:
        """None is returned, an error is raised, or a page past the end has the first pets."""
        for status in (None, *PetStatus):
            assert await repository.list_pets(PetQuery(0, 20, status)) == []
            assert await repository.list_pets(PetQuery(MAX_ID, 20, status)) == []
        receipt = await repository.create_pet(NewPet("Rex", 7, PetStatus.PENDING))
        for after in (min(receipt.id + 1, MAX_ID), MAX_ID):
            assert await repository.list_pets(PetQuery(after, 20)) == []
            assert await repository.list_pets(PetQuery(after, 20, PetStatus.PENDING)) == []

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
                query = PetQuery(0, count, status)
                while page := await repository.list_pets(query):
                    assert len(page) <= count
                    seen += [pet.id for pet in page]
                    query = replace(query, after=seen[-1])
                    await asyncio.sleep(0)
                await adding
                assert seen == sorted(set(seen))
                assert {pet.id for pet in before if status in (None, pet.status)} <= set(seen)
        orders = dict[int, int]()

        async def order(pet: Pet) -> PetStatus:
            orders[pet.id] = (await repository.place_order(pet.id, AT)).id
            return PetStatus.PENDING

        async def finish(pet: Pet) -> PetStatus:
            status = FINAL_STATUSES[len(orders) % 2]
            await repository.update_order(orders.pop(pet.id), status)
            return PET_STATUS_BY_ORDER[status]

        for pets, change, filters in (
            (lambda pet: pet.status is PetStatus.AVAILABLE, order, (None, PetStatus.AVAILABLE)),
            (lambda pet: pet.id in orders, finish, (None, PetStatus.PENDING)),
        ):
            for status in filters:
                await _walk_while_pets_change(repository, status, pets, change)

    @clause("no-aliasing")
    async def test_a_returned_list_belongs_to_the_caller(self, repository: Repository) -> None:
        """A list that the store itself uses is returned, not a copy."""
        # It compares what is returned only with what was returned: nothing else fails it.
        stray: Any = (Pet(1, "", 1), Order(1, 1, OrderStatus.PLACED, AT))
        queries = [PetQuery(0, 3), OrderQuery(0, 3), *every_filter(0, 99)]
        reads = [partial(read_page, repository, query) for query in queries]
        closing = (OrderStatus.COMPLETED, OrderStatus.CANCELLED)
        for number in range(5):  # at first all pages are empty
            for read in reads:
                for page in (await read(), await read()):
                    before = [*page]
                    if isinstance(page, list):  # anything else fails another clause
                        page[:] = [] if page else stray
                    assert [*await read()] == before, "a change of a returned list is returned"
            with suppress(RefusedError):
                placed = await repository.place_order(await add_pet(repository), AT)
                kept, pages = list[Any](), list[Any]()
                for read in reads:
                    kept.append(page := await read())
                    pages.append([*page])
                await repository.create_pet(NewPet("Rex", number, PetStatus.SOLD))
                await repository.update_order(placed.id, closing[number % 2])
                await repository.place_order(await add_pet(repository), AT)
                assert [[*page] for page in kept] == pages, "a returned list has changed afterwards"
        if not self.remote:
            token = make_token("create", REX)
            record = record_of(token, (await repository.create_pet(REX, token)).id)
            cursor, listed = "", await repository.list_tokens("", 99, NOW)
            while listed.next and not listed.records:  # others of a store in parts may be empty
                cursor, listed = listed.next, await repository.list_tokens(listed.next, 99, NOW)
            for _ in range(3):
                page = (await repository.list_tokens(cursor, 99, NOW)).records
                assert page == [record], "a change of a returned list is returned"
                page.clear()


async def _walk_while_pets_change(
    repository: Repository,
    status: PetStatus | None,
    changes: Callable[[Pet], bool],
    change: Callable[[Pet], Awaitable[PetStatus]],
) -> None:
    """Read three pages; after each, change two of the pets that follow it.

    changes -- whether a pet can be changed
    change -- changes a pet and returns its new status
    """
    pets, after = await repository.list_pets(PetQuery(0, 9999)), 0
    for _ in range(3):
        query = PetQuery(after, 4, status)
        found = await repository.list_pets(query)
        assert found == matching(pets, query)[:4]
        after = found[-1].id
        for pet in [pet for pet in pets if pet.id > after and changes(pet)][:2]:
            pets[pets.index(pet)] = replace(pet, status=await change(pet))


async def _add_slowly(repository: Repository, count: int) -> None:
    for _ in range(count):
        await repository.create_pet(NewPet("added", 1, PetStatus.AVAILABLE))
        await asyncio.sleep(0)
