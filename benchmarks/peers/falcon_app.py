"""Falcon (ASGI) with msgspec, on stock uvicorn."""

from typing import Any

import falcon
import falcon.asgi
from peer import (
    ALWAYS,
    DEPRECATED,
    Pet,
    RefusedError,
    Store,
    check_key,
    encode,
    new_pet,
    query,
    request_id,
)

STORE = Store(Pet)
Request = falcon.asgi.Request
Response = falcon.asgi.Response


class Middleware:
    """The headers of every response, and the key."""

    async def process_request(self, request: Request, response: Response) -> None:
        """Set the headers of every response."""
        id_ = request_id(request.get_header("x-request-id"))
        response.set_headers({"x-request-id": id_, **ALWAYS})

    async def process_resource(
        self, request: Request, _: Response, resource: Any, __: dict[str, str]
    ) -> None:
        """Require a key for every resource."""
        if resource is not None:
            check_key(request.get_header("authorization"))


class Pets:
    """The collection."""

    async def on_get(self, request: Request, response: Response) -> None:
        """Return a page."""
        page, link = STORE.page(*query(lambda name: request.get_param_as_list(name) or ()))
        if link:
            response.set_header("link", link)
        response.data = encode(page)

    async def on_post(self, request: Request, response: Response) -> None:
        """Add a pet."""
        new = new_pet(await request.stream.read())
        pet = STORE.add(new.name, new.category_id, new.status)
        response.status = 201
        response.set_header("location", f"/v1/pets/{pet.id}")
        response.data = encode(pet)


class OnePet:
    """One pet."""

    async def on_get(self, _: Request, response: Response, pet_id: str) -> None:
        """Return it."""
        response.set_headers(DEPRECATED)
        response.data = encode(STORE.get(pet_id))


async def refuse(request: Request, response: Response, error: RefusedError, _: Any) -> None:
    """Respond to an error."""
    if request.path.startswith("/v1/pets/"):
        response.set_headers(DEPRECATED)
    response.status = error.status
    response.set_headers(error.headers)
    response.data = error.body


async def unrouted(request: Request, response: Response, _: Any, params: Any) -> None:
    """Respond to an unknown path."""
    error = RefusedError(404, "not_found", "Path not found.")
    await refuse(request, response, error, params)


app = falcon.asgi.App(middleware=[Middleware()])
app.add_route("/v1/pets", Pets())
app.add_route("/v1/pets/{pet_id}", OnePet())
app.add_error_handler(RefusedError, refuse)
app.add_error_handler(falcon.HTTPNotFound, unrouted)
