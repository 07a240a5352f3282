"""The Pets group: listPets, createPet, getPet."""

from datetime import UTC, datetime
from typing import Final

from litestar import Controller, get, post
from litestar.params import FromPath, JSONBody

from petstore.contract import NewPet, Pet, PetQuery
from petstore.http.api.resources import created, parse_id
from petstore.http.errors import not_found
from petstore.http.headers import Deprecation
from petstore.http.idempotency import to_token
from petstore.http.pagination import Collection
from petstore.http.request import Response, ServiceRequest
from petstore.http.routes import API_PREFIX

PETS_PATH: Final = f"{API_PREFIX}/pets"

PETS: Final = Collection("p", PetQuery, PETS_PATH)

GET_PET_DEPRECATION: Final = Deprecation(
    since=datetime(2025, 12, 5, tzinfo=UTC),
    sunset=datetime(2030, 12, 5, tzinfo=UTC),
    successor=PETS_PATH,
)


class PetsController(Controller):
    """What clients may do with pets."""

    path = "/pets"
    tags = ("Pets",)

    @get(operation_id="listPets", summary="List pets", opt={"errors": (400,), "collection": PETS})
    async def list_pets(self, request: ServiceRequest) -> Response[list[Pet]]:
        """Return a page of pets in ascending id, optionally only those with a given status.

        If there is a next page, the response carries a `Link` header with `rel="next"`. Follow
        the link unchanged until a page has none.
        """
        service = request.service
        query = PETS.parse(request.scope["query_string"])
        if (turn := request.acquire_page(query.count)) is not None:
            await turn
        found = await service.repository.list_pets(query)
        return PETS.page(query, found, service.root_path)

    @post(
        operation_id="createPet",
        summary="Add a pet",
        opt={"errors": (400, 409, 413, 415), "creates": True},
    )
    async def create_pet(self, request: ServiceRequest, data: JSONBody[NewPet]) -> Response[Pet]:
        """Add a pet and return it with its assigned id.

        A pet that is added without a status has none, and no status filter matches it.
        """
        request.writing = True
        receipt = await request.service.repository.create_pet(data, to_token(request, data))
        pet = Pet(receipt.id, data.name, data.category_id, data.status)
        return created(request, PETS_PATH, pet, receipt)

    @get(
        "/{pet_id:str}",
        operation_id="getPet",
        summary="Get a pet by its id",
        deprecated=True,
        opt={"errors": (404,), "deprecation": GET_PET_DEPRECATION},
    )
    async def get_pet(self, request: ServiceRequest, pet_id: FromPath[str]) -> Pet:
        """Return one pet.

        Deprecated; it will be removed on 5 December 2030: use listPets with its status filter.
        """
        id_ = parse_id(pet_id)
        pet = None if id_ is None else await request.service.repository.get_pet(id_)
        if pet is None:
            raise not_found("Pet")
        return pet
