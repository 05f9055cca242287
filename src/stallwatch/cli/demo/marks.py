"""The marks of a timeline: every kind has a shape of its own, so that nothing depends on colour.

Each function returns SVG; colours are CSS classes of the page.
"""

from __future__ import annotations

from html import escape

__all__ = ["BAR_HEIGHT", "check", "cross", "glyph", "inside", "mark", "tick", "titled"]

BAR_HEIGHT = 26


def glyph(shape: str) -> str:
    """Return one mark by itself, for the legend."""
    if shape in ("chunk", "hollow-chunk", "wait", "pause", "cut", "whole", "deadline"):
        inner = {
            "chunk": tick(12, 3, 14, hollow=False),
            "hollow-chunk": tick(12, -2, 24, hollow=True),
            "wait": '<rect class="wait" x="1" y="3" width="22" height="14"/>',
            "pause": '<rect class="pause" x="1" y="3" width="22" height="14" fill="url(#hatch)"/>',
            "cut": cross(12, 10),
            "whole": check(12, 10),
            "deadline": '<line class="deadline" x1="12" y1="1" x2="12" y2="19"/>',
        }[shape]
    else:
        inner = mark(shape, 12, 14 if shape == "headers" else 10)
    return f'<svg class="glyph" viewBox="0 0 24 20" aria-hidden="true">{inner}</svg>'


def mark(shape: str, x: float, y: float) -> str:
    """Return what stands on a server's line."""
    match shape:
        case "comment":
            return f'<circle class="comment" cx="{x}" cy="{y}" r="4"/>'
        case "empty":
            return f'<path class="empty" d="M{x} {y - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>'
        case "headers":
            return f'<path class="headers" d="M{x} {y + 4}v-16h8l-2.5 3l2.5 3h-8"/>'
        case "asked":
            return f'<path class="asked" d="M{x} {y - 6}v12M{x} {y}h7m-3 -3l3 3l-3 3"/>'
        case "close":
            return f'<path class="close" d="M{x - 6} {y - 6}h12l-6 11z"/>'
        case _:
            return f'<circle class="token" cx="{x}" cy="{y}" r="3.6"/>'


def tick(x: float, top: float, height: float, *, hollow: bool) -> str:
    """Return a chunk in the program's bar."""
    if hollow:
        return f'<rect class="hollow" x="{x - 2}" y="{top + 6}" width="4" height="{height - 12}"/>'
    return f'<rect class="chunk" x="{x - 1.25}" y="{top}" width="2.5" height="{height}"/>'


def cross(x: float, y: float) -> str:
    """Return the end of a call that failed."""
    return f'<path class="cross" d="M{x - 7} {y - 7}l14 14M{x - 7} {y + 7}l14 -14"/>'


def check(x: float, y: float) -> str:
    """Return the end of a call that completed."""
    return f'<path class="check" d="M{x - 6} {y}l4.5 5.5l8 -11"/>'


def inside(ground: str, text: str, x: float, bar: float) -> str:
    """Return words in the program's bar."""
    return f'<text class="inside {ground}" x="{round(x, 1)}" y="{bar + BAR_HEIGHT / 2 + 4}">{escape(text)}</text>'


def titled(shape: str, title: str) -> str:
    """Return the shape with what is shown when the pointer rests on it."""
    return f"<g>{shape}<title>{escape(title)}</title></g>"
