"""How long a blocked synchronous wait may go on: judged, and recorded, by the thread that waits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.core.judging import GRACE, Judge, Judgement
from stallwatch.core.phases import Stall
from stallwatch.runtime.inflight import InFlight

__all__ = ["FLOOR", "OverError", "OwnDeadline", "of_library"]

FLOOR = 0.001
"""Seconds; zero would make a socket non-blocking."""


class OverError(Exception):
    """The wait is over: a stall or the user's cancel has been recorded."""


class OwnDeadline:
    """What is left to one wait after another of ``run``."""

    __slots__ = ("_judge", "_run")

    def __init__(self, run: InFlight) -> None:
        self._run = run
        self._judge = Judge()

    def left(self, readable: Callable[[], bool]) -> float | None:
        """Return the seconds to wait before asking again, None for no limit; raises ``OverError``.

        ``readable`` tells whether something lies there to be read; it is asked only once the deadline has passed.
        """
        run = self._run
        while True:
            if isinstance(run.pending, Stall) or run.cancelled:
                # What was recorded stands, also for a transport that sends the request again by itself.
                raise OverError
            due = run.due()
            if due is None:
                return None
            now = monotonic()
            if now < due.at:
                return max(due.at - now, FLOOR)
            ruling = self._judge.rule(
                now,
                due.at,
                wait=run.tracker.wait_from or 0.0,
                received=run.received,
                readable=readable(),
            )
            if ruling is not Judgement.STALL:
                return GRACE if ruling is Judgement.GRANT else FLOOR
            found = run.tracker.judge(now)
            if found is not None and run.note(found):
                raise OverError


def of_library(thing: Any, name: str, otherwise: type[Exception]) -> type[Exception]:
    """Return the exception of this name in the library that ``thing`` comes from."""
    library = sys.modules.get(type(thing).__module__.partition(".")[0])
    kind: type[Exception] = getattr(library, name, otherwise)
    return kind
