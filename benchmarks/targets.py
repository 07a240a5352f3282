"""What the project asks of its performance, and how near the last run is: rows for the report.

A row whose figures were not measured is left out. Nothing fails when a row does not hold.
"""

import re
from collections.abc import Iterator, Sequence
from math import inf
from statistics import median

from msgspec import Struct

from benchmarks.figures import NAME, OBSERVED, RAW, Raw, kept, ratio, table
from benchmarks.subjects import BUILD

PAGES = ("first", "deep", "filtered")


class Row(Struct, frozen=True):
    """One row: some figures of a kind, each with what is required of it, if anything, and a goal.

    more -- whether more is better
    """

    what: str
    figures: Sequence[float | None]
    required: tuple[float, ...]
    goal: tuple[float, ...] = ()
    more: bool = False

    def cells(self) -> list[str]:
        """Return the texts of the row."""
        holds = "**no**" if self.required else ""
        for limits, name in ((self.required, "yes"), (self.goal, "goal")):
            pairs = zip(self.figures, limits, strict=bool(limits))
            if limits and all(self._holds(figure, limit) for figure, limit in pairs):
                holds = name
        sign = "≥ " if self.more else "≤ "
        asked = [
            sign * bool(row) + " / ".join(f"{x:g}" for x in (row if len({*row}) > 1 else row[:1]))
            for row in (self.required, self.goal)
        ]
        shown = " / ".join("?" if one is None else f"{one:.2f}" for one in self.figures)
        return [self.what, shown, *asked, holds]

    def _holds(self, figure: float | None, limit: float) -> bool:
        if figure is None:
            return False
        return figure >= limit if self.more else figure <= limit


def cpu_rows(raw: Raw, titles: dict[str, str]) -> Iterator[Row]:
    """Yield the rows of a run of `benchmarks.peers`."""
    operations = [op for op in raw["figures"].get(RAW, {}) if op not in raw["refused"]]
    names = " / ".join(operations)

    def over_raw(name: str) -> list[float | None]:
        return [ratio(raw, "cpu", (name, op), (RAW, op)) for op in operations]

    def over(peer: str) -> list[float | None]:
        return [ratio(raw, "rate", (NAME, op), (peer, op)) for op in operations]

    what = f"CPU over the raw ASGI function, log line off: {names}"
    yield Row(what, over_raw(NAME), (0.95, 1.15, 1.0, 1.1), (0.75, 0.95, 0.8, 0.9))
    required, goal = (1.15, 1.35, 1.2, 1.35), (0.95, 1.15, 1.0, 1.1)
    yield Row("the same, log line and metrics on", over_raw(OBSERVED), required, goal)
    for peer, least, aim in (("blacksheep", 1.5, 2), ("fastapi", 5.5, 7)):
        what = f"requests/s over {titles[peer]}'s, on the same uvloop"
        yield Row(what, over(peer), (least,) * 4, (aim,) * 4, True)
    good = {"400": "list 20", "401": "get", "404": "get"}
    errors = [ratio(raw, "cpu", (NAME, op), (NAME, good[op[:3]])) for op in raw["refused"]]
    what = "400 / 401 / 404: CPU over the same operation's good response"
    yield Row(what, errors, (1.2,) * 3, (1.0,) * 3)


def connection_rows(raw: Raw) -> Iterator[Row]:
    """Yield the rows of a run of `benchmarks.latency`."""
    few, *many = (str(count) for count in raw["counts"])
    for name, title in ((NAME, ""), (OBSERVED, ", log line and metrics on")):
        over = {n: ratio(raw, "cpu", (name, n), (RAW, n)) for n in (few, *many)}
        base = over[few]
        figures = [None if base is None or (r := over[n]) is None else r / base for n in many]
        what = f"CPU over raw with {' / '.join(many)} connections, over that with {few}{title}"
        yield Row(what, figures, (1.05,) * len(many), (1.05,) * len(many))


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
        what = f"{title} adds, in CPU of the raw get: get / list 20 / durable create"
        yield Row(what, figures, required, goal)
    plain = ratio(raw, "server", ("petstore-redis", "create"), ("redis-plain", "create"))
    yield Row(
        "CPU of the Redis server for a create, over a plain synced write", [plain], (2.5,), (1.5,)
    )
    one, two = (("petstore-workers-1", "list 20"), ("petstore-workers-2", "list 20"))
    rate, cpu = ratio(raw, "rate", two, one), ratio(raw, "cpu", one, two)
    what = "two workers over one on SQLite, requests/s, on two free cores: computed from their CPU"
    yield Row(what, [cpu and 2 * cpu], (1.8,), (1.95,), True)
    yield Row("the same, measured, wrk on the same two cores", [rate], (), (), True)


