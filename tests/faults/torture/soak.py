"""The soak: hostile and honest load on one service, whose memory and latency must stay flat.

Logs and metrics are on. The honest load is slow and steady, so that a latency can be compared with
an earlier one; of the hostile one, every response is checked.
"""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import httpx
import msgspec
from petstore_conformance.faults.services import children
from petstore_conformance.faults.verdicts import RoundOutcome
from petstore_conformance.faults.wire import ClientConnection, Endpoint
from petstore_conformance.harness.cores import Cores

from tests.faults.torture.runs import Outcomes, Run, SetUp
from tests.support.hostile_inputs import BAD_BODIES, BAD_QUERIES, ODD_IDS
from tests.support.ports import free_port
from tests.support.raw_http import AUTHORIZED, CLOSE, HOST, JSON, head, parse_responses
from tests.support.services import Live, place, process

SAMPLES: Final = 16
"""How many samples a short run has; a long one has one each minute."""

WARM_UP: Final = 0.25
"""The part of the samples that is left out: caches fill, and modules are loaded."""

HONEST: Final = 8
PAUSE: Final = (0.005, 0.03)
HOSTILE_PAUSE: Final = (0, 0.05)

MEGABYTE: Final = 1_000_000
GROWTH_BYTES: Final = 6 * MEGABYTE
"""How much more memory all processes may have in the last third, apart from what is stored."""

STORED_BYTES: Final = 2048
"""What a stored pet or order, with its key, may take in memory."""

GROWTH_DESCRIPTORS: Final = 16
SLOWER: Final = 2.0
SLOWER_P50: Final = 0.010
SLOWER_P99: Final = 0.030
"""The best latency of the last third may be twice that of the first, and so many seconds more: the
best one, because a busy machine can only make it worse, and more, because few samples are few."""

SECONDS: Final = 8
"""How long each set-up is under load at least: other parts may have used up the time."""

LEAKS: Final = (16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144)
"""Bytes a request. The control: added to what was measured, one of them must be noticed: the more
requests, the smaller."""


class Sample(msgspec.Struct, frozen=True):
    """The state of a service at one moment, and how it responded since the sample before."""

    requests: int
    stored: int
    memory: int
    descriptors: int
    p50: float
    p99: float

    def __str__(self) -> str:
        """Return it as the report shows it."""
        return (
            f"{self.memory / MEGABYTE:.0f} MB, {self.descriptors} descriptors,"
            f" p50 {self.p50 * 1000:.1f} ms, p99 {self.p99 * 1000:.1f} ms"
        )


def soak(backend: str, workers: str, directory: Path, run: Run) -> Outcomes:
    """Run the load in one long round; if the machine is busy, rising latencies are inconclusive."""
    settings = {"backend": backend, "workers": workers} | place(backend, directory)
    metrics, cores = f"127.0.0.1:{free_port()}", Cores()
    with process(directory, metrics_listen=metrics, **settings) as live:
        load = Load(live, f"http://{metrics}/metrics", run.seed)
        asyncio.run(load.run(max(SECONDS, run.seconds)))
        cores.note()
    outcome = RoundOutcome("soak", load.counts())
    outcome.found.add("otherwise wrong", *load.found, *rising(load.samples, MEMORY))
    outcome.found.add("otherwise wrong", *load.control())
    slower, shortage = rising(load.samples, LATENCIES), cores.shortage()
    if shortage:
        outcome.slow = [f"{text}; {shortage}" for text in slower]
    else:
        outcome.found.add("otherwise wrong", *slower)
    yield outcome


SET_UPS: Final[dict[str, tuple[SetUp, float]]] = {
    "soak, memory, 1 worker": (partial(soak, "memory", "1"), 4),
    "soak, sqlite, 2 workers": (partial(soak, "sqlite", "2"), 4),
}
"""The set-ups, and their shares of the time."""


