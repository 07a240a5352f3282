"""aiohttp with msgspec, on its own server and uvloop.

Run: python aiohttp_app.py PORT
"""

import sys
from collections.abc import Awaitable, Callable

import uvloop
from aiohttp import web
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
routes = web.RouteTableDef()


def json_response(
    body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Return a JSON response."""
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


@web.middleware
async def middleware(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Require a key, respond to errors, add the headers of every response."""
    response: web.StreamResponse
    try:
        if request.path.startswith("/v1/"):
            check_key(request.headers.get("authorization"))
        response = await handler(request)
    except RefusedError as error:
        response = json_response(error.body, error.status, error.headers)
    except web.HTTPNotFound:
        unrouted = RefusedError(404, "not_found", "Path not found.")
        response = json_response(unrouted.body, unrouted.status)
    response.headers["x-request-id"] = request_id(request.headers.get("x-request-id"))
    response.headers.update(ALWAYS)
    if request.path.startswith("/v1/pets/"):
        response.headers.update(DEPRECATED)
    return response


@routes.get("/v1/pets", allow_head=False)
async def list_pets(request: web.Request) -> web.Response:
    """Return a page."""
    given = request.query
    page, link = STORE.page(*query(lambda name: given.getall(name, ())))
    return json_response(encode(page), headers={"link": link} if link else None)


@routes.post("/v1/pets")
async def create_pet(request: web.Request) -> web.Response:
    """Add a pet."""
    new = new_pet(await request.read())
    pet = STORE.add(new.name, new.category_id, new.status)
    return json_response(encode(pet), 201, {"location": f"/v1/pets/{pet.id}"})


@routes.get("/v1/pets/{pet_id}", allow_head=False)
async def get_pet(request: web.Request) -> web.Response:
    """Return one pet."""
    return json_response(encode(STORE.get(request.match_info["pet_id"])))


if __name__ == "__main__":
    app = web.Application(middlewares=[middleware])
    app.add_routes(routes)
    loop = uvloop.new_event_loop()
    port = int(sys.argv[1])
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, loop=loop)
