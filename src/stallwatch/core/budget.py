"""How long to wait before a retry, and how many retries a route may see.

A retry helps the run that makes it and burdens a server that may be failing under its load already. So a route has a
budget beside each run's own count: a share of its calls, and an allowance for routes that see few.

* A call earns ``CALL_SHARE`` of a retry. What is earned and not spent halves every ``HALF_LIFE`` seconds, so that calls
  that went well this afternoon pay for no storm tonight, and yet a thousand calls made in one second may make their
  two hundred retries in the next.
* The allowance is ``PER_MINUTE``, and never more than one minute's is saved up.
* Shares lapse by themselves, so they are spent first.
* What the SDK's own retries draw beyond the balance is forgiven: they keep the balance at nothing while they last, and
  a debt would refuse ours for a storm that is over.

What the server asks for is read in ``runtime.retry_after``; who goes first is decided in ``pacing``.
"""

from __future__ import annotations

import math

__all__ = [
    "CALL_SHARE",
    "FIRST_BACK_OFF",
    "HALF_LIFE",
    "LONGEST_BACK_OFF",
    "LONGEST_SERVER_WAIT",
    "PER_MINUTE",
    "RetryBudget",
    "back_off",
]

FIRST_BACK_OFF = 0.5
LONGEST_BACK_OFF = 8.0
"""Seconds; these and the formula are the OpenAI SDK's own (1.66 to 3.57), so that it makes no difference to a server
which of the two tries again."""

_JITTER = 0.25
_DOUBLINGS = 10
"""Beyond them the back-off has long been the longest, and the power would overflow some day."""

LONGEST_SERVER_WAIT = 120.0
"""Seconds; the longest wait ever slept between two attempts. It is what the OpenAI SDK 3.x allows a server to ask for
(exactly 120 is still waited for); its earlier lines allowed 60."""

CALL_SHARE = 0.2
"""Retries a call earns."""

PER_MINUTE = 10.0
"""Retries a minute a route may see however few its calls are, and the most that is saved up of them."""

HALF_LIFE = 60.0
"""Seconds in which half of what calls have earned lapses. At a steady rate no more is kept than what the calls of
about the last minute and a half have earned."""

_ONE = 1 - 1e-9
"""A whole retry, but for rounding: shares are fifths, which do not add up exactly."""


def back_off(retry: int, random: float) -> float:
    """Return the seconds to wait before the next retry of a run that has made ``retry`` of them.

    ``random`` (from 0 up to, not including, 1) takes off up to a quarter, so that runs that failed together do not
    come back together.
    """
    delay = min(FIRST_BACK_OFF * 2.0 ** min(retry, _DOUBLINGS), LONGEST_BACK_OFF)
    return delay * (1 - _JITTER * random)


class RetryBudget:
    """The retries one route may still see. Instants are monotonic; one from the past changes nothing but the count."""

    __slots__ = ("_allowance", "_at", "_earned")

    def __init__(self) -> None:
        self._allowance = PER_MINUTE
        self._earned = 0.0
        self._at = -math.inf

    def on_call(self, now: float) -> None:
        """A call begins: once for a run, whatever its attempts."""
        self._settle(now)
        self._earned += CALL_SHARE

    def take(self, now: float) -> bool:
        """Draw one retry. False when there is none left, and nothing is drawn."""
        if self.left(now) < _ONE:
            return False
        self._draw()
        return True

    def count(self, now: float) -> float:
        """One is made without asking: draw it as far as the balance goes, and return how far that was (up to 1)."""
        before = self.left(now)
        self._draw()
        return min(before, 1.0)

    def put_back(self, now: float, drawn: float = 1.0) -> None:
        """A retry that was drawn will not be made. What comes back lapses like what calls have earned."""
        self._settle(now)
        self._earned += drawn

    def left(self, now: float) -> float:
        """Return how many retries may be made now; the fraction is on its way to the next."""
        self._settle(now)
        return self._allowance + self._earned

    def _settle(self, now: float) -> None:
        elapsed = now - self._at
        if elapsed <= 0:
            return
        self._at = now
        self._allowance = min(self._allowance + elapsed * PER_MINUTE / 60, PER_MINUTE)
        self._earned *= 0.5 ** (elapsed / HALF_LIFE)

    def _draw(self) -> None:
        earned = min(self._earned, 1.0)
        self._earned -= earned
        self._allowance = max(self._allowance - (1 - earned), 0.0)
