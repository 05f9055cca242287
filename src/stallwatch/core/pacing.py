"""When the retries of a route may go, so that they do not all go at once.

Rules
-----
* A route in trouble makes its retries queue: one that has asked for a wait (``Retry-After``), until that wait is over,
  and one that fails in a *burst*, ``BURST`` times within ``BURST_WINDOW`` without a success in between.
* In a queue each retry takes a slot: the first free instant that is neither before the run's own wait is over nor
  before the server's, at least ``SPACING`` from any other. Slots are taken where they are free and not at the end, so
  a run that waits for long does not hold up one that comes later and waits for less.
* The queue only ever lengthens a wait.
* A slot further away than ``LONGEST_SERVER_WAIT`` is not handed out: the run is told how far it would have been and
  gives up, instead of holding its caller for what may be minutes more than anybody asked for.
* A success ends a burst. It does not end a server's wait: that was said of the whole route, and one answer may have
  been lucky.
* A server's wait that is longer than is ever slept ends the run it was told, and is not held against the others: one
  absurd header must not take their retries from a whole process.

First attempts are never paced; a new call is the user's decision. How many retries there may be at all is the
business of ``budget``.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from dataclasses import dataclass

from stallwatch.core.budget import LONGEST_SERVER_WAIT

__all__ = ["BURST", "BURST_WINDOW", "SPACING", "Pacing", "Slot"]

BURST = 5
"""Failures. A single run with the usual two retries makes three, so it takes at least two runs, and no success of a
third, before anyone waits for anyone."""

BURST_WINDOW = 10.0
"""Seconds; a little more than the longest back-off, so that runs that fail and come back in step are still seen
together."""

SPACING = 0.1
"""Seconds between two retries: ten in a second. A hundred runs that fail together come back within ten seconds, less
than any default limit, and the server can say no again before most of them have come."""

_HAIR = 1e-6
"""Seconds; what rounding may take from a gap before it counts as too small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """When a retry may go."""

    delay: float
    """Seconds to wait. More than ``LONGEST_SERVER_WAIT`` where no slot was to be had."""
    paced: bool = False
    """Whether that is longer than the run's own wait."""
    at: float | None = None
    """The place in the queue; None when none was needed, or none was to be had."""
    number: int = 0
    """Which of those handed out it is, so that giving it back twice takes nobody else's."""


class Pacing:
    """The queue of one route's retries. Instants are monotonic."""

    __slots__ = ("_failures", "_handed_out", "_taken", "_until")

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=BURST)
        self._until = -math.inf
        self._taken: list[tuple[float, int]] = []
        self._handed_out = 0

    def on_failure(self, now: float, server_wait: float | None = None) -> None:
        """An attempt failed in a way that may be retried; ``server_wait`` is what the server asked for, in seconds."""
        self._failures.append(now)
        if server_wait is not None and server_wait <= LONGEST_SERVER_WAIT:
            self._until = max(self._until, now + server_wait)

    def on_success(self, now: float) -> None:
        """The route answered."""
        self._failures.clear()

    def queueing(self, now: float) -> bool:
        """Tell whether retries have to queue now."""
        if now < self._until:
            return True
        return len(self._failures) == BURST and now - self._failures[0] <= BURST_WINDOW

    def wait(self, now: float, delay: float) -> float:
        """Return how long a retry would have to wait that would wait ``delay`` seconds by itself; reserves nothing."""
        if not self.queueing(now):
            return delay
        return max(self._free(max(now + delay, self._until)) - now, delay)

    def reserve(self, now: float, delay: float) -> Slot:
        """Return the slot of a retry whose run would wait for ``delay`` seconds by itself."""
        if not self.queueing(now):
            return Slot(delay=delay)
        del self._taken[: bisect_left(self._taken, (now - SPACING,))]
        wish = now + delay
        at = self._free(max(wish, self._until))
        # Not computed back where nothing was changed: rounding must not push a wait past what is allowed.
        wait = delay if at == wish else max(at - now, delay)
        paced = wait > delay
        if wait > LONGEST_SERVER_WAIT:
            return Slot(delay=wait, paced=paced)
        self._handed_out += 1
        insort(self._taken, (at, self._handed_out))
        return Slot(delay=wait, paced=paced, at=at, number=self._handed_out)

    def release(self, slot: Slot) -> None:
        """Give back a slot that will not be used; giving back what is not held changes nothing."""
        if slot.at is None:
            return
        place = (slot.at, slot.number)
        index = bisect_left(self._taken, place)
        if self._taken[index : index + 1] == [place]:
            del self._taken[index]

    def _free(self, earliest: float) -> float:
        """Return the first instant from ``earliest`` on that keeps its distance from every slot taken."""
        taken, at = self._taken, earliest
        index = bisect_right(taken, (earliest, math.inf))
        if index and at - taken[index - 1][0] < SPACING - _HAIR:
            at = taken[index - 1][0] + SPACING
        # Bounded, since no slot is handed out beyond the longest wait.
        while index < len(taken) and taken[index][0] - at < SPACING - _HAIR:
            at = taken[index][0] + SPACING
            index += 1
        return at
