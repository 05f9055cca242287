"""The shipped rules in a world that runs fifteen times as fast.

The rules are made for a scrape and an evaluation every 15 s. The tests scrape and evaluate every second, so every
duration in the rules (windows, offsets, steps of subqueries, waiting times) is divided by the same fifteen, and nothing
is shorter than it is in proportion. Thresholds, counts and names stay as they are; so an hour's window, now four
minutes, is still called an hour's.
"""

from __future__ import annotations

import re
from pathlib import Path

from e2e.prometheus import INTERVAL, RULES

__all__ = ["FACTOR", "hurried", "hurried_rules"]

FACTOR = 15 // INTERVAL

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = r"\d+(?:ms|[smhd])"
_PLACES = re.compile(
    rf"(?<=\[){_TIME}(?::{_TIME})?(?=\])|(?:(?<=\boffset )|(?<=\bfor: )|(?<=\bkeep_firing_for: )){_TIME}\b"
)
"""Where a duration is one: not in names, and not in what an alert says."""


def hurried(rules: str) -> str:
    """Return the rules with every duration divided; to a millisecond, rounded down."""
    return _PLACES.sub(lambda place: re.sub(_TIME, lambda time: _shorter(time[0]), place[0]), rules)


def hurried_rules(folder: Path) -> Path:
    """Write the shipped rules so into a folder of their own, and return that."""
    place = folder / "hurried"
    place.mkdir()
    (place / "rules.yml").write_text(
        hurried((RULES / "rules.yml").read_text(encoding="utf-8")), encoding="utf-8"
    )
    return place


def _shorter(time: str) -> str:
    number = time.rstrip("".join(_UNITS))
    return f"{int(number) * _UNITS[time.removeprefix(number)] // FACTOR}ms"
