"""Values that callers and servers chose, made fit for telemetry, or refused.

Exporters encode texts as UTF-8 and whole numbers as 64-bit integers, and lose a whole batch over one that does not fit;
histograms log a warning for each negative count. So whatever goes onto spans and metrics passes here first.
"""

from __future__ import annotations

import math

__all__ = ["TEXT_CAP", "count_of", "integer_of", "real_of", "text_of"]

TEXT_CAP = 256
"""Characters kept of a text; what is longer is no name or id any more."""

_INTEGER_END = 2**63


def text_of(value: object) -> str | None:
    """Return a text that can be encoded, cut to 256 characters; None for an empty one and for anything else."""
    if not isinstance(value, str) or not value:
        return None
    kept = value[:TEXT_CAP]
    # Lone surrogates: JSON can carry them, UTF-8 cannot.
    return kept if kept.isascii() else kept.encode("utf-8", "replace").decode("utf-8")


def integer_of(value: object) -> int | None:
    """Return a whole number of 64 bits, or None."""
    if not isinstance(value, int) or isinstance(value, bool) or not -_INTEGER_END <= value < _INTEGER_END:
        return None
    return int(value)


def count_of(value: object) -> int | None:
    """Return a whole number of 64 bits that is not negative, or None."""
    whole = integer_of(value)
    return None if whole is None or whole < 0 else whole


def real_of(value: object) -> float | None:
    """Return a finite number, or None."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
