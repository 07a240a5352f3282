"""Litestar with Advanced Alchemy's plugin and service, as its tutorial shows it: get and create.

It runs as `litestar_app` does, with the address of a database in DATABASE_URL.
"""

import os
from typing import Any

from advanced_alchemy.extensions.litestar import (
    AsyncSessionConfig,
    SQLAlchemyAsyncConfig,
    SQLAlchemyPlugin,
    base,
    providers,
    repository,
    service,
)
from litestar import Controller, Litestar, Response, get, post
from litestar.exceptions import HTTPException
from litestar_app import refuse, refuse_other, require_key
from peer import DEPRECATED, Headers, Pet, RefusedError, new_pet, pet_id
from sqlalchemy.orm import Mapped


class PetModel(base.BigIntBase):
    """A row."""

    __tablename__ = "pets"

    name: Mapped[str]
    category_id: Mapped[int]
    status: Mapped[str | None]


class PetService(service.SQLAlchemyAsyncRepositoryService[PetModel]):
    """The pets."""

    class Repository(repository.SQLAlchemyAsyncRepository[PetModel]):
        """Their table."""

        model_type = PetModel

    repository_type = Repository


class PetController(Controller):
    """The operations."""

    path = "/v1/pets"
    guards = (require_key,)
    dependencies = providers.create_service_dependencies(PetService, key="pets")

    @post()
    async def create_pet(self, pets: PetService, body: bytes) -> Response[Pet]:
        """Add a pet."""
        new = new_pet(body)
        row = {"name": new.name, "category_id": new.category_id, "status": new.status or None}
        pet = to_pet(await pets.create(row))
        return Response(pet, headers={"location": f"/v1/pets/{pet.id}"})

    @get("/{text:str}", response_headers=DEPRECATED)
    async def get_pet(self, pets: PetService, text: str) -> Pet:
        """Return one pet."""
        row = await pets.get_one_or_none(id=pet_id(text))
        if row is None:
            raise RefusedError(404, "not_found", "Pet not found.")
        return to_pet(row)


def to_pet(row: PetModel) -> Pet:
    """Return the pet of a row."""
    return Pet(row.id, row.name, row.category_id, *([row.status] if row.status else []))


alchemy = SQLAlchemyAsyncConfig(
    connection_string=os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+asyncpg:"),
    before_send_handler="autocommit",
    session_config=AsyncSessionConfig(expire_on_commit=False),
)
handlers: dict[Any, Any] = {RefusedError: refuse, HTTPException: refuse_other}
app = Headers(
    Litestar(
        [PetController],
        plugins=[SQLAlchemyPlugin(config=alchemy)],
        exception_handlers=handlers,
    )
)
