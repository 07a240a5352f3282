"""The points that `benchmarks.growth` has measured: kept, as tables, and as pictures."""

import json
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from benchmarks import plot
from benchmarks.figures import table
from benchmarks.subjects import BUILD, ROOT

Case = tuple[str, int | str, Callable[[], "Figures"]]
"""A series, a place on its curve, and what measures that point."""
Figures = dict[str, list[float] | float]
"""What was measured at a point; a list is two figures that belong together."""

LOG: Final = BUILD / "growth.jsonl"
KEPT: Final = ROOT / "benchmarks" / "growth.json"
PICTURES: Final = ROOT / "docs" / "growth"
PANELS: Final = {
    "pets": ["get", "deep page", "rare status", "create", "create with key", "order"],
    "connections": ["get", "peak MiB"],
    "workers": ["get", "deep page", "create", "create with key"],
    "tokens": ["create with key"],
    "keys": ["get"],
    "services": ["get", "create", "server idle, ms/s", "connections"],
    "topologies": ["get", "deep page", "create"],
}
"""What is drawn against a number. Of the other questions, one figure is drawn as bars."""
REQUESTS: Final = {*PANELS["pets"], "first page", "complete"}
BARS: Final = {"skew": "create", "dear": "longest piece, ms", "moving": "CPU s"}


class Point(Struct, frozen=True):
    """What was measured once.

    others -- how many cores other processes used meanwhile
    """

    question: str
    series: str
    at: int | str
    date: str
    commit: str
    others: float
    figures: Figures


def read() -> list[Point]:
    """Return all points, of each case the newest."""
    lines = LOG.read_bytes().splitlines() if LOG.exists() else []
    points = (msgspec.json.decode(line, type=Point) for line in lines)
    return [*{(point.question, point.series, point.at): point for point in points}.values()]


def append(point: Point) -> None:
    """Keep a point."""
    with LOG.open("ab") as file:
        file.write(msgspec.json.encode(point) + b"\n")


def text(figure: list[float] | float | None, between: str = " + ") -> str:
    """Return a cell: two or three digits, and of a list those figures that are not zero."""
    if figure is None:
        return ""
    if isinstance(figure, list):
        return between.join(text(one) for one in figure if one) or "0"
    digits = 2 if abs(figure) < 1 else 1 if abs(figure) < 10 else 0
    return f"{figure:,.{digits if figure % 1 else 0}f}"


def name(at: int | str) -> str:
    """Return a place on a curve."""
    return f"{at:,}" if isinstance(at, int) else at


def tables(points: Iterable[Point], question: str) -> list[str]:
    """Return the tables of a question: one for figures of requests, in microseconds, and others."""
    chosen = [point for point in points if point.question == question]
    heads = dict.fromkeys(head for point in chosen for head in point.figures)
    found = []
    for requests in (True, False):
        some = [head for head in heads if (head in REQUESTS) == requests]
        body = (
            [
                *(point.series, name(point.at)),
                *(text(point.figures.get(head), ", " if "," in head else " + ") for head in some),
            ]
            for point in chosen
        )
        if some:
            found.append(table([f"{question}, us" if requests else question, "", *some], *body))
    return found


def total(figure: list[float] | float) -> float:
    """Return the sum of what belongs together."""
    return sum(figure) if isinstance(figure, list) else figure


def picture(points: Iterable[Point], question: str, title: str) -> str:
    """Return the picture of a question as SVG."""
    chosen = [point for point in points if point.question == question]
    if question in BARS:
        figure = BARS[question]
        bars = dict[str, dict[str, float]]()
        for point in chosen:
            bars.setdefault(name(point.at), {})[point.series] = total(point.figures[figure])
        series = [*dict.fromkeys(point.series for point in chosen)]
        flat = {at: [row.get(one, 0.0) for one in series] for at, row in bars.items()}
        return plot.draw(flat, series, "", f"{title} ({figure})")
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for panel in PANELS[question]:
        for point in chosen:
            if panel in point.figures:
                line = panels.setdefault(panel, {}).setdefault(point.series, [])
                line.append((float(point.at), total(point.figures[panel])))
    return plot.curves(f"{title} (CPU us per request)", panels)


def rounded(point: Point) -> Point:
    """Return a point with four digits of each figure."""
    figures = json.dumps(point.figures)
    short = json.loads(figures, parse_float=lambda digits: float(f"{float(digits):.4g}"))
    return msgspec.structs.replace(point, figures=short, others=round(point.others, 2))


def show(points: Iterable[Point], titles: dict[str, str], *, keep: bool) -> None:
    """Print the tables; write the pictures, and with `keep` also the points, for docs/size.md."""
    folder = PICTURES if keep else BUILD / "growth"
    folder.mkdir(exist_ok=True)
    short = [rounded(point) for point in points]
    for question, title in titles.items():
        if any(point.question == question for point in short):
            print(title, *tables(short, question), sep="\n\n", end="\n\n")
            (folder / f"{question}.svg").write_text(picture(short, question, title))
    if keep:
        lines = ",\n".join(msgspec.json.encode(point).decode() for point in short)
        KEPT.write_text(f"[\n{lines}\n]\n")
