"""What must hold of a stream however its ends came together."""

from __future__ import annotations

from typing import Any

import openai

from races.world import World
from stallwatch import RunCancelledError, StreamInactivityTimeoutError
from stallwatch.runtime import registry

__all__ = ["OUTCOME_OF", "judge"]

OUTCOME_OF = {
    "cancel": "cancelled",
    "deadline": "stalled",
    "backstop": "stalled",
    "end": "completed",
    "lost": "failed",
    "close": "closed_early",
    "drop": "abandoned",
}
"""What each of them makes of a stream, when it comes first."""


def judge(world: World, names: list[str]) -> None:
    """Fail if the stream has ended in no way, in two, or not as it is told."""
    told, run = world.told, world.run
    (outcome,) = told.outcomes
    assert outcome in {OUTCOME_OF[name] for name in names if name in OUTCOME_OF}
    assert not told.late_cancels
    if "reader" in names:
        # Who cancels and closes at once has done both himself, and is told of one of them.
        both = {"cancel", "close"} <= set(names)
        _as_told("cancelled or closed" if both else outcome, told.error, told.chunks)
    (span,) = world.captured.spans
    on_span = (span.attributes or {})["stallwatch.outcome"]
    assert on_span == outcome or ("backstop" in names and on_span == "abandoned")
    assert run.source is None
    assert not registry.live()
    assert not world.jobs
    assert world.line.closes == 1
    assert not world.line.closed_under_a_read


def _as_told(outcome: str, error: Any, chunks: int) -> None:
    if outcome == "cancelled":
        assert isinstance(error, RunCancelledError)
    elif outcome == "stalled":
        assert isinstance(error, StreamInactivityTimeoutError)
    elif outcome == "completed":
        assert error is None
        assert chunks == 2
    elif outcome == "cancelled or closed":
        assert not isinstance(error, openai.APITimeoutError)
    else:
        assert error is None or not isinstance(error, (RunCancelledError, openai.APITimeoutError))