def page_rows(text: str, backends: Raw | None) -> Iterator[Row]:
    """Yield the rows of what `benchmarks.pages` has printed.

    backends -- a run of `benchmarks.backends`: what a whole request costs
    """
    blocks = re.findall(r"^ *(\w+) +pets +bytes(.*)\n((?: +[\d,]+ .*\n)+)", text, re.MULTILINE)
    alone, whole, counts = [], [], ""
    for name, heads, rows in blocks:
        small, *_, large = (row.split() for row in rows.splitlines())
        counts = f"{large[0]} over {small[0]} pets"
        at = [heads.split().index(page) + 2 for page in PAGES]
        alone.append(max(float(large[i]) / float(small[i]) for i in at))
        turns = (backends or {"figures": {}})["figures"].get(f"petstore-{name}", {})
        cpu = median(turn["cpu"] for turn in turns["list 20"]) if turns else inf
        whole.append(1 + max(float(large[i]) - float(small[i]) for i in at) / cpu)
    names = " / ".join(block[0] for block in blocks)
    limits = (2.0,) * len(blocks), (1.3,) * len(blocks)
    if blocks:
        yield Row(f"the dearest of first, deep, filtered page, {counts}: {names}", alone, *limits)
    if blocks and backends:
        yield Row("the same as part of a request: one over the other", whole, *limits)


def share_rows(text: str) -> Iterator[Row]:
    """Yield the row of what `benchmarks.shares` has printed."""
    rows = re.findall(r"^\| ([\d,]+) \| (\d+)%", text, re.MULTILINE)
    if rows:
        what = (
            f"share of the fuller of two workers: {' / '.join(row[0] for row in rows)} connections"
        )
        shares = [int(row[1]) / 100 for row in rows]
        yield Row(what, shares, (0.6,) * len(rows), (0.52,) * len(rows))


def cold_rows(text: str) -> Iterator[Row]:
    """Yield the row of what `benchmarks.cold` has printed."""
    if found := re.search(r"^cold(?:.*\n)+?\s+livez +[\d.]+ +([\d.]+)", text, re.MULTILINE):
        what = "p99 of `/livez` while SQLite reads pages from a cold disk, ms"
        yield Row(what, [float(found[1])], (20,), (5,))


def start_rows(text: str) -> Iterator[Row]:
    """Yield the rows of what `benchmarks.start` has printed."""
    found = re.search(
        r"--help` \| ([\d.]+).*--dev` \| ([\d.]+).*\| ([\d.]+) bytes", text, re.DOTALL
    )
    if found:
        shown, first, size = (float(number) for number in found.groups())
        yield Row("memory for each pet, bytes", [size], (180,), (120,))
        what = "CPU s of `petstore --help` / to the first response with `--dev`"
        yield Row(what, [shown, first], (0.05, 0.28), (0.03, 0.2))


def targets(raw: Raw, titles: dict[str, str]) -> str:
    """Return the table of all rows that were measured.

    raw -- a run of `benchmarks.peers`
    titles -- of all subjects
    """
    texts = {}
    for name in ("pages", "start", "shares", "cold"):
        path = BUILD / f"{name}.txt"
        texts[name] = path.read_text() if path.is_file() else ""
    rows = [*cpu_rows(raw, titles)]
    if latency := kept("latency"):
        rows += connection_rows(latency)
    if backends := kept("backends"):
        rows += backend_rows(backends)
    rows += [*share_rows(texts["shares"]), *cold_rows(texts["cold"])]
    rows += [*page_rows(texts["pages"], backends), *start_rows(texts["start"])]
    measured = (row for row in rows if any(figure is not None for figure in row.figures))
    return table(
        ["what", "measured", "required", "goal", "holds"], *(row.cells() for row in measured)
    )
