"""What is asked for: the server's part, the caller's part, and how such a call may end.

A case's name is its model's name, so that spans, metrics and the gateway's ledger can each be counted by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CASES", "LIMITS", "Case"]

LIMITS: dict[str, Any] = {"connect": 5.0, "first_token": 4.0, "thinking": 3.5, "idle": 3.0, "total": 30.0}
"""Wide enough that a server on two busy cores, with all the others beside it, is not silent for as long by accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of call."""

    name: str
    attempts: tuple[str, ...]
    """What the gateway plays, one scenario per attempt; the last for all further ones."""
    ends: str
    """The one outcome that is right."""
    way: str = "chat"
    """What the caller does, by its name in ``soak.ways``."""
    weight: int = 2
    after: float = 0.0
    """Seconds until the caller cancels, or that it pauses."""
    retries: int = 0
    policy: dict[str, Any] = field(default_factory=dict)
    stream: bool = True
    may_miss_the_server: bool = False
    """It can be over before its request is sent, so that the ledger may lack it."""


CASES: tuple[Case, ...] = (
    # Healthy.
    Case(name="healthy", attempts=("healthy:tokens=20,gap=0.02",), ends="completed", weight=12),
    Case(
        name="healthy-responses",
        attempts=("healthy:tokens=10,gap=0.02",),
        ends="completed",
        way="responses",
        weight=4,
    ),
    Case(name="plain", attempts=("healthy",), ends="completed", way="plain", stream=False, weight=4),
    Case(name="embeddings", attempts=("healthy",), ends="completed", way="embed", stream=False),
    Case(name="raw-lines", attempts=("healthy:tokens=10,gap=0.02",), ends="completed", way="lines"),
    # Slow, on either side, and never to be cut.
    Case(name="slow", attempts=("slow:tokens=10,gap=0.2",), ends="completed", weight=6),
    Case(name="late", attempts=("late-headers:seconds=0.5",), ends="completed"),
    Case(name="thinks", attempts=("think-silently:seconds=0.6",), ends="completed"),
    Case(name="slow-reader", attempts=("burst:tokens=40",), ends="completed", way="pause", after=3.3),
    # Stalled, in each phase and by each verdict.
    Case(name="never-responds", attempts=("never-responds",), ends="stalled", may_miss_the_server=True),
    Case(name="silent", attempts=("silent",), ends="stalled"),
    Case(name="halts", attempts=("stall-after:tokens=5",), ends="stalled", weight=4),
    Case(name="comments", attempts=("keepalive:every=0.2",), ends="stalled"),
    Case(name="beats", attempts=("heartbeats:tokens=2,every=0.2",), ends="stalled"),
    Case(
        name="too-long",
        attempts=("endless",),
        ends="stalled",
        policy={"total": 3.0},
        may_miss_the_server=True,
    ),
    # Tried again. Few of them: a route's budget allows a fifth.
    Case(name="flaky", attempts=("error-status:code=503", "healthy"), ends="completed", retries=1, weight=1),
    Case(
        name="recovers", attempts=("error-frame:tokens=0", "healthy"), ends="completed", retries=1, weight=1
    ),
    # Broken.
    Case(name="down", attempts=("error-status:code=503",), ends="failed"),
    Case(name="limited", attempts=("error-status:code=429,retry_after_ms=50",), ends="failed"),
    Case(name="refused", attempts=("error-status:code=400",), ends="failed", way="plain", stream=False),
    Case(name="reset", attempts=("reset:tokens=3",), ends="failed"),
    Case(name="cut", attempts=("cut:tokens=3",), ends="failed"),
    Case(name="truncated", attempts=("truncated",), ends="truncated"),
    Case(name="error-frame", attempts=("error-frame:tokens=2",), ends="failed"),
    # Ended by the caller.
    Case(
        name="cancelled",
        attempts=("endless",),
        ends="cancelled",
        way="cancel",
        after=0.6,
        may_miss_the_server=True,
    ),
    Case(
        name="cancelled-early",
        attempts=("never-responds",),
        ends="cancelled",
        way="cancel",
        after=0.4,
        may_miss_the_server=True,
    ),
    Case(
        name="cancelled-silent",
        attempts=("stall-after",),
        ends="cancelled",
        way="cancel",
        after=0.6,
        may_miss_the_server=True,
    ),
    Case(name="left", attempts=("endless",), ends="closed_early", way="leave"),
    Case(name="dropped", attempts=("stall-after:tokens=5",), ends="abandoned", way="drop", weight=3),
)
