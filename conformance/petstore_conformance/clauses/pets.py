"""Clauses of pets: each is returned as it was stored; which of them are in a list, how many."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import cycle
from typing import Any

from msgspec import UNSET
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
    Receipt,
    RefusedError,
    Repository,
    TokenRecord,
)
from petstore_conformance.clauses.orders import FINAL_STATUSES, add_pet, place_at
from petstore_conformance.harness.effort import fill, sample
from petstore_conformance.harness.kit import Kit, clause
from petstore_conformance.model.calls import create
from petstore_conformance.model.model import AnyQuery, matching
from petstore_conformance.model.reads import (
    check_page,
    check_pages,
    check_shown,
    check_types,
    every_filter,
    read_each,
    read_page,
)
from petstore_conformance.model.values import (
    AT,
    CATEGORIES,
    LONG_NAMES,
    MANY,
    NAMES,
    NOW,
    PET_STATUSES,
    REX,
    absent_ids,
    make_token,
)


async def some_records(repository: Repository) -> list[TokenRecord]:
    """Return the list of the first page that has records of tokens, or of the last page."""
    page = await repository.list_tokens("", 99, NOW)
    while page.next and not page.records:  # a store in several parts may have empty pages
        page = await repository.list_tokens(page.next, 99, NOW)
    return page.records


async def add_pets(repository: Repository, count: int) -> list[Pet]:
    """Add `count` pets, of every status and of none; return them in ascending id."""
    news = (NewPet(f"{number}", number, PET_STATUSES[number % 4]) for number in range(count))
    return sorted([await create(repository, new) for new in news], key=lambda pet: pet.id)


async def add_slowly(repository: Repository, count: int) -> None:
    """Add available pets, one in an iteration of the event loop."""
    for _ in range(count):
        await repository.create_pet(NewPet("added", 1, PetStatus.AVAILABLE))
        await asyncio.sleep(0)


async def check_lives(repository: Repository, news: Iterable[NewPet], shown: Any = object) -> None:
    """Let pets live, all at once; after each step, they must be returned as they are then.

    shown -- the type of what must be returned; the pets and their orders by default
    """

    async def check(*items: Pet | Order) -> None:
        for item in items:
            if isinstance(item, shown):
                await check_shown(repository, item)

    async def live(new: NewPet, final: OrderStatus) -> None:
        """Create a pet; if it is available, order it, then complete or cancel the order."""
        pet = await create(repository, new)
        await check(pet)
        if pet.status is PetStatus.AVAILABLE:
            order = await place_at(repository, AT, pet.id)
            await check(order, replace(pet, status=PetStatus.PENDING))
            updated = await repository.update_order(order.id, final)
            assert updated == replace(order, status=final)
            await check(updated, replace(pet, status=PET_STATUS_BY_ORDER[final]))

    await asyncio.gather(*map(live, news, cycle(FINAL_STATUSES)))


class PetClauses(Kit):
    """Clauses of `create_pet` and `get_pet`."""

    @clause("id-range")
    async def test_ids_are_between_1_and_the_maximum(self, repository: Repository) -> None:
        """The first id is 0, or the id in the receipt is not an int."""
        for _ in range(3):
            receipt = await repository.create_pet(NewPet("Rex", 7))
            check_types([receipt])
            assert 1 <= receipt.id <= MAX_ID

    @clause("id-once")
    async def test_no_id_is_assigned_twice(self, repository: Repository) -> None:
        """The counter is read and written in two steps, or ids come from something that repeats."""
        ids = [await add_pet(repository) for _ in await sample(repository, range(200))]
        some = await sample(repository, range(100), together=True)
        ids += await asyncio.gather(*(add_pet(repository) for _ in some))
        assert len(set(ids)) == len(ids)

    @clause("name-exact")
    async def test_names_are_returned_exactly(self, repository: Repository) -> None:
        """The name is trimmed, folded, normalized or cut, or ends at a null character."""
        for status, length in ((UNSET, 2**24), (PetStatus.AVAILABLE, 2**20)):
            longest = self.long_name(length), "\U0001f436" * (self.longest_name(length) // 4)
            names = await sample(repository, (*NAMES, *LONG_NAMES, *longest), together=True)
            news = [NewPet(name, 7, status) for name in names]
            await check_lives(repository, self.storable(news), Pet)

    @clause("category-exact")
    async def test_categories_are_returned_exactly(self, repository: Repository) -> None:
        """The category is converted to a float or to a narrower integer."""
        categories = await sample(repository, CATEGORIES, together=True)
        for status in (UNSET, PetStatus.AVAILABLE):
            await check_lives(repository, (NewPet("Rex", c, status) for c in categories), Pet)

    @clause("status-exact")
    async def test_statuses_are_kept_and_absent_ones_stay_so(self, repository: Repository) -> None:
        """An absent status is replaced by a default, or by None."""
        for status in PET_STATUSES:
            pet = await create(repository, NewPet("1", 7, status))
            assert await repository.get_pet(pet.id) == pet
        listed = await repository.list_pets(PetQuery(0, 99))
        assert {pet.status for pet in listed} == {*PET_STATUSES}

    @clause("get-stored")
    async def test_a_stored_pet_is_found_by_its_id(self, repository: Repository) -> None:
        """Another pet is returned, or one with fields of another pet."""
        for pet in reversed(await add_pets(repository, 50)):
            assert await repository.get_pet(pet.id) == pet

    @clause("get-absent")
    async def test_an_absent_pet_is_none(self, repository: Repository) -> None:
        """The id is taken for a position, or an error is raised instead of returning None."""
        assert await repository.get_pet(1) is None
        ids = {(await repository.create_pet(NewPet("Rex", 7))).id for _ in range(3)}
        for absent in absent_ids(*ids):
            assert await repository.get_pet(absent) is None

    @clause("exact-types")
    async def test_results_have_the_types_of_the_contract(self, repository: Repository) -> None:
        """A status is a plain string, an integer a float or a string, or a struct a subclass."""
        found = list[Any]()  # None, or that a call is refused, is what another clause finds
        if not self.remote:  # later ids have more than 32 bits
            await repository.restore(items=[Pet(2**45, "Rex", 7)])
        for status in PET_STATUSES:
            new = NewPet("1", 7, status)
            token = make_token(f"create {status}", new)
            receipt = await repository.create_pet(new=new, token=token)
            again = await repository.create_pet(new=new, token=token)
            assert again.replayed or again.id == receipt.id, "a token by name is not used"
            found += [receipt, again, await repository.get_pet(pet_id=receipt.id)]
        for order_status in OrderStatus:
            pet_id = await add_pet(repository)
            token = make_token(f"place {pet_id}", pet_id)
            receipt = await repository.place_order(pet_id=pet_id, at=AT, token=token)
            order_id = receipt.id
            with suppress(RefusedError):
                found.append(await repository.place_order(pet_id=pet_id, at=AT, token=token))
                found.append(await repository.update_order(order_id=order_id, status=order_status))
            found += [receipt, await repository.get_order(order_id=order_id)]
        for query in every_filter(0, 99):
            of_pets = isinstance(query, PetQuery)
            list_: Any = repository.list_pets if of_pets else repository.list_orders
            page = await list_(query=query)
            assert type(page) is list
            found += page
        if not self.remote:
            found += (await repository.list_tokens(cursor="", count=99, now=NOW)).records
        results = [result for result in found if result is not None]
        assert {type(result) for result in results} >= {Receipt, Pet, Order}
        check_types(results)


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
        pets = await add_pets(repository, 23)
        ids = [pet.id for pet in pets]
        for after in {0, MAX_ID, *ids, *(min(id_ + 1, MAX_ID) for id_ in ids)}:
            for status in (None, *PetStatus):
                await check_page(repository, PetQuery(after, 50, status), pets)
        queries = [PetQuery(id_, count) for id_ in ids for count in range(1, 30)]
        await read_each(repository, queries, lambda query: check_page(repository, query, pets))

    @clause("page-count")
    async def test_a_page_is_full_while_there_are_pets(self, repository: Repository) -> None:
        """The limit is applied before the filter, or the backend limits the page itself."""
        # Those of a status come in a row, so that others must be skipped; some have long names.
        names = [f"{n}" * (1 if n % 60 else self.longest_name(80_000) // 4) for n in range(MANY)]
        news = [NewPet(name, n, PET_STATUSES[n // 600 % 3]) for n, name in enumerate(names)]
        pets = await add_pets(repository, 40)
        pets += await fill(MANY, lambda n: create(repository, news[n]))
        pets.sort(key=lambda pet: pet.id)
        await check_pages(repository, pets)
        ids = [pet.id for pet in pets if pet.status is PetStatus.AVAILABLE]
        many = await sample(repository, ids[:600], together=True)
        ordered = len(many)  # no page may stop at what has changed, be it a whole chunk of an index
        await asyncio.gather(*(repository.place_order(id_, AT) for id_ in ids[:ordered]))
        available = await repository.list_pets(PetQuery(0, 3, PetStatus.AVAILABLE))
        assert [pet.id for pet in available] == ids[ordered : ordered + 3]

    @clause("page-status")
    async def test_a_status_selects_exactly_its_pets(self, repository: Repository) -> None:
        """Pets without a status match, or a page that is not full is not filtered."""
        pets = await add_pets(repository, 23)
        for status in PetStatus:
            await check_page(repository, PetQuery(0, 50, status), pets)

    @clause("page-empty")
    async def test_the_page_is_empty_if_nothing_matches(self, repository: Repository) -> None:
        """None is returned, an error is raised, or a page past the end has the first pets."""
        for status in (None, *PetStatus):
            assert await repository.list_pets(PetQuery(0, 20, status)) == []
            assert await repository.list_pets(PetQuery(MAX_ID, 20, status)) == []
        receipt = await repository.create_pet(NewPet("Rex", 7, PetStatus.PENDING))
        for status in (None, PetStatus.PENDING):
            for after in (min(receipt.id + 1, MAX_ID), MAX_ID):
                assert await repository.list_pets(PetQuery(after, 20, status)) == []

    @clause("page-walk")
    async def test_a_walk_shows_every_pet_once_beside_creates(self, repository: Repository) -> None:
        """Pages are read by offset or from a snapshot, or lack a pet while others are added."""
        before = await add_pets(repository, 40)
        for status in (None, PetStatus.AVAILABLE):
            for count in (1, 7):
                adding = asyncio.create_task(add_slowly(repository, 25))
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
        for status in (None, PetStatus.AVAILABLE):
            pets, query = await repository.list_pets(PetQuery(0, 9999)), PetQuery(0, 4, status)
            for _ in range(3):  # after each page, the next pet that is available is ordered
                page = await repository.list_pets(query)
                assert page == matching(pets, query)[:4]
                query = replace(query, after=page[-1].id)
                pet = matching(pets, replace(query, status=PetStatus.AVAILABLE))[0]
                await repository.place_order(pet.id, AT)
                pets[pets.index(pet)] = replace(pet, status=PetStatus.PENDING)

    @clause("no-aliasing")
    async def test_a_returned_list_belongs_to_the_caller(self, repository: Repository) -> None:
        """A list that the store itself uses is returned, not a copy."""
        # It compares what is returned only with what was returned: nothing else fails it.

        def spoil(returned: list[Any]) -> list[Any]:  # returns what was in it before
            before, stray = [*returned], (Pet(1, "", 1), Order(1, 1, OrderStatus.PLACED, AT))
            returned[:] = [] if before else stray
            return before

        async def read(query: AnyQuery) -> list[Any]:
            page = await read_page(repository, query)
            return page if isinstance(page, list) else []  # anything else fails another clause

        queries = [PetQuery(0, 3), OrderQuery(0, 3), *every_filter(0, 99)]
        for number in range(5):  # at first all pages are empty
            for query in queries:
                for page in (*await asyncio.gather(read(query), read(query)), await read(query)):
                    before = spoil(page)
                    assert [*await read(query)] == before, "a change of a returned list is returned"
            with suppress(RefusedError):
                placed = await repository.place_order(await add_pet(repository), AT)
                kept = [(page := await read(query), [*page]) for query in queries]
                await repository.create_pet(NewPet("Rex", number, PetStatus.SOLD))
                await repository.update_order(placed.id, FINAL_STATUSES[number % 2])
                await repository.place_order(await add_pet(repository), AT)
                assert all([*page] == copy for page, copy in kept), "a returned list has changed"
        for name in () if self.remote else ("one", "another"):  # at first there are no records
            listed, twin = await asyncio.gather(*map(some_records, [repository] * 2))
            records = spoil(listed)
            assert twin == records, "two calls return one list"
            assert await some_records(repository) == records, "a change of records is returned"
            await repository.create_pet(REX, make_token(name, REX))
