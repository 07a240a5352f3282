"""Draw charts as SVG, without a library: readable on light and on dark pages.

`draw` has bars, a row for each subject; `curves` has lines, with a logarithmic scale from left to
right and a linear one, from zero, upwards.
"""

from html import escape
from math import log10

Lines = dict[str, list[tuple[float, float]]]

LABELS = 180
PANEL = 190
ROW = 24
TOP = 64
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.head, .own { font-weight: 600; }
.figure { font-size: 11px; fill: #59636e; }
rect { fill: #8c959f; }
rect.own { fill: #0969da; }
line { stroke: #d1d9e0; }
polyline { fill: none; stroke-width: 2; }
.s0 { stroke: #0969da; fill: #0969da; }
.s1 { stroke: #bc4c00; fill: #bc4c00; }
.s2 { stroke: #1a7f37; fill: #1a7f37; }
.s3 { stroke: #8250df; fill: #8250df; }
.s4 { stroke: #bf3989; fill: #bf3989; }
.s5 { stroke: #59636e; fill: #59636e; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .figure { fill: #9198a1; }
  rect { fill: #656c76; }
  rect.own { fill: #4493f8; }
  line { stroke: #3d444d; }
}
"""


def head(width: float, height: float, title: str) -> list[str]:
    """Return how a document begins."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="10" y="22">{escape(title)}</text>',
    ]


def draw(
    figures: dict[str, list[float]],
    panels: list[str],
    own: str,
    title: str = "CPU microseconds per request, less is better",
) -> str:
    """Return an SVG document with a row for each subject and a panel for each operation.

    figures -- subject -> one figure for each panel
    own -- the subject whose bars stand out
    """
    width = LABELS + PANEL * len(panels) + 10
    height = TOP + ROW * len(figures) + 14
    longest = max(max(row) for row in figures.values())
    scale = (PANEL - 60) / longest
    parts = head(width, height, title)
    for column, panel in enumerate(panels):
        left = LABELS + PANEL * column
        parts.append(f'<text class="head" x="{left}" y="{TOP - 12}">{escape(panel)}</text>')
        parts.append(f'<line x1="{left}" y1="{TOP - 4}" x2="{left}" y2="{height - 10}"/>')
    for index, (name, row) in enumerate(figures.items()):
        kind = ' class="own"' if name == own else ""
        middle = TOP + ROW * index + 12
        parts.append(
            f'<text{kind} x="{LABELS - 10}" y="{middle + 4}" text-anchor="end">'
            f"{escape(name)}</text>"
        )
        for column, figure in enumerate(row):
            left, length = LABELS + PANEL * column, figure * scale
            parts.append(
                f'<rect{kind} x="{left}" y="{middle - 8}" width="{length:.1f}" height="16"/>'
                f'<text class="figure" x="{left + length + 5:.1f}" y="{middle + 4}">'
                f"{figure:.{0 if figure >= 10 else 1}f}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])


def curves(title: str, panels: dict[str, Lines]) -> str:
    """Return an SVG document with a panel for each figure, and in it a line for each series.

    panels -- figure -> series -> its points
    """
    across = min(3, len(panels))
    width, tall = 20 + 250 * max(2, across), 190
    height = TOP + tall * -(-len(panels) // across) + 10
    parts = head(width, height, title)
    series = [*dict.fromkeys(name for lines in panels.values() for name in lines)]
    for number, name in enumerate(series):
        parts.append(f'<circle class="s{number}" cx="{16 + 110 * number}" cy="40" r="4"/>')
        parts.append(f'<text x="{26 + 110 * number}" y="44">{escape(name)}</text>')
    for number, (panel, lines) in enumerate(panels.items()):
        left, top = 20 + 250 * (number % across), TOP + 20 + tall * (number // across)
        parts += [f'<text class="head" x="{left}" y="{top - 8}">{escape(panel)}</text>']
        parts += _lines(left, top, lines, series)
    return "\n".join([*parts, "</svg>", ""])


def _lines(left: int, top: int, lines: Lines, series: list[str]) -> list[str]:
    """Return a panel of 180 by 130: its axis, its lines, and the figure at the end of each."""
    places = sorted({x for points in lines.values() for x, _ in points})
    highest = max(y for points in lines.values() for _, y in points) or 1
    wide, high, taken = 180, 130, list[float]()
    span = log10(max(places[-1], 10) / max(places[0], 1)) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        return left + log10(max(x, 1) / max(places[0], 1)) / span * wide, top + high * (
            1 - y / highest
        )

    parts = [f'<line x1="{left}" y1="{top + high}" x2="{left + wide}" y2="{top + high}"/>']
    parts += [
        f'<text class="figure" x="{place(x, 0)[0]:.0f}" y="{top + high + 15}"'
        f' text-anchor="middle">{short(x)}</text>'
        for x in places
    ]
    for name, points in sorted(lines.items(), key=lambda item: -item[1][-1][1]):
        kind = series.index(name)
        joined = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in sorted(points))
        parts.append(f'<polyline class="s{kind}" style="fill:none" points="{joined}"/>')
        x, y = place(*max(points))
        label = max([y + 4, *(other + 12 for other in taken)])
        taken.append(label)
        parts.append(f'<circle class="s{kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>')
        parts.append(
            f'<text class="figure" x="{x + 8:.0f}" y="{label:.0f}">{short(max(points)[1])}</text>'
        )
    return parts


def short(number: float) -> str:
    """Return a number in a few characters: 3M, 100k, 86k, 12, 0.4."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
