"""Rows of (instant, event) played into a tracker, and what becomes of the wait they end in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stallwatch.core.chunks import FINISH, ChunkFacts
from stallwatch.core.phases import Limits, Stall, Tracker, Whole

__all__ = ["BYTES", "FINISHED", "LIMITS", "Row", "ending", "finishing", "play"]

BYTES = "bytes"
Row = tuple[float, str | ChunkFacts]

LIMITS = Limits(connect=1, first_token=2, thinking=3, idle=4, total=60, keepalive_factor=2)
"""Five limits that cannot be taken for one another."""


def finishing(choices: int) -> ChunkFacts:
    """A chunk with the finish reasons of so many choices."""
    return replace(FINISH, finishes=choices)


FINISHED = finishing(1)


def play(limits: Limits, rows: Iterable[Row], *, choices: int = 1) -> Tracker:
    """Play ``rows`` to a run that begins at 0 with its first attempt.

    A chunk comes with its bytes and meets a reader who waits for the next one at once; ``pause`` and ``wait`` make a
    slow reader. Other events are called by the tracker's own names.
    """
    tracker = Tracker(limits, 0, choices)
    tracker.on_attempt(0)
    for now, event in rows:
        if isinstance(event, str):
            getattr(tracker, f"on_{event}")(now)
        else:
            tracker.on_bytes(now)
            tracker.on_chunk(event, now)
            tracker.on_wait(now)
    return tracker


def ending(tracker: Tracker) -> tuple[float, Stall | Whole] | None:
    """Return when the present wait is over and what it has become then; None when it may last for ever."""
    due = tracker.due()
    if due is None:
        assert tracker.judge(1e9) is None
        return None
    assert tracker.judge(due.at - 1e-6) is None
    found = tracker.judge(due.at)
    assert found is not None
    return due.at, found
