"""Litestar with msgspec structs and a guard, as its documentation shows it, on stock uvicorn."""

from typing import Annotated, Any, Literal

from litestar import Litestar, Request, Response, Router, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.params import Parameter
from peer import DEPRECATED, Headers, Pet, RefusedError, Store, check_key, invalid, new_pet

STORE = Store(Pet)


def require_key(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Require a key."""
    check_key(connection.headers.get("authorization"))


@get()
async def list_pets(
    limit: Annotated[int, Parameter(ge=1, le=100)] = 20,
    status: Literal["available", "pending", "sold"] | None = None,
    cursor: Annotated[str | None, Parameter(pattern="^p[01][0-9a-f]{13}$")] = None,
) -> Response[list[Pet]]:
    """Return a page."""
    page, link = STORE.page(limit, status, int(cursor[1:], 16) if cursor else 0)
    return Response(page, headers={"link": link} if link else None)


@post()
async def create_pet(body: bytes) -> Response[Pet]:
    """Add a pet."""
    new = new_pet(body)  # an argument ``data: NewPet`` would take "7" for 7
    pet = STORE.add(new.name, new.category_id, new.status)
    return Response(pet, headers={"location": f"/v1/pets/{pet.id}"})


@get("/{pet_id:str}", response_headers=DEPRECATED)
async def get_pet(pet_id: str) -> Pet:
    """Return one pet."""
    pet: Pet = STORE.get(pet_id)
    return pet


def refuse(request: Request[Any, Any, Any], error: RefusedError) -> Response[bytes]:
    """Respond to an error."""
    more = DEPRECATED if request.url.path.startswith("/v1/pets/") else {}
    headers = error.headers | more
    return Response(
        error.body, status_code=error.status, headers=headers, media_type="application/json"
    )


def refuse_other(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Respond to an error of Litestar's: an invalid request, or an unknown path."""
    if error.status_code == 404:
        return refuse(request, RefusedError(404, "not_found", "Path not found."))
    return refuse(request, invalid(str(error.extra or error.detail)))


router = Router("/v1/pets", route_handlers=[list_pets, create_pet, get_pet], guards=[require_key])
handlers: dict[Any, Any] = {RefusedError: refuse, HTTPException: refuse_other}
app = Headers(Litestar([router], exception_handlers=handlers))  # an unknown path has headers, too
