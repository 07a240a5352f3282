"""The raw ASGI function with asyncpg, its pool and transactions, as it documents them.

Run: DATABASE_URL=... python raw_postgres.py PORT
"""

import os
from datetime import UTC, datetime
from typing import Any

import asyncpg
from msgspec import UNSET
from peer import (
    Order,
    Pet,
    RefusedError,
    encode,
    new_order,
    new_pet,
    not_available,
    numbers,
    pet_id,
)
from raw_asgi import ALWAYS, DEPRECATION, JSON, PROCESS, REQUEST_ID, check_key, serve

GET = "SELECT id, name, category_id, status FROM pets WHERE id = $1"
CREATE = "INSERT INTO pets (name, category_id, status) VALUES ($1, $2, $3) RETURNING id"
RESERVE = "UPDATE pets SET status = 'pending' WHERE id = $1 AND status = 'available' RETURNING id"
PLACE = "INSERT INTO orders (pet_id, status, placed_at) VALUES ($1, 'placed', $2) RETURNING id"
pool: Any = None


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Handle a request, or open the pool."""
    if scope["type"] == "lifespan":
        await open_pool(receive, send)
        return
    path = scope["path"]
    sent = dict(scope["headers"])
    id_ = sent.get(b"x-request-id")
    if id_ is None or not REQUEST_ID.fullmatch(id_):
        id_ = b"%s-%x" % (PROCESS.encode(), next(numbers))
    headers = [JSON, (b"x-request-id", id_), *ALWAYS]
    status = 200
    if path.startswith("/v1/pets/"):
        headers += DEPRECATION
    try:
        if path.startswith("/v1/"):
            check_key(sent.get(b"authorization"))
        if path == "/v1/pets":
            new = new_pet((await receive())["body"])
            row = new.name, new.category_id, new.status or None
            id_ = await pool.fetchval(CREATE, *row)
            status, body = 201, encode(Pet(id_, new.name, new.category_id, new.status))
            headers.append((b"location", b"/v1/pets/%d" % id_))
        elif path == "/v1/store/orders":
            order = await place_order(new_order((await receive())["body"]).pet_id)
            status, body = 201, encode(order)
            headers.append((b"location", b"/v1/store/orders/%d" % order.id))
        elif path.startswith("/v1/pets/"):
            row = await pool.fetchrow(GET, pet_id(path[9:]))
            if row is None:
                raise RefusedError(404, "not_found", "Pet not found.")  # noqa: TRY301
            body = encode(Pet(row[0], row[1], row[2], row[3] or UNSET))
        else:
            raise RefusedError(404, "not_found", "Path not found.")  # noqa: TRY301
    except RefusedError as error:
        status, body = error.status, error.body
        headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def place_order(pet_id: int) -> Order:
    """Make a pet pending and store its order, in one transaction, or raise 404 or 409."""
    at = datetime.now(UTC)
    async with pool.acquire() as connection, connection.transaction():
        if await connection.fetchval(RESERVE, pet_id) is None:
            raise not_available(await connection.fetchrow(GET, pet_id))
        return Order(await connection.fetchval(PLACE, pet_id, at), pet_id, "placed", at)


async def open_pool(receive: Any, send: Any) -> None:
    """Keep a pool open until the server ends."""
    global pool
    await receive()
    async with asyncpg.create_pool(os.environ["DATABASE_URL"]) as pool:
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


if __name__ == "__main__":
    serve(app, "on")
