"""What the project asks of its performance, and how near the last run is: one screen.

A row whose figures were not measured is left out. Nothing fails when a row does not hold.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from math import inf
from statistics import median

from msgspec import Struct

from benchmarks.figures import NAME, OBSERVED, RAW, Raw, kept, middle, ratio
from benchmarks.subjects import BUILD

PAGES = ("first", "deep", "filtered")
BACKENDS = ("memory", "sqlite", "redis", "postgres")
LEGEND = (
    "CPU is the service's, for each request. Raw: the raw ASGI function. The log line is off "
    "unless the row says it is on. Over create: requests/s over those of creates without a key. By "
    "backend: memory, SQLite, Redis, PostgreSQL. Goal: what is required holds, and the goal too."
)


class Row(Struct, frozen=True):
    """One row: some figures of a kind, each with what is required of it, if anything, and a goal.

    more -- whether more is better
    """

    what: str
    figures: Sequence[float | None]
    required: tuple[float, ...]
    goal: tuple[float, ...] = ()
    more: bool = False

    def line(self) -> str:
        """Return the line of the row: what, measured, required, and what holds."""
        holds = "no" if self.required else ""
        for limits, name in ((self.required, "yes"), (self.goal, "goal")):
            pairs = zip(self.figures, limits, strict=bool(limits))
            if limits and all(self._holds(figure, limit) for figure, limit in pairs):
                holds = name
        limits = self.required if len({*self.required}) > 1 else self.required[:1]
        asked = " ".join(["≥" if self.more else "≤", *(f"{x:g}" for x in limits)])
        shown = " ".join("?" if one is None else f"{one:.2f}" for one in self.figures)
        return f"{self.what:48}{shown:25}{asked * bool(limits):22}{holds}".rstrip()

    def _holds(self, figure: float | None, limit: float) -> bool:
        if figure is None:
            return False
        return figure >= limit if self.more else figure <= limit


def cpu_rows(raw: Raw) -> Iterator[Row]:
    """Yield the rows of a run of `benchmarks.peers`."""
    operations = [op for op in raw["figures"].get(RAW, {}) if op not in raw["refused"]]

    def over_raw(name: str) -> list[float | None]:
        return [ratio(raw, "cpu", (name, op), (RAW, op)) for op in operations]

    def over(peer: str) -> list[float | None]:
        return [ratio(raw, "rate", (NAME, op), (peer, op)) for op in operations]

    what = "CPU over raw: get, list, filtered, create"
    yield Row(what, over_raw(NAME), (0.86, 1.0, 0.92, 0.92), (0.75, 0.85, 0.78, 0.78))
    required, goal = (1.02, 1.12, 1.05, 1.1), (0.9, 1.0, 0.9, 0.95)
    yield Row("  with log line and metrics", over_raw(OBSERVED), required, goal)
    yield Row(
        "requests/s over BlackSheep's, on our uvloop",
        over("blacksheep"),
        (1.45, 1.3, 1.4, 1.35),
        (1.6,) * 4,
        True,
    )
    what = "requests/s over FastAPI's, on our uvloop"
    yield Row(what, over("fastapi"), (5.5,) * 4, (7,) * 4, True)
    good = {"400": "list 20", "401": "get", "404": "get"}
    errors = [ratio(raw, "cpu", (NAME, op), (NAME, good[op[:3]])) for op in raw["refused"]]
    what = "CPU of 400, 401, 404 over a good response"
    yield Row(what, errors, (1.2,) * 3, (1.0,) * 3)


def connection_rows(raw: Raw) -> Iterator[Row]:
    """Yield the rows of a run of `benchmarks.latency`."""
    few, *many = (str(count) for count in raw["counts"])
    counts = f"CPU over raw: {' and '.join(many)} over {few} connections"
    for name, what in ((NAME, counts), (OBSERVED, "  with log line and metrics")):
        over = {n: ratio(raw, "cpu", (name, n), (RAW, n)) for n in (few, *many)}
        base = over[few]
        figures = [None if base is None or (r := over[n]) is None else r / base for n in many]
        yield Row(what, figures, (1.05,) * len(many), (1.05,) * len(many))


def order_rows(raw: Raw) -> Iterator[Row]:
    """Yield the rows of the orders in a run of `benchmarks.latency`."""
    for p in ("p50", "p99"):
        figures = [middle(raw["orders"], f"petstore-{name}", "order", p) for name in BACKENDS]
        yield Row(f"order at {raw['order rate']:,}/s, {p} ms: by backend", figures, ())


def added(raw: Raw, name: str, operation: str) -> float | None:
    """Return the CPU that a backend adds to memory's, in units of the raw function's get."""
    found = raw["figures"]
    if not {name, "petstore-memory", RAW} <= found.keys():
        return None
    turns = (found[name][operation], found["petstore-memory"][operation], found[RAW]["get"])
    return float(
        median((a["cpu"] - b["cpu"]) / unit["cpu"] for a, b, unit in zip(*turns, strict=True))
    )


def backend_rows(raw: Raw) -> Iterator[Row]:
    """Yield the rows of a run of `benchmarks.backends`."""
    operations = ("get", "list 20", "create")
    for name, title, required, goal in (
        ("sqlite", "SQLite", (0.11, 0.4, 0.55), (0.1, 0.3, 0.45)),
        ("redis", "Redis", (0.15, 0.4, 0.28), (0.12, 0.3, 0.25)),
        ("postgres", "PostgreSQL", (0.4, 0.8, 0.45), (0.3, 0.6, 0.4)),
    ):
        figures = [added(raw, f"petstore-{name}", op) for op in operations]
        yield Row(f"{title} adds, in raw gets: get, list, create", figures, required, goal)
    for name, title, keyed in (
        ("sqlite", "SQLite", {"create with key": 0.8, "order with key": 0.65}),
        ("redis", "Redis", {"create with key": 0.7, "order": 0.7, "order with key": 0.7}),
        ("postgres", "PostgreSQL", {"order": 0.6, "order with key": 0.5}),
    ):
        subject = f"petstore-{name}"
        rates = [ratio(raw, "rate", (subject, op), (subject, "create")) for op in keyed]
        what = f"{title} over create: {', '.join(keyed).replace(' with ', '+')}"
        yield Row(what, rates, (*keyed.values(),), (0.8,) * len(keyed), True)
    plain = ratio(raw, "server", ("petstore-redis", "create"), ("redis-plain", "create"))
    yield Row("Redis server, CPU: a create over a synced write", [plain], (2.5,), (1.5,))
    one, two = (("petstore-workers-1", "list 20"), ("petstore-workers-2", "list 20"))
    rate, cpu = ratio(raw, "rate", two, one), ratio(raw, "cpu", one, two)
    what = "2 workers over 1 on SQLite, from their CPU"
    yield Row(what, [cpu and 2 * cpu], (1.8,), (1.95,), True)
    yield Row("  measured, with wrk on the same cores", [rate], ())


def page_rows(text: str, backends: Raw | None) -> Iterator[Row]:
    """Yield the rows of what `benchmarks.pages` has printed.

    backends -- a run of `benchmarks.backends`: what a whole request costs
    """
    blocks = re.findall(r"^ *(\w+) +pets(.*)\n((?: +[\d,]+ .*\n)+)", text, re.MULTILINE)
    alone, whole, counts, limits = [], [], "", ((2.0,) * len(blocks), (1.3,) * len(blocks))
    for name, heads, rows in blocks:
        small, *_, large = (row.split() for row in rows.splitlines())
        counts = f"{large[0]} over {small[0]}"
        at = [heads.split().index(page) + 1 for page in PAGES]
        alone.append(max(float(large[i]) / float(small[i]) for i in at))
        turns = (backends or {"figures": {}})["figures"].get(f"petstore-{name}", {})
        cpu = median(turn["cpu"] for turn in turns["list 20"]) if turns else inf
        whole.append(1 + max(float(large[i]) - float(small[i]) for i in at) / cpu)
    yield Row(f"dearest page, {counts}: by backend", alone, *limits)
    if backends:
        yield Row("  as part of a request", whole, *limits)


def share_rows(shares: dict[str, float]) -> Iterator[Row]:
    """Yield the row of a run of `benchmarks.shares`."""
    what = f"fuller of 2 workers, {' '.join(shares)} connections"
    yield Row(what, [*shares.values()], (0.6,) * len(shares), (0.52,) * len(shares))


def cold_rows(raw: Raw) -> Iterator[Row]:
    """Yield the row of a run of `benchmarks.cold`."""
    yield Row("/livez while SQLite reads a cold disk, p99 ms", [raw["livez"]], (20,), (5,))


def start_rows(raw: Raw) -> Iterator[Row]:
    """Yield the rows of a run of `benchmarks.start`."""
    yield Row("bytes a pet, on memory", [raw["pet"]], (180,), (120,))
    what = "CPU s: petstore --help, first response"
    yield Row(what, [raw["help"], raw["first"]], (0.05, 0.28), (0.03, 0.2))


def bar(raw: Raw, *, quick: bool) -> str:
    """Return the lines of all rows that were measured: at most 100 columns, one screen.

    raw -- a run of `benchmarks.peers`
    quick -- whether it stands alone; else rows of the last runs of the other benchmarks follow
    """
    rows = [*cpu_rows(raw)]
    if not quick:
        pages, backends = BUILD / "pages.txt", kept("backends")
        for name, more in (
            ("latency", connection_rows),
            ("latency", order_rows),
            ("backends", backend_rows),
            ("shares", share_rows),
            ("cold", cold_rows),
            ("start", start_rows),
        ):
            if found := kept(name):
                rows += more(found)
        if pages.is_file():
            rows += page_rows(pages.read_text(), backends)
    head = f"{'':48}{'measured':25}{'required':22}holds"
    lines = [row.line() for row in rows if any(figure is not None for figure in row.figures)]
    return "\n".join([head, *lines, *textwrap.wrap(LEGEND, 100)])
