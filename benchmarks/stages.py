"""Show what each stage of a request costs, so that a regression can be located.

Run: .venv/bin/python -m benchmarks.stages [--quick]

In this process, without a socket: CPU microseconds per call, the median of rounds in which the
stages take turns. Stages are those parts of the whole requests below them that can be called
alone; the rest of a whole request is Litestar. Half as many calls warm up before each measurement.
"""

import asyncio
import gc
import itertools
import random
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median
from time import process_time
from types import SimpleNamespace
from typing import Any

import msgspec
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from benchmarks.connection import constant, served
from benchmarks.figures import table
from benchmarks.subjects import KEY
from petstore.config import discovery
from petstore.config.keys import Keys
from petstore.config.loading import Configuration
from petstore.config.settings import LogFormat, Settings
from petstore.contract import NewPet, PetQuery, PetStatus, Repository
from petstore.http.app import Application, create_app
from petstore.http.body import decode
from petstore.http.guards import key_guard
from petstore.http.service import request_id
from petstore.observability.logs import set_up
from petstore.server.connection import HttpConnection

PETS = 10_000
BODY = b'{"name":"pet01234","categoryId":7,"status":"available"}'
NEW = NewPet("pet01234", 7, PetStatus.AVAILABLE)
COMMON = [(b"host", b"127.0.0.1:8000")]
KEYED = [*COMMON, (b"authorization", b"Bearer " + KEY.encode())]
WRONG = [*COMMON, (b"authorization", b"Bearer wrong")]
POSTED = [*KEYED, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
IDS = random.sample(range(1, PETS + 1), PETS)
"""All ids in random order: a cache of paths must not look better than it is."""


Headers = list[tuple[bytes, bytes]]
Call = Callable[[], Awaitable[object]]


def request(
    app: Application, target: Callable[[int], str], headers: Headers, status: int, body: bytes = b""
) -> Call:
    """Return a call that sends a request through the application, and checks its status.

    target -- returns the target for an id; each call takes another one
    """
    base = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50_000),
        "scheme": "http",
        "root_path": "",
        "method": "POST" if body else "GET",
    }
    parts = (target(id_).partition("?") for id_ in IDS)
    targets = itertools.cycle([(p, p.encode(), query.encode()) for p, _, query in parts])

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != status:
            raise AssertionError(f"the status is {message['status']}, not {status}")

    async def call() -> None:
        path, raw_path, query_string = next(targets)
        scope: Any = {**base, "headers": list(headers), "state": {}}
        scope |= {"path": path, "raw_path": raw_path, "query_string": query_string}
        await app.asgi(scope, receive, send)

    return call


def parts(repository: Repository, keys: Keys, page: Any) -> dict[str, Call]:
    """Return the stages that can be called alone."""
    check, ids = key_guard(keys), itertools.cycle(IDS)
    encoder = msgspec.json.Encoder()

    keyed: Any = SimpleNamespace(scope={"headers": KEYED})  # all that the guard reads
    handler: Any = None

    async def do(call: Callable[[], object]) -> None:
        call()

    return {
        "nothing (the cost of measuring)": lambda: do(lambda: None),
        "request id": lambda: do(lambda: request_id(KEYED)),
        "guard: one key among headers": lambda: do(lambda: check(keyed, handler)),
        "decoding: the body of a create": lambda: do(lambda: decode(BODY, NewPet)),
        "repository: get": lambda: repository.get_pet(next(ids)),
        "repository: 21 pets": lambda: repository.list_pets(PetQuery(next(ids), 21)),
        "repository: 21 pets, filtered": lambda: repository.list_pets(
            PetQuery(next(ids), 21, PetStatus.SOLD)
        ),
        "repository: create": lambda: repository.create_pet(NEW),
        "encoding: one pet": lambda: do(lambda: encoder.encode(page[0])),
        "encoding: a page of 20": lambda: do(lambda: encoder.encode(page)),
    }


def wholes(app: Application) -> dict[str, Call]:
    """Return whole requests, from the ASGI scope to the last message of the response."""
    pets = "/v1/pets"
    connection = partial(HttpConnection, reject=app.reject)
    whole = partial(request, app)
    return {
        "server: uvicorn's connection, constant response": served(constant, HttpToolsProtocol, IDS),
        "server: petstore's connection, constant response": served(constant, connection, IDS),
        "middleware alone: 404 of a doubled slash": whole(lambda _: "/v1//pets", COMMON, 404),
        "middleware and routing: 404 of an unknown path": whole(lambda i: f"/no/{i}", COMMON, 404),
        "middleware, routing, handler: /livez": whole(lambda _: "/livez", COMMON, 200),
        "request: get": whole(lambda i: f"{pets}/{i}", KEYED, 200),
        "request: list 20": whole(lambda i: f"{pets}?cursor=p{i:014x}", KEYED, 200),
        "request: filtered list": whole(
            lambda i: f"{pets}?cursor=p{i:014x}&status=sold", KEYED, 200
        ),
        "server and request: get": served(app.asgi, connection, IDS),
        "request: create": whole(lambda _: pets, POSTED, 201, body=BODY),
        "request: 400 (limit=0)": whole(lambda _: f"{pets}?limit=0", KEYED, 400),
        "request: 401 (wrong key)": whole(lambda i: f"{pets}/{i}", WRONG, 401),
        "request: 404 (no such pet)": whole(lambda i: f"{pets}/{90_000_000 + i}", KEYED, 404),
    }


async def measure(call: Call, calls: int) -> float:
    """Return CPU microseconds per call."""
    for _ in range(calls // 2):
        await call()
    begin = process_time()
    for _ in range(calls):
        await call()
    return (process_time() - begin) / calls * 1e6


async def compare(app: Application, keys: Keys, rounds: int, calls: int) -> dict[str, list[float]]:
    """Return the figures of each stage, in rounds."""
    repository = app.state.repository
    statuses = tuple(PetStatus)
    for number in range(PETS):
        await repository.create_pet(NewPet(f"pet{number:05}", number % 10, statuses[number % 3]))
    page = await repository.list_pets(PetQuery(3000, 20))
    stages = parts(repository, keys, page) | wholes(app)
    figures: dict[str, list[float]] = {name: [] for name in stages}
    for number in range(1, rounds + 1):
        print(f"{(number - 1) / rounds:4.0%}  round {number} of {rounds}", file=sys.stderr)
        for name, call in random.sample(sorted(stages.items()), len(stages)):
            gc.collect()
            figures[name].append(await measure(call, calls))
    return figures


async def main(rounds: int, calls: int) -> None:
    """Print the table."""
    set_up(LogFormat.OFF)
    plugin, keys = discovery.find("memory"), Keys([KEY])
    app = create_app(Configuration(Settings(), plugin, plugin.backend.settings(), keys))
    events: asyncio.Queue[Any] = asyncio.Queue()
    started = asyncio.Event()
    events.put_nowait({"type": "lifespan.startup"})

    async def send(_: Any) -> None:
        started.set()

    scope: Any = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    lifespan = asyncio.ensure_future(app.asgi(scope, events.get, send))
    await started.wait()
    figures = await compare(app, keys, rounds, calls)
    events.put_nowait({"type": "lifespan.shutdown"})
    await lifespan
    print(table(["stage", "CPU us"], *([name, f"{median(f):.2f}"] for name, f in figures.items())))


if __name__ == "__main__":
    uvloop.run(main(*((3, 1000) if "--quick" in sys.argv else (9, 4000))))
