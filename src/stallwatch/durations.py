"""Durations as people write them: ``120``, ``"120s"``, ``"2m"``, ``"500ms"``, ``timedelta``."""

from __future__ import annotations

import math
import re
from datetime import timedelta

__all__ = ["ALLOWED", "LONGEST", "Duration", "seconds"]

LONGEST = 1_000_000.0
"""Seconds, about eleven days: beyond it poll(2), which counts milliseconds in 32 bits, would wrap around."""

ALLOWED = f"a number of seconds, a timedelta, or text such as '120s', '2m', '500ms', at most {LONGEST:,.0f} s"
"""What messages say is allowed."""

Duration = float | int | timedelta | str

_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "h": 3600.0}
_TEXT = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*(ms|s|m|h)?\s*", re.ASCII)


def seconds(field: str, value: object) -> float | None:
    """Return ``value`` in seconds; ``None``, zero and negative values mean *off* and give ``None``.

    Raises ValueError naming ``field``, the value and what is allowed.
    """
    if value is None:
        return None
    number = _number(value)
    if number is None or math.isnan(number) or number > LONGEST:
        raise ValueError(
            f"{field}={value!r} is not allowed: give {ALLOWED}; None, 0 or a negative value switches it off"
        )
    return number if number > 0 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        # Compared as a whole number, because a huge one has no float.
        return float(max(-1, min(value, int(LONGEST) + 1)))
    if isinstance(value, float):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        if value.strip().lower() in ("off", "none"):
            return 0.0
        match = _TEXT.fullmatch(value)
        return None if match is None else float(match[1]) * _UNITS[match[2] or ""]
    return None
