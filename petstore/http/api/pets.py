"""The Pets group: listPets, createPet, getPet."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody
from litestar.types import Scope

from petstore.contract import NewPet, Pet, PetStatus
from petstore.http.api.resources import created, parse_id
from petstore.http.deprecation import Deprecation
from petstore.http.errors import not_found
from petstore.http.fast_path import FastResponse
from petstore.http.idempotency import to_token
from petstore.http.pagination import Collection
from petstore.http.state import get_state

PETS_PATH: Final = "/v1/pets"

PETS: Final = Collection("p", PetStatus, PETS_PATH)

GET_PET_DEPRECATION: Final = Deprecation(
    since=datetime(2025, 12, 5, tzinfo=UTC),
    sunset=datetime(2030, 12, 5, tzinfo=UTC),
    successor=PETS_PATH,
)


class PetsController(Controller):
    """The pets."""

    path = "/pets"
    tags = ("Pets",)

    @get(operation_id="listPets", summary="List pets", opt={"errors": (400,), "collection": PETS})
    async def list_pets(self, scope: Scope) -> Response[Sequence[Pet]]:
        """Return a page of pets in ascending id, optionally only those with a given status.

        If there is a next page, the response carries a `Link` header with `rel="next"`. Follow
        the link unchanged until a page has none.
        """
        state = get_state(scope)
        query = PETS.parse(scope["query_string"])
        found = await state.repository.list_pets(query.after, query.limit + 1, query.status)
        page, link = PETS.page(query, found, state.root_path)
        return FastResponse(page, headers={"link": link} if link else None)

    @post(
        operation_id="createPet",
        summary="Add a pet",
        opt={"errors": (400, 409, 413, 415), "creates": True},
    )
    async def create_pet(self, scope: Scope, data: JSONBody[NewPet]) -> Response[Pet]:
        """Add a pet and return it with its assigned id.

        A pet that is added without a status has none, and no status filter matches it.
        """
        state = get_state(scope)
        receipt = await state.repository.create_pet(data, to_token(scope, data))
        pet = Pet(receipt.id, data.name, data.category_id, data.status)
        return created(state, PETS_PATH, pet, receipt)

    @get(
        "/{pet_id:str}",
        operation_id="getPet",
        summary="Get a pet by its id",
        deprecated=True,
        opt={"errors": (404,), "deprecation": GET_PET_DEPRECATION},
    )
    async def get_pet(self, scope: Scope, pet_id: FromPath[str]) -> Pet:
        """Return one pet.

        Deprecated; it will be removed on 5 December 2030: use listPets with its status filter.
        """
        id_ = parse_id(pet_id)
        pet = None if id_ is None else await get_state(scope).repository.get_pet(id_)
        if pet is None:
            raise not_found("Pet")
        return pet
