"""What a server says about coming back: ``retry-after-ms``, ``Retry-After`` and ``x-should-retry``.

The order and the headers are the OpenAI SDK's. The difference is in what is no usable wait: zero, the past and
anything unreadable mean the ordinary back-off, but a number too large for a float is a very long wait and not an
unreadable one, so it is not answered by coming back early.
"""

from __future__ import annotations

import calendar
import re
from email.utils import parsedate_tz
from typing import Protocol

from stallwatch.durations import LONGEST

__all__ = ["Headers", "server_wait", "should_retry_header"]

# float() alone would also take "inf", "nan", "1_000" and the digits of other scripts.
_NUMBER = re.compile(r"[ \t]*[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[ \t]*", re.ASCII)


class Headers(Protocol):
    """The headers of a response; names are asked for in lower case."""

    def get(self, name: str, /) -> object:
        """Return the value, or None when there is no such header."""
        ...


def server_wait(headers: Headers | None, wall_now: float) -> float | None:
    """Return the seconds a server asks to wait, or None for the ordinary back-off.

    Always more than 0, and at most ``LONGEST``, about eleven days: the caller decides what is too long. ``wall_now`` is
    the time of day in seconds since the epoch, which an HTTP date is measured against.
    """
    if headers is None:
        return None
    in_milliseconds = _number(headers.get("retry-after-ms"))
    if in_milliseconds is not None:
        return _usable(in_milliseconds / 1000)
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None:
        return _usable(seconds)
    instant = _date(text)
    return None if instant is None else _usable(instant - wall_now)


def should_retry_header(headers: Headers | None) -> bool | None:
    """Return what ``x-should-retry`` says, or None when it says nothing that the SDK understands."""
    said = None if headers is None else headers.get("x-should-retry")
    return {"true": True, "false": False}.get(said) if isinstance(said, str) else None


def _usable(seconds: float) -> float | None:
    return min(seconds, LONGEST) if seconds > 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _date(value: object) -> float | None:
    if not isinstance(value, str) or not value.isascii():
        return None
    try:
        parsed = parsedate_tz(value)
        # HTTP dates are in GMT, also where the old asctime form does not say so.
        return None if parsed is None else calendar.timegm(parsed[:9]) - (parsed[9] or 0)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        # A date that is none, such as a thirteenth month.
        return None
