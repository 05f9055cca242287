"""Numbers as a reader wants them: the units that the dashboards use, by Grafana's ids."""

from __future__ import annotations

import math
from collections.abc import Callable

_THOUSANDS = (
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "K"),
)
_KIBI = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def written(value: float, unit: str, decimals: int | None = None) -> str:
    """Return a value with its unit.

    Raises KeyError for a unit that no dashboard of ours uses: then it has to be drawn first.
    """
    return _UNITS[unit](value, decimals)


def _plain(value: float, decimals: int | None) -> str:
    size = abs(value)
    for factor, letter in _THOUSANDS:
        if size >= factor:
            return f"{_rounded(value / factor, decimals)} {letter}"
    return _rounded(value, decimals)


def _with(suffix: str) -> Callable[[float, int | None], str]:
    return lambda value, decimals: f"{_plain(value, decimals)}{suffix}"


def _seconds(value: float, decimals: int | None) -> str:
    size = abs(value)
    factor, name = next((one for one in _TIMES if size >= one[0]), _TIMES[-1])
    return "0 s" if not size else f"{_rounded(value / factor, decimals)} {name}"


def _percent(value: float, decimals: int | None) -> str:
    return f"{_rounded(100 * value, decimals)}%"


def _bytes(value: float, decimals: int | None) -> str:
    size = abs(value)
    factor, name = next((one for one in _KIBI if size >= one[0]), (1.0, "B"))
    return f"{_rounded(value / factor, decimals)} {name}"


def _rounded(value: float, decimals: int | None) -> str:
    """Return three significant digits unless told otherwise."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if not value or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(places, 4)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_UNITS: dict[str, Callable[[float, int | None], str]] = {
    "short": _plain,
    "s": _seconds,
    "percentunit": _percent,
    "cps": _with(" c/s"),
    "cpm": _with(" c/m"),
    "bytes": _bytes,
    "x": _with("x"),
}
