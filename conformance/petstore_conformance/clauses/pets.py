"""Clauses of single pets: each is returned as it was stored, under its own id."""

import asyncio
from collections.abc import Sequence
from itertools import cycle

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
    Repository,
)
from petstore_conformance.clauses.orders import FINAL_STATUSES, absent_ids, add_pet
from petstore_conformance.clauses.pages import add_pets
from petstore_conformance.harness.kit import Kit, clause
from petstore_conformance.model.calls import check_shown, check_types, created, sample
from petstore_conformance.model.values import AT, CATEGORIES, LONG_NAMES, NAMES, make_token


async def check_lives(repository: Repository, news: Sequence[NewPet]) -> None:
    """Create pets; order those that are available, then complete or cancel the orders.

    After each step, they must be returned as they are then, also by a list.
    """

    async def check(new: NewPet, final: OrderStatus) -> None:
        pet = created((await repository.create_pet(new)).id, new)
        await check_shown(repository, pet)
        if pet.status is PetStatus.AVAILABLE:
            placed = await repository.place_order(pet.id, AT)
            pet = replace(pet, status=PetStatus.PENDING)
            await check_shown(repository, pet)
            await repository.update_order(placed.id, final)
            await check_shown(repository, replace(pet, status=PET_STATUS_BY_ORDER[final]))

    pairs = zip(news, cycle(FINAL_STATUSES), strict=False)
    await asyncio.gather(*(check(new, final) for new, final in pairs))


class PetClauses(Kit):
    """Clauses of `create_pet` and `get_pet`."""

    @clause("id-range")
    async def test_ids_are_between_1_and_the_maximum(self, repository: Repository) -> None:
        """The first id is 0, or the id in the receipt is not an int."""
        for _ in range(3):
            receipt = await repository.create_pet(NewPet("Rex", 7))
            assert type(receipt) is Receipt
            assert type(receipt.id) is int
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
            longest = "n" * self.longest_name(length)
            names = await sample(repository, (*NAMES, *LONG_NAMES, longest), together=True)
            news = [NewPet(name, 7, status) for name in names]
            await check_lives(repository, self.storable(news))

    @clause("category-exact")
    async def test_categories_are_returned_exactly(self, repository: Repository) -> None:
        """The category is converted to a float or to a narrower integer."""
        categories = await sample(repository, CATEGORIES, together=True)
        for status in (UNSET, PetStatus.AVAILABLE):
            await check_lives(repository, [NewPet("Rex", c, status) for c in categories])

    @clause("status-exact")
    async def test_statuses_are_returned_and_absent_ones_stay_absent(
        self, repository: Repository
    ) -> None:
        """An absent status is replaced by a default, or by None."""
        news = [NewPet("Rex", 7), *(NewPet("Rex", 7, status) for status in PetStatus)]
        for new in news:
            receipt = await repository.create_pet(new)
            pet = await repository.get_pet(receipt.id)
            assert pet is not None
            assert pet.status == new.status
        listed = await repository.list_pets(PetQuery(0, 99))
        assert {pet.status for pet in listed} == {new.status for new in news}

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
    async def test_results_have_exactly_the_types_of_the_contract(
        self, repository: Repository
    ) -> None:
        """A status is a plain string, an integer a float or a string, or a struct a subclass."""
        pets, orders, available = list[Pet](), list[Order](), list[int]()
        statuses = (UNSET, *PetStatus, PetStatus.AVAILABLE, PetStatus.AVAILABLE)
        for category, status in enumerate(statuses):
            new = NewPet("1", category, status)
            token = make_token(f"create {category}", new)
            receipt = await repository.create_pet(new=new, token=token)
            again = await repository.create_pet(new=new, token=token)
            for one in (receipt, again):
                assert type(one) is Receipt
                assert (type(one.id), type(one.replayed)) == (int, bool)
            assert again.replayed or again.id == receipt.id, "a token by name is not used"
            pets += [pet] if (pet := await repository.get_pet(pet_id=receipt.id)) else []
            available += [receipt.id] if status == PetStatus.AVAILABLE else []
        if not self.remote:
            await repository.restore(items=pets)  # equal, so skipped
        check_types(pets, [])
        for pet_id, order_status in zip(available, OrderStatus, strict=True):
            token = make_token(f"place {pet_id}", pet_id)
            receipt = await repository.place_order(pet_id=pet_id, at=AT, token=token)
            assert type(receipt) is Receipt
            assert (type(receipt.id), type(receipt.replayed)) == (int, bool)
            orders.append(await repository.update_order(order_id=receipt.id, status=order_status))
            orders += [order] if (order := await repository.get_order(order_id=receipt.id)) else []
        for status in (None, *PetStatus):
            listed = await repository.list_pets(query=PetQuery(0, 99, status))
            assert type(listed) is list
            pets += listed
        for order_status in (None, *OrderStatus):
            placed = await repository.list_orders(query=OrderQuery(0, 99, order_status))
            assert type(placed) is list
            orders += placed
        assert pets
        assert orders
        check_types(pets, orders)
