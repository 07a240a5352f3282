"""The Pets group: listPets, createPet, getPet."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Self

from litestar import Request, Response
from litestar.params import FromPath, JSONBody

from petstore.api import ServiceController, created, parse_id
from petstore.api.idempotency import to_retry
from petstore.api.lean import Reply, get, post
from petstore.contract import NewPet, Pet, PetStatus
from petstore.deprecation import Deprecation
from petstore.errors import not_found
from petstore.paging import Collection
from petstore.service import Service

PETS: Final = "/v1/pets"
KIND: Final = "p"  # what the cursors of animals begin with

DEPRECATION: Final = Deprecation(
    since=datetime(2025, 12, 5, tzinfo=UTC),
    sunset=datetime(2030, 12, 5, tzinfo=UTC),
    successor=PETS,
)


class PetsController(ServiceController):
    """The animals."""

    path = PETS
    tags = ("Pets",)
    collection: ClassVar[Collection[PetStatus]]

    @classmethod
    def of(cls, service: Service) -> type[Self]:
        """Return this controller, bound to a service."""
        bound = super().of(service)
        bound.collection = Collection(KIND, PetStatus, service.root + PETS)
        return bound

    @get(
        operation_id="listPets",
        summary="List animals",
        opt={"errors": (400,), "collection": KIND},
    )
    async def list_pets(self, request: Request[Any, Any, Any]) -> Response[Sequence[Pet]]:
        """Return a page of animals in ascending id, optionally of one availability status.

        Every page that has a successor carries a `Link` header with `rel="next"`; follow it as
        it is, until a page has none.
        """
        query = self.collection.parse(request.scope["query_string"])
        found = await self.service.repository.list_pets(query.after, query.limit + 1, query.status)
        page, link = self.collection.page(query, found)
        return Reply(page, headers={"link": link} if link else None)

    @post(
        operation_id="createPet",
        summary="Add an animal",
        opt={"errors": (400, 409, 413, 415), "created": True},
    )
    async def create_pet(
        self, request: Request[Any, Any, Any], data: JSONBody[NewPet]
    ) -> Response[Pet]:
        """Add an animal and return it with the id that the service gave it.

        Without a status it has none, and no status filter finds it.
        """
        retry = to_retry(request, self.service, data)
        receipt = await self.service.repository.create_pet(data, retry)
        pet = Pet(receipt.id, data.name, data.category_id, data.status)
        return created(pet, f"{self.service.root}{PETS}", receipt)

    @get(
        "/{pet_id:str}",
        operation_id="getPet",
        summary="Get an animal by its id",
        deprecated=True,
        opt={"errors": (404,), "deprecation": DEPRECATION},
    )
    async def get_pet(self, pet_id: FromPath[str]) -> Pet:
        """Return one animal.

        Deprecated, to be removed on 5 December 2030: use listPets with its status filter.
        """
        number = parse_id(pet_id)
        pet = None if number is None else await self.service.repository.get_pet(number)
        if pet is None:
            raise not_found("This animal")
        return pet