class Load:
    """Honest and hostile clients, and the samples of the service that were taken meanwhile."""

    def __init__(self, live: Live, metrics: str, seed: int) -> None:
        self.target = Endpoint(live)
        self.metrics = metrics
        self.seed = seed
        self.over = False
        self.honest = self.hostile = self.stored = 0
        self._keys = itertools.count()
        self.durations: list[float] = []
        self.samples: list[Sample] = []
        self.found: list[str] = []

    async def run(self, seconds: float) -> None:
        """Run the load for so long; take a sample each minute, or more often."""
        async with asyncio.TaskGroup() as group:
            for number in range(HONEST):
                group.create_task(self._honest(random.Random(f"{self.seed} {number}")))  # noqa: S311
            group.create_task(self._hostile(random.Random(f"{self.seed} hostile")))  # noqa: S311
            count = max(SAMPLES, round(seconds / 60))
            end = time.monotonic() + seconds
            for left in range(count, 0, -1):
                await asyncio.sleep(max(0, (end - time.monotonic()) / left))
                await asyncio.to_thread(self._sample)
            self.over = True

    def counts(self) -> Counter[str]:
        """Return what was done and measured."""
        counts = Counter({"requests": self.honest, "hostile requests": self.hostile})
        counts["samples"] = len(self.samples)
        for when, third in zip(("first", "last"), ends(self.samples), strict=True):
            one = middle(third)
            counts[f"MB at {when}"] = one.memory // MEGABYTE
            counts[f"descriptors at {when}"] = one.descriptors
            counts[f"microseconds at p50 at {when}"] = round(one.p50 * 1e6)
            counts[f"microseconds at p99 at {when}"] = round(one.p99 * 1e6)
        counts["bytes a request are the smallest leak noticed"] = self._smallest_leak()
        return counts

    def control(self) -> list[str]:
        """Return what is wrong if none of the leaks that are added to the figures is noticed."""
        missed = f"the control, a leak of {LEAKS[-1]} bytes a request, was not noticed"
        return [] if self._smallest_leak() else [missed]

    def _smallest_leak(self) -> int:
        leaks = (leak for leak in LEAKS if rising(leaking(self.samples, leak), MEMORY))
        return next(leaks, 0)

    def _sample(self) -> None:
        process_ = self.target.live.process
        assert process_ is not None
        memory = descriptors = 0
        for pid in (process_.pid, *children(process_.pid)):
            with suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{pid}/status").read_text()
                memory += int(status.split("VmRSS:")[1].split()[0]) * 1024
                descriptors += len([*Path(f"/proc/{pid}/fd").iterdir()])
        taken, self.durations = self.durations, []
        cuts = quantiles(taken, n=100)
        self.samples.append(
            Sample(self.honest + self.hostile, self.stored, memory, descriptors, cuts[49], cuts[98])
        )
        if httpx.get(self.metrics).status_code != 200:
            self.found.append("the metrics cannot be read")

    async def _honest(self, choice: random.Random) -> None:
        """Add a pet, then read it, read pages, order it and cancel the order."""
        connection = ClientConnection(self.target)
        pet = order = 0
        while not self.over:
            await asyncio.sleep(choice.uniform(*PAUSE))
            point = choice.random()
            if not pet:
                new = {"name": "soak", "categoryId": 7, "status": "available"}
                pet = await self._request(connection, "POST", "/pets", new, 201)
            elif point < 0.02 and not order:
                order = await self._request(
                    connection, "POST", "/store/orders", {"petId": pet}, 201
                )
            elif point < 0.04 and order:
                body = {"status": "cancelled"}
                await self._request(connection, "PATCH", f"/store/orders/{order}", body, 200)
                order = 0
            elif point < 0.7:
                await self._request(connection, "GET", f"/pets/{pet}", None, 200)
            else:
                await self._request(connection, "GET", "/pets?limit=20", None, 200)
        connection.close()

    async def _request(
        self, connection: ClientConnection, method: str, path: str, body: object, status: int
    ) -> int:
        """Send a request, record how long it took; return the id in the response, or 0."""
        began = time.monotonic()
        key = f"soak-{next(self._keys)}" if method == "POST" else ""
        response = await connection.exchange(method, path, body, key)
        self.durations.append(time.monotonic() - began)
        self.honest += 1
        if response is None or response.status != status:
            self.found.append(f"{method} {path}: {response}")
            return 0
        self.stored += method == "POST"
        item = json.loads(response.content)
        return int(item["id"]) if isinstance(item, dict) else 0

    async def _hostile(self, choice: random.Random) -> None:
        """Send what no honest client sends, each over a new connection; check the responses."""
        live = self.target.live
        while not self.over:
            await asyncio.sleep(choice.uniform(*HOSTILE_PAUSE))
            sent = choice.choice(HOSTILITIES)(choice)
            reader, writer = await asyncio.open_connection(live.host, live.port)
            self.hostile += 1
            writer.write(sent)
            if choice.random() < 0.2:  # it goes away without reading
                writer.close()
                continue
            writer.write_eof()
            try:
                received = await asyncio.wait_for(reader.read(), 20)
                parse_responses(received, bodies=not sent.startswith(b"HEAD"))
            except (AssertionError, ValueError, KeyError, TimeoutError) as error:
                self.found.append(f"{sent[:200]!r} got {error!r}")
            except OSError:  # it was reset, as a malformed request may be
                pass
            writer.close()


