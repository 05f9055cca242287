"""Charts as SVG text: bars with the middle half of the rounds, and lines over a logarithmic axis.

A few lines of our own, because the two kinds that are needed are simple, and because the same figures must make the
same file on every machine, so that a test can tell whether a picture is the one of the figures beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

OURS, OTHERS, INK, FAINT = "#1f6f5c", "#9aa0a6", "#24292f", "#d0d7de"
WIDTH, ROW, LABEL, ROOM = 860, 26, 330, 70
PLOT_WIDTH, PLOT_HEIGHT, MARGIN = 420, 240, 52

Series = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, and the middle half of the rounds around its end."""

    label: str
    value: float
    low: float
    high: float
    ours: bool


def bars(title: str, found: list[Bar]) -> str:
    """Return horizontal bars, one for each line."""
    most = max(max(bar.high, 0) for bar in found) or 1
    scale = (WIDTH - LABEL - ROOM) / most
    lines = [_text(10, 22, title, weight="bold", size=15)]
    for number, bar in enumerate(found):
        y = 40 + number * ROW
        length = max(bar.value, 0) * scale
        middle, colour = y + ROW / 2 - 3, OURS if bar.ours else OTHERS
        lines += [
            _text(LABEL - 8, middle + 4, bar.label, anchor="end"),
            f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{ROW - 6}" fill="{colour}"/>',
            _line(LABEL + max(bar.low, 0) * scale, middle, LABEL + max(bar.high, 0) * scale, middle, INK),
            _text(LABEL + max(bar.high, 0) * scale + 8, middle + 4, f"{bar.value:.1f}"),
        ]
    return _page(WIDTH, 50 + len(found) * ROW, lines)


def lines(title: str, series: Series) -> str:
    """Return one plot of lines, without a page around it."""
    points = [point for line in series.values() for point in line]
    least, most = (math.log(bound(x for x, _ in points)) for bound in (min, max))
    top = max(y for _, y in points) * 1.1
    width, height = PLOT_WIDTH - MARGIN - 20, PLOT_HEIGHT - 80

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return (
            MARGIN + (math.log(point[0]) - least) / ((most - least) or 1) * width,
            40 + (1 - point[1] / top) * height,
        )

    drawn = [_text(10, 20, title, weight="bold")]
    for share in (0, 0.5, 1):
        y = 40 + (1 - share) * height
        drawn += [
            _line(MARGIN, y, MARGIN + width, y, FAINT),
            _text(MARGIN - 6, y + 4, f"{top * share:.0f}", anchor="end"),
        ]
    for x, _ in next(iter(series.values())):
        drawn.append(_text(place((x, 0))[0], 40 + height + 18, f"{x:g}", anchor="middle"))
    for number, (name, line) in enumerate(series.items()):
        colour = OURS if number else OTHERS
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, line))
        drawn += [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            _text(MARGIN + number * 110, PLOT_HEIGHT - 8, name, colour=colour),
        ]
    return "\n".join(drawn)


def grid(plots: list[str]) -> str:
    """Return plots side by side, two in a row."""
    placed = [
        f'<g transform="translate({number % 2 * PLOT_WIDTH} {number // 2 * PLOT_HEIGHT})">\n{plot}\n</g>'
        for number, plot in enumerate(plots)
    ]
    return _page(2 * PLOT_WIDTH, (len(plots) + 1) // 2 * PLOT_HEIGHT, placed)


def _page(width: int, height: int, content: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    return "\n".join(
        (head, f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *content, "</svg>", "")
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    anchor: str = "start",
    weight: str = "normal",
    size: int = 12,
    colour: str = INK,
) -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
