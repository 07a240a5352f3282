"""The raw function on granian's own interface, RSGI, whose headers and paths are strings."""

from typing import Any
from urllib.parse import parse_qs

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
SENT = [("content-type", "application/json"), *ALWAYS.items()]


async def app(scope: Any, protocol: Any) -> None:
    """Handle a request."""
    get, path = scope.headers.get, scope.path
    headers = [*SENT, ("x-request-id", request_id(get("x-request-id")))]
    status = 200
    if path.startswith("/v1/pets/"):
        headers += DEPRECATED.items()
    try:
        if path != "/v1/pets" and not path.startswith("/v1/pets/"):
            raise RefusedError(404, "not_found", "Path not found.")  # noqa: TRY301
        check_key(get("authorization"))
        if path != "/v1/pets":
            body = encode(STORE.get(path[9:]))
        elif scope.method == "GET":
            found = parse_qs(scope.query_string)
            page, link = STORE.page(*query(lambda name: found.get(name, ())))
            body = encode(page)
            headers += [("link", link)] if link else []
        else:
            new = new_pet(await protocol())
            pet = STORE.add(new.name, new.category_id, new.status)
            status, body = 201, encode(pet)
            headers.append(("location", f"/v1/pets/{pet.id}"))
    except RefusedError as error:
        status, body = error.status, error.body
        headers += error.headers.items()
    protocol.response_bytes(status, [*headers, ("content-length", str(len(body)))], body)
