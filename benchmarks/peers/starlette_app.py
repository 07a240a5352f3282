"""Starlette with msgspec, on stock uvicorn."""

from typing import Any

from peer import DEPRECATED, Headers, Pet, RefusedError, Store, check_key, encode, new_pet, query
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

STORE = Store(Pet)


def json_response(
    content: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a JSON response."""
    return Response(content, status, headers, "application/json")


async def list_pets(request: Request) -> Response:
    """Return a page."""
    check_key(request.headers.get("authorization"))
    page, link = STORE.page(*query(request.query_params.getlist))
    return json_response(encode(page), headers={"link": link} if link else None)


async def create_pet(request: Request) -> Response:
    """Add a pet."""
    check_key(request.headers.get("authorization"))
    new = new_pet(await request.body())
    pet = STORE.add(new.name, new.category_id, new.status)
    return json_response(encode(pet), 201, {"location": f"/v1/pets/{pet.id}"})


async def get_pet(request: Request) -> Response:
    """Return one pet."""
    try:
        check_key(request.headers.get("authorization"))
        pet = STORE.get(request.path_params["pet_id"])
    except RefusedError as error:
        error.headers |= DEPRECATED
        raise
    return json_response(encode(pet), headers=DEPRECATED)


async def refuse(_: Request, error: Any) -> Response:
    """Respond to an error."""
    return json_response(error.body, error.status, error.headers)


async def unrouted(request: Request, _: Exception) -> Response:
    """Respond to an unknown path."""
    return await refuse(request, RefusedError(404, "not_found", "Path not found."))


app = Starlette(
    routes=[
        Route("/v1/pets", list_pets, methods=["GET"]),
        Route("/v1/pets", create_pet, methods=["POST"]),
        Route("/v1/pets/{pet_id}", get_pet),
    ],
    middleware=[Middleware(Headers)],
    exception_handlers={RefusedError: refuse, HTTPException: unrouted},
)
