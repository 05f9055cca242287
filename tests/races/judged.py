"""What must hold of a stream however its ends came together."""

from __future__ import annotations

import asyncio
from typing import Any

import openai

from races.tasks import TaskWorld
from races.world import World
from stallwatch import RunCancelledError, StreamInactivityTimeoutError
from stallwatch.runtime import registry

__all__ = ["OUTCOME_OF", "judge", "judge_tasks"]

OUTCOME_OF = {
    "cancel": "cancelled",
    "user": "cancelled",
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
    told = world.told
    (outcome,) = told.outcomes
    if "reader" in names:
        # Who cancels and closes at once has done both himself, and is told of one of them.
        both = {"cancel", "close"} <= set(names)
        _as_told("cancelled or closed" if both else outcome, told.error, told.chunks)
    assert not told.late_cancels
    _ended_once(world, names, outcome)
    assert not world.line.closed_under_a_read


def judge_tasks(world: TaskWorld, names: list[str]) -> None:
    """The same of one that was read by a task."""
    told = world.told
    (outcome,) = told.outcomes
    if "user" in names and world.user_came_first:
        assert outcome == "cancelled"
        assert isinstance(told.error, asyncio.CancelledError)
    elif "drop" not in names and not isinstance(told.error, asyncio.CancelledError):
        both = {"cancel", "close"} <= set(names)
        _as_told("cancelled or closed" if both else outcome, told.error, told.chunks)
    _ended_once(world, names, outcome)


def _ended_once(world: World | TaskWorld, names: list[str], outcome: str) -> None:
    run = world.run
    assert outcome in {OUTCOME_OF[name] for name in names if name in OUTCOME_OF}
    (span,) = world.captured.spans
    on_span = (span.attributes or {})["stallwatch.outcome"]
    assert on_span == outcome or ("backstop" in names and on_span == "abandoned")
    assert run.source is None
    assert not registry.live()
    assert not world.jobs
    assert world.line.closes == 1


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
