"""What a deployment needs, computed from the points that `benchmarks.growth` has measured."""

from collections.abc import Iterable
from itertools import product
from math import ceil
from typing import Final

from benchmarks.curves import Point, total
from benchmarks.figures import table

MIX: Final = {"get": 0.8, "deep page": 0.15, "create": 0.04, "order": 0.01}
BUSY: Final = 0.6  # how busy a core may be, so that queues stay short
CORES: Final = 16
GIGABYTES: Final = 64
"""Of one machine: what is closer to its limit runs out first. A Redis master fills half of its
memory: while it rewrites its file, it needs up to twice as much.
"""
RATES: Final = (1000, 10_000, 100_000)
PETS: Final = (10**6, 10**8, 10**9)


def largest(points: Iterable[Point], backend: str) -> Point:
    """Return the point with the most pets of a backend."""
    chosen = (point for point in points if (point.question, point.series) == ("pets", backend))
    return max(chosen, key=lambda point: point.at)


def cpu(point: Point) -> tuple[float, float]:
    """Return the microseconds of an average request of the mix: of the service, of the server."""
    figures = ((share, point.figures[name]) for name, share in MIX.items())
    pairs = [(share, pair) for share, pair in figures if isinstance(pair, list)]
    service, server = (sum(share * pair[i] for share, pair in pairs) for i in (0, 1))
    return service, server


def cores(rate: int, microseconds: float) -> int:
    """Return how many cores such requests keep busy."""
    return ceil(rate * microseconds / 1e6 / BUSY)


def stored(point: Point, pets: int) -> float:
    """Return the gigabytes of pets and a tenth as many orders."""
    each = total(point.figures["bytes a pet"]) + total(point.figures["bytes an order"]) / 10
    return each * pets / 1e9


def needs(points: list[Point]) -> str:
    """Return the table of what so many requests and pets need on each backend, and its limit."""
    sqlite, redis, postgres = (largest(points, name) for name in ("sqlite", "redis", "postgres"))
    rows = []
    for rate, pets in product(RATES, PETS):
        service = [cores(rate, cpu(point)[0]) for point in (sqlite, redis, postgres)]
        sizes = [stored(point, pets) for point in (sqlite, redis, postgres)]
        busy = [cores(rate, cpu(point)[1]) for point in (redis, postgres)]
        masters = ceil(sizes[1] / (GIGABYTES / 2))
        limits = [
            "memory" if size / GIGABYTES > used / CORES else "cores"
            for size, used in ((sizes[0], service[0]), (sizes[2], busy[1]))
        ]
        rows.append(
            [
                *(f"{rate:,}", f"{pets:,}"),
                f"{service[0]}; {sizes[0]:.3g} GB; {limits[0]}",
                f"{service[1]} + {max(busy[0], masters)}; {sizes[1]:.3g} GB; "
                + ("memory" if masters >= busy[0] else "cores"),
                f"{service[2]} + {busy[1]}; {sizes[2]:.3g} GB; {limits[1]}",
            ]
        )
    heads = ["SQLite: cores; disk", "Redis: cores + masters; memory"]
    heads += ["PostgreSQL: cores + its server's; disk"]
    return table(["requests/s", "pets", *(f"{head}; first limit" for head in heads)], *rows)
