"""Clauses of single pets: each is returned as it was stored, under its own id."""

from petstore.conformance.kit import Kit, clause
from petstore.contract import MAX_ID, NewPet, Pet, PetStatus, Receipt, Repository

NAMES = (
    *("", " ", "  Rex  ", "\tRex\n", "a b", "a\r\nb"),  # white space
    *("Rex", "rex", "REX"),  # case
    *("\x00", "a\x00b", "\x00\x00", "\x01\x1f\x7f\x80"),  # control characters
    *("null", "None", "1", "1.0", "true"),  # what looks like another type
    *("%s", "%00", "\\x00", "\\", "'", '"', "''; DROP TABLE pets; --", "<b>&amp;</b>"),  # quoting
    *("{ps}", "*", "?", "[a]", "a:b", "a,b"),  # patterns and separators
    *("\u00e9", "e\u0301", "\u212b", "\ufb01"),  # normalization
    *("\u1e9e", "\u00df", "\u0130", "\u0131"),  # case folding
    *("\u2028\u2029", "\u202eRex", "\ufeffRex", "\ufffd", "\uffff"),  # separators, marks, the last
    *("\U0001f436", "\U0001f468\u200d\U0001f469", "\U0010ffff"),  # beyond 16 bits
    *("n" * 300, "n" * 70_000, "\U0001f436" * 16_000),  # length
)

CATEGORIES = (
    *(0, 1, -1, 7, 255, 256),
    *(2**31 - 1, 2**31, -(2**31)),  # around 32 bits
    *(2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1),  # around what a double holds exactly
    *(2**62 + 1, 2**63 - 1, -(2**63), -(2**63) + 1),  # up to 64 bits
)


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
        ids = [(await repository.create_pet(NewPet("Rex", 7))).id for _ in range(300)]
        assert len(set(ids)) == len(ids)

    @clause("name-exact")
    async def test_names_are_returned_exactly(self, repository: Repository) -> None:
        """The name is trimmed, folded, normalized or cut, or ends at a null character."""
        for name in NAMES:
            receipt = await repository.create_pet(NewPet(name, 7))
            assert await repository.get_pet(receipt.id) == Pet(receipt.id, name, 7)
        listed = await repository.list_pets(0, len(NAMES), None)
        assert sorted(pet.name for pet in listed) == sorted(NAMES)

    @clause("category-exact")
    async def test_categories_are_returned_exactly(self, repository: Repository) -> None:
        """The category is converted to a float or to a narrower integer."""
        for category in CATEGORIES:
            receipt = await repository.create_pet(NewPet("Rex", category))
            assert await repository.get_pet(receipt.id) == Pet(receipt.id, "Rex", category)
        listed = await repository.list_pets(0, len(CATEGORIES), None)
        assert sorted(pet.category_id for pet in listed) == sorted(CATEGORIES)

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
            assert pet.status is new.status
        listed = await repository.list_pets(0, len(news), None)
        assert {pet.status for pet in listed} == {new.status for new in news}

    @clause("get-stored")
    async def test_a_stored_pet_is_found_by_its_id(self, repository: Repository) -> None:
        """Another pet is returned, or one with fields of another pet."""
        stored = {}
        for number in range(50):
            new = NewPet(f"pet {number}", number, list(PetStatus)[number % 3])
            receipt = await repository.create_pet(new)
            stored[receipt.id] = Pet(receipt.id, new.name, new.category_id, new.status)
        for pet_id, pet in reversed(stored.items()):
            assert await repository.get_pet(pet_id) == pet

    @clause("get-absent")
    async def test_an_absent_pet_is_none(self, repository: Repository) -> None:
        """The id is taken for a position, or an error is raised instead of returning None."""
        assert await repository.get_pet(1) is None
        ids = {(await repository.create_pet(NewPet("Rex", 7))).id for _ in range(3)}
        for absent in {1, 2, 3, 4, 5, max(ids) + 1, 2**31, 2**53 - 1} - ids:
            assert await repository.get_pet(absent) is None

    @clause("exact-types")
    async def test_results_have_exactly_the_types_of_the_contract(
        self, repository: Repository
    ) -> None:
        """A status is a plain string, an integer a float or a string, or a struct a subclass."""
        receipt = await repository.create_pet(NewPet("Rex", 7, PetStatus.SOLD))
        found = [await repository.get_pet(receipt.id)]
        found += await repository.list_pets(0, 1, None)
        found += await repository.list_pets(0, 1, PetStatus.SOLD)
        assert len(found) == 3
        for pet in found:
            assert type(pet) is Pet
            assert type(pet.id) is int
            assert type(pet.name) is str
            assert type(pet.category_id) is int
            assert type(pet.status) is PetStatus
