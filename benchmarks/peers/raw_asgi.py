"""A raw ASGI function on uvicorn, with the server settings of petstore: the lowest possible cost.

Run: python raw_asgi.py PORT
"""

import hashlib
import re
import sys
from typing import Any
from urllib.parse import unquote_plus

import peer
import uvicorn
from peer import CLIENTS, DEPRECATED, Pet, RefusedError, Store, encode, numbers

STORE = Store(Pet)
JSON = (b"content-type", b"application/json")
ALWAYS = [(name.encode(), value.encode()) for name, value in peer.ALWAYS.items()]
DEPRECATION = [(name.encode(), value.encode()) for name, value in DEPRECATED.items()]
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
BEARER = re.compile(rb"bearer +([^ ]+) *", re.IGNORECASE)
PROCESS = peer.process


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Handle a request."""
    path = scope["path"]
    key = id_ = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            key = value
        elif name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            id_ = value
    if id_ is None:
        id_ = b"%s-%x" % (PROCESS.encode(), next(numbers))
    headers = [JSON, (b"x-request-id", id_), *ALWAYS]
    status = 200
    if path.startswith("/v1/pets/"):
        headers += DEPRECATION
    try:
        if path == "/v1/pets":
            check_key(key)
            if scope["method"] == "GET":
                body = list_pets(scope["query_string"], headers)
            else:
                body = await create_pet(receive, headers)
                status = 201
        elif path.startswith("/v1/pets/"):
            check_key(key)
            body = encode(STORE.get(path[9:]))
        else:
            raise RefusedError(404, "not_found", "Path not found.")  # noqa: TRY301
    except RefusedError as error:
        status, body = error.status, error.body
        headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def check_key(value: bytes | None) -> None:
    """Raise 401 unless the value of the header Authorization holds a valid key."""
    match = None if value is None else BEARER.fullmatch(value)
    if match is None or hashlib.sha256(match[1]).digest() not in CLIENTS:
        peer.check_key(None if value is None else value.decode("latin-1"))


def list_pets(query_string: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a page; its Link goes to the headers."""
    found: dict[str, list[str]] = {}
    if query_string:
        for pair in query_string.decode("latin-1").split("&"):
            name, _, value = pair.partition("=")
            if "%" in pair or "+" in pair:
                name, value = unquote_plus(name), unquote_plus(value)
            found.setdefault(name, []).append(value)
    page, link = STORE.page(*peer.query(lambda name: found.get(name, ())))
    if link:
        headers.append((b"link", link.encode()))
    return encode(page)


async def create_pet(receive: Any, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Add a pet; its Location goes to the headers."""
    message = await receive()
    content = message["body"]
    while message["more_body"]:
        message = await receive()
        content += message["body"]
    new = peer.new_pet(content)
    pet = STORE.add(new.name, new.category_id, new.status)
    headers.append((b"location", b"/v1/pets/%d" % pet.id))
    return encode(pet)


def main() -> None:
    """Serve as petstore does."""
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    main()