def _post(body: bytes) -> bytes:
    length = f"Content-Length: {len(body)}"
    return head("POST /v1/pets", HOST, CLOSE, AUTHORIZED, JSON, length) + body


def _get(path: str) -> bytes:
    return head(f"GET {path}", HOST, CLOSE, AUTHORIZED)


HOSTILITIES: Final[tuple[Callable[[random.Random], bytes], ...]] = (
    lambda choice: _post(choice.choice(BAD_BODIES)),
    lambda choice: _post(choice.choice(BAD_BODIES))[:-1],
    lambda choice: _get(f"/v1/pets?{choice.choice(BAD_QUERIES)}"),
    lambda choice: _get(f"/v1/store/orders/{choice.choice(ODD_IDS)}"),
    lambda choice: choice.randbytes(choice.randrange(1, 3000)),
    lambda _: _post(b"{" * 100_000),
    lambda _: _post(b"[" * 60_000),
    lambda choice: head("GET /v1/pets", HOST, *(["X: y"] * choice.randrange(90, 200))),
    lambda choice: b"GET /v1/pets HTTP/1.1\r\nHost: x\r\nX: " + b"x" * choice.randrange(70_000),
    lambda _: _get("/v1/pets").replace(b"close", b"keep-alive") * 20 + _get("/v1/pets"),
    lambda _: head("GET /v1/pets", HOST, CLOSE, "Authorization: Bearer wrong"),
)


def ends(samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Return the first and the last third of the samples, without the warm-up."""
    warm = samples[int(len(samples) * WARM_UP) :]
    third = max(1, len(warm) // 3)
    return warm[:third], warm[-third:]


def middle(samples: list[Sample]) -> Sample:
    """Return the medians of the memory and descriptors, and the best latencies."""
    medians = ("requests", "stored", "memory", "descriptors")
    return Sample(
        *(int(median(getattr(sample, figure) for sample in samples)) for figure in medians),
        *(min(getattr(sample, figure) for sample in samples) for figure in LATENCIES),
    )


def leaking(samples: list[Sample], leak: int) -> list[Sample]:
    """Return what would have been measured if each request had leaked this many bytes."""
    return [
        msgspec.structs.replace(sample, memory=sample.memory + leak * sample.requests)
        for sample in samples
    ]


MEMORY: Final = ("memory", "descriptors")
LATENCIES: Final = ("p50", "p99")


def rising(samples: list[Sample], figures: Sequence[str] = (*MEMORY, *LATENCIES)) -> list[str]:
    """Return which of these figures are not flat."""
    first, last = (middle(third) for third in ends(samples))
    allowed = {
        "memory": first.memory + GROWTH_BYTES + STORED_BYTES * (last.stored - first.stored),
        "descriptors": first.descriptors + GROWTH_DESCRIPTORS,
        "p50": first.p50 * SLOWER + SLOWER_P50,
        "p99": first.p99 * SLOWER + SLOWER_P99,
    }
    return [
        f"{figure} rose from {first} to {last}"
        for figure in figures
        if getattr(last, figure) > allowed[figure]
    ]
