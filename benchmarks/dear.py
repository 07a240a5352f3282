"""The dearest requests that a valid key can send, for `benchmarks.growth`; and many updates."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache, partial
from http.client import HTTPConnection
from statistics import median
from typing import Final

from benchmarks import measures as m
from benchmarks.curves import Case, Figures
from benchmarks.load import PET
from benchmarks.start import last_id
from benchmarks.stores import DURABLE, LONGEST, Location, available, filled
from benchmarks.subjects import Running
from petstore.config import discovery
from petstore.contract import Expected, OrderStatus

MOST: Final = 1_000_000
TIMES: Final = 20
AGAIN: Final = {"Idempotency-Key": "again"}
Request = tuple[str, str, bytes | None, dict[str, str]]


def dear(most: int, _: int) -> Iterator[Case]:
    """Show for how many milliseconds the dearest requests of a key are on the event loop."""
    count = min(most, MOST)
    for backend in ("memory", *DURABLE):
        with ExitStack() as stack:
            opened = cache(partial(with_longest, stack, backend, count))
            for title in requests(0, count):
                yield backend, title, partial(on_loop, opened, count, title)


def with_longest(stack: ExitStack, backend: str, count: int) -> tuple[Running, int]:
    """Return a service with two hundred of the longest names, and the id of the pet before them."""
    where, _ = stack.enter_context(filled(backend, count))
    running = stack.enter_context(where.service())
    m.first_response(running)
    if backend == "memory":
        m.grow(running, count)
    last = last_id(running.port)
    connection = HTTPConnection("127.0.0.1", running.port, timeout=60)
    for name in ["x" * LONGEST] * 100 + ['\\"' * (LONGEST // 2)] * 100:
        m.send(connection, "POST", "/v1/pets", named(name))
    m.send(connection, "POST", "/v1/pets", PET.encode(), AGAIN)
    return running, last


def named(name: str) -> bytes:
    """Return the body that creates a pet with a name."""
    return f'{{"name":"{name}","categoryId":7}}'.encode()


def requests(last: int, count: int) -> dict[str, Request]:
    """Return requests: method, path, body and headers.

    last -- the id of the pet before those with the longest names
    """
    members = ",".join(f'"{number:05}":1' for number in range(LONGEST // 10))
    page, create = "/v1/pets?limit=100&cursor=p", ("POST", "/v1/pets")
    return {
        "get, for comparison": ("GET", "/v1/pets/1", None, {}),
        "page, longest names": ("GET", f"{page}{last:014x}", None, {}),
        "page, escaped names": ("GET", f"{page}{last + 100:014x}", None, {}),
        "deepest page of 100": ("GET", f"{page}{count - 100:014x}", None, {}),
        "status of no pet": ("GET", f"{page}{count // 10:014x}&status=sold", None, {}),
        "status of no order": ("GET", "/v1/store/orders?status=cancelled", None, {}),
        "create, longest name": (*create, named("x" * LONGEST), {}),
        "create, 6,500 members": (*create, f"{{{members}}}".encode(), {}),
        "create, nested": (*create, b"[" * LONGEST, {}),
        "replay of a create": (*create, PET.encode(), AGAIN),
        "key used before": (*create, named("x" * LONGEST), AGAIN),
        "order of no pet": ("POST", "/v1/store/orders", b'{"petId":9007199254740991}', {}),
        "longest cursor": ("GET", f"{page}{'f' * 30_000}", None, {}),
    }


def on_loop(opened: Callable[[], tuple[Running, int]], count: int, title: str) -> Figures:
    """Return the median milliseconds that a request is on the event loop, and its longest piece.

    Between two responses to a second client, the loop has run no longer than one iteration.
    """
    running, last = opened()
    method, path, body, headers = requests(last, count)[title]
    connections = [HTTPConnection("127.0.0.1", running.port, timeout=60) for _ in range(2)]
    used = partial(m.scheduled_ms, running.process.pid, main=True)

    def ping(sent: Future[int]) -> float:
        before, longest = used(), 0.0
        while not sent.done():
            m.send(connections[1], "GET", "/livez")
            now = used()
            before, longest = now, max(longest, now - before)
        return longest

    alone, longest = list[float](), list[float]()
    with ThreadPoolExecutor(1) as thread:
        for number in range(2 * TIMES):
            before = used()
            sent = thread.submit(m.send, connections[0], method, path, body, headers)
            if number % 2:
                longest.append(ping(sent))
            if sent.result() >= 500:
                raise RuntimeError(f"{title}: it failed")
            if not number % 2:
                alone.append(used() - before)
    return {"ms": median(alone), "longest piece, ms": median(longest)}


def churn(where: Location, count: int, updates: int) -> None:
    """Order and cancel pets: two updates of a pet and one of an order each time."""
    plugin, ids = discovery.find(where.backend), available(count)

    async def run() -> None:
        settings = discovery.configure(plugin, where.environ)
        async with plugin.backend.open(settings, Expected()) as store:
            for start in range(0, updates // 3, 500):
                some, at = (ids[i % len(ids)] for i in range(start, start + 500)), datetime.now(UTC)
                placed = await asyncio.gather(*(store.place_order(id_, at) for id_ in some))
                status = OrderStatus.CANCELLED
                await asyncio.gather(*(store.update_order(one.id, status) for one in placed))

    asyncio.run(run())
