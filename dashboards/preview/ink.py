"""Colours, and the frame that curves and cells share: margins, times along the bottom, text in SVG."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

COLOURS = (
    "#2f6fb3",
    "#e0862d",
    "#3f9d63",
    "#c8473d",
    "#8563b0",
    "#7f6a5d",
    "#d06fae",
    "#6d7785",
    "#a8a431",
    "#2ba7b3",
)
NAMED = {
    "green": "#3f9d63",
    "orange": "#e0862d",
    "red": "#c8473d",
    "yellow": "#d9b310",
    "purple": "#8563b0",
    "blue": "#2f6fb3",
    "super-light-blue": "#a9c7e6",
}
"""Colours that the dashboards name."""

FAINT = "#e4e7eb"
TEXT = "#5b6672"
_DIGIT = 6.3
_STEPS = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where a drawing's inside lies, in pixels, and which time it shows, in Unix seconds."""

    width: float
    height: float
    left: float
    since: float
    until: float
    top: float = 6.0
    right: float = 8.0
    bottom: float = 18.0

    def x(self, at: float) -> float:
        """Return where a time is."""
        inside = self.width - self.left - self.right
        return self.left + inside * (at - self.since) / (self.until - self.since)

    def y(self, part: float) -> float:
        """Return where a height is, from 0 at the bottom to 1 at the top."""
        return self.height - self.bottom - (self.height - self.top - self.bottom) * part

    def times(self) -> str:
        """Return the times along the bottom, in UTC."""
        span = self.until - self.since
        most = max(2, int((self.width - self.left) / 70))
        step = next((step for step in _STEPS if span / step <= most), _STEPS[-1])
        form = "%m-%d" if step >= 86400 else "%H:%M" if step >= 60 else "%H:%M:%S"
        drawn = []
        at = (self.since // step + 1) * step
        while at < self.until:
            x = self.x(at)
            drawn.append(line(x, self.top, x, self.height - self.bottom, FAINT))
            told = datetime.fromtimestamp(at, UTC).strftime(form)
            if x + 18 < self.width:
                drawn.append(text(x, self.height - 4, told, "middle"))
            at += step
        return "".join(drawn)


def coloured(panel: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return a colour for each series of a panel: the one that the panel gives to its name, or the next in turn."""
    fixed = {
        override["matcher"]["options"]: NAMED[one["value"]["fixedColor"]]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "color"
    }
    return [fixed.get(name, colour) for name, colour in zip(names, itertools.cycle(COLOURS), strict=False)]


def drawing(width: float, height: float, inside: str) -> str:
    """Return an SVG of this size."""
    return f'<svg width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">{inside}</svg>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "") -> str:
    """Return a straight line."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="1"{dashed}/>'


def text(x: float, y: float, told: str, anchor: str = "start") -> str:
    """Return a piece of small text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{TEXT}" font-size="11" text-anchor="{anchor}">{escape(told)}</text>'


def room_for(labels: list[str]) -> float:
    """Return how many pixels the longest of some labels takes, with air around it."""
    return 12 + _DIGIT * max((len(label) for label in labels), default=3)
