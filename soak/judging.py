"""Rows of the final table: what was found, what is allowed, and whether that holds. Pure, so that it can be tested.

How growth is told from noise
-----------------------------
Memory at rest is never the same twice. What is read at each rest is laid along a line whose slope is the median of the
slopes between all pairs of readings (Theil and Sen), so that one odd reading changes nothing. The *noise* is how far
the readings lie from that line, as a standard deviation estimated from the median. Growth over the run is allowed up to
four times what that noise alone would make of a flat line. Few readings may lie close together by chance, so there is
a least growth, too, that is not told from nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Growth", "Row", "equal", "grown", "growth", "nothing"]

SIGMAS = 4.0
_FROM_MEDIAN = 1.4826
"""From a median distance to a standard deviation, for noise that is normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    what: str
    found: str
    allowed: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What grew from the first reading to the last, in the unit of the readings, and what noise alone may make."""

    total: float
    noise: float
    allowed: float


def growth(readings: Sequence[float], least: float) -> Growth:
    """Judge readings at equal distances; ``least`` is allowed however quiet they are."""
    if len(readings) < 4:
        raise ValueError(
            f"readings: {len(readings)} are too few to tell growth from noise; allowed: 4 and more"
        )
    pairs = itertools.combinations(enumerate(readings), 2)
    slope = median((after - before) / (later - sooner) for (sooner, before), (later, after) in pairs)
    level = median(value - slope * number for number, value in enumerate(readings))
    distances = [abs(value - slope * number - level) for number, value in enumerate(readings)]
    noise = _FROM_MEDIAN * median(distances)
    steps = len(readings) - 1
    # The error of a fitted slope over n equally spaced points, times the length of the run.
    error = noise * steps * math.sqrt(12 / (len(readings) * (len(readings) ** 2 - 1)))
    return Growth(total=slope * steps, noise=noise, allowed=max(least, SIGMAS * error))


def grown(what: str, readings: Sequence[float], calls: int, least: float) -> Row:
    """Judge bytes at rest over so many calls; ``least`` are the bytes that are not told from nothing."""
    found = growth(readings, least)
    return Row(
        what=what,
        found=f"{found.total / 1024:+.0f} KiB, {found.total / calls:+.1f} bytes a call",
        allowed=f"{found.allowed / 1024:.0f} KiB (noise {found.noise / 1024:.0f} KiB)",
        holds=found.total <= found.allowed,
    )


def equal(
    what: str, ours: Mapping[str, int], theirs: Mapping[str, int], *, at_most: frozenset[str] = frozenset()
) -> Row:
    """Compare two books line by line; of the lines named ``at_most``, theirs may have fewer."""
    different = [
        f"{name} {ours.get(name, 0)} != {theirs.get(name, 0)}"
        for name in sorted({*ours, *theirs})
        if ours.get(name, 0) != theirs.get(name, 0)
        and not (name in at_most and theirs.get(name, 0) < ours.get(name, 0))
    ]
    return Row(
        what=what,
        found=f"{sum(theirs.values())}" if not different else "; ".join(different[:6]),
        allowed=f"{sum(ours.values())}",
        holds=not different,
    )


def nothing(what: str, found: Mapping[str, int]) -> Row:
    """Allow none."""
    there = {name: number for name, number in found.items() if number}
    shown = "; ".join(f"{name} ({number})" for name, number in list(there.items())[:6])
    return Row(what=what, found=shown or "none", allowed="none", holds=not there)
