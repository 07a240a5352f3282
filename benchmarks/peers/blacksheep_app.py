"""BlackSheep with msgspec, on stock uvicorn."""

from collections.abc import Awaitable, Callable
from typing import Any

from blacksheep import Application, Content, Request, Response
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
FIELDS = [(name.encode(), value.encode()) for name, value in ALWAYS.items()]
DEPRECATION = [(name.encode(), value.encode()) for name, value in DEPRECATED.items()]
app = Application()


def header(request: Request, name: bytes) -> str | None:
    """Return a header of a request."""
    value = request.get_first_header(name)
    return None if value is None else value.decode("latin-1")


def json_response(status: int, content: bytes, *headers: tuple[bytes, bytes]) -> Response:
    """Return a JSON response."""
    return Response(status, [*headers], Content(b"application/json", content))


def finish(request: Request, response: Response) -> Response:
    """Add the headers of every response."""
    id_ = request_id(header(request, b"x-request-id"))
    response.add_header(b"x-request-id", id_.encode())
    for name, value in FIELDS:
        response.add_header(name, value)
    return response


async def middleware(
    request: Request, handler: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Require a key, and finish good responses."""
    check_key(header(request, b"authorization"))
    return finish(request, await handler(request))


app.middlewares.append(middleware)


@app.router.get("/v1/pets")
async def list_pets(request: Request) -> Response:
    """Return a page."""
    given = request.query
    page, link = STORE.page(*query(lambda name: given.get(name, ())))
    return json_response(200, encode(page), *([(b"link", link.encode())] if link else []))


@app.router.post("/v1/pets")
async def create_pet(request: Request) -> Response:
    """Add a pet."""
    new = new_pet(await request.read() or b"")
    pet = STORE.add(new.name, new.category_id, new.status)
    return json_response(201, encode(pet), (b"location", b"/v1/pets/%d" % pet.id))


@app.router.get("/v1/pets/{pet_id}")
async def get_pet(request: Request) -> Response:
    """Return one pet."""
    values: Any = request.route_values
    return json_response(200, encode(STORE.get(values["pet_id"])), *DEPRECATION)


@app.exception_handler(RefusedError)
async def refuse(_: Application, request: Request, error: RefusedError) -> Response:
    """Respond to an error."""
    headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    if request.path.startswith("/v1/pets/"):
        headers += DEPRECATION
    return finish(request, json_response(error.status, error.body, *headers))


@app.exception_handler(404)
async def unrouted(app: Application, request: Request, _: Exception) -> Response:
    """Respond to an unknown path."""
    return await refuse(app, request, RefusedError(404, "not_found", "Path not found."))
