"""Draw a bar chart as SVG, without a library: readable on light and on dark pages."""

from html import escape

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
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .figure { fill: #9198a1; }
  rect { fill: #656c76; }
  rect.own { fill: #4493f8; }
  line { stroke: #3d444d; }
}
"""


def draw(figures: dict[str, list[float]], panels: list[str], own: str) -> str:
    """Return an SVG document with a row for each subject and a panel for each operation.

    figures -- subject -> one figure for each panel
    own -- the subject whose bars stand out
    """
    width = LABELS + PANEL * len(panels) + 10
    height = TOP + ROW * len(figures) + 14
    longest = max(max(row) for row in figures.values())
    scale = (PANEL - 60) / longest
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>CPU microseconds per request</title>",
        f"<style>{STYLE}</style>",
        '<text class="title" x="10" y="22">CPU microseconds per request, less is better</text>',
    ]
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
                f"{figure:.0f}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])
