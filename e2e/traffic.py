"""The traffic: what is asked, how the gateway answers, and what must come of it.

Expectations are written down per call, in the catalogue's words, and compared with what Prometheus stores. How many
requests that took is not expected but read from the gateway's ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stallwatch.testing import Done, Finish, Role, Silence, Step, Token, Tokens, Usage, Wait

__all__ = ["CASES", "HALT", "KEY", "SENTINELS", "SETTINGS", "SPREAD", "Case", "Stall", "Verdict"]

KEY = "sk-SENTINELKEY0123456789"
SENTINELS = ("SENTINEL", "t1 ")
"""What must not be found anywhere: the program's prompt, key, user, password and query, and the answers' text."""

SETTINGS = {
    "STALLWATCH_CONNECT_TIMEOUT": "5",
    "STALLWATCH_FIRST_TOKEN_TIMEOUT": "1",
    "STALLWATCH_THINKING_TIMEOUT": "1",
    "STALLWATCH_IDLE_TIMEOUT": "1",
    "STALLWATCH_TOTAL_TIMEOUT": "60",
}

Stall = tuple[str, str, str]
"""Phase, wire verdict, action."""
Verdict = tuple[str, str, str]
"""Kind, diagnosis, decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """So many calls of one kind to one model."""

    name: str
    kind: str = "stream"
    count: int = 2
    every: float = 0.0
    """Seconds between the beginnings of two calls. Only what grows from one export to the next has a rate."""
    script: tuple[Sequence[Step] | str, ...] = ()
    """What the gateway plays, one for each attempt of a call; of the model named like the case."""
    in_turn: bool = False
    """The scripts are not for the attempts of each call but for one call after the other."""
    options: Mapping[str, Any] = field(default_factory=dict)

    outcome: str | None = "completed"
    """Of each stream; None where no stream is counted for this model."""
    error: str | None = None
    """The class that the program catches."""
    stalls: Mapping[Stall, int] = field(default_factory=dict)
    retries: Mapping[Verdict, int] = field(default_factory=dict)
    hedge: str | None = None
    kept: bool = False
    """Whether the sampler must keep the trace; what it need not keep, it may."""
    asks: bool = True
    """Whether the gateway is asked at all."""

    @property
    def planned(self) -> bool:
        """Whether the program makes these calls; those of a backup are a router's."""
        return self.kind != BACKUP


BACKUP = "backup"
DEAD = ("first_token", "dead_wire", "abort")
STALL = ("transport", "retryable")
HALT: tuple[Step, ...] = (Role(), Token("SENTINEL-ANSWER "), Tokens(4, 0.02), Silence())


def _answer(first: float, gap: float) -> tuple[Step, ...]:
    """Answer after ``first`` seconds, with one gap of so many among short ones."""
    halves = (Tokens(6, 0.01), Wait(gap), Tokens(6, 0.01))
    return Role(), Wait(first), *halves, Finish(), Usage(only_if_asked=True), Done()


SPREAD = Case(
    # From instant to beyond where buckets made for web pages end. What is in a series' first export has no rate, so
    # the first call is one of the many that are quick.
    name="spread",
    count=20,
    every=0.3,
    script=(
        _answer(0.2, 0.03),
        *[_answer(12.0, 3.0)] * 4,
        *[_answer(1.5, 0.7)] * 6,
        *[_answer(0.2, 0.03)] * 9,
    ),
    in_turn=True,
    options={"policy": {"first_token": 30, "idle": 30}},
    # Which of them took long is not told apart.
    kept=False,
)

CASES = (
    # Nothing wrong. Enough of them for a share to be seen.
    Case(name="steady", count=60, every=0.15, script=("healthy:tokens=20,gap=0.01",)),
    Case(name="steady-async", kind="stream_async", count=10, script=("healthy:tokens=20,gap=0.01",)),
    Case(name="steady-plain", kind="plain", count=10, script=("healthy",), outcome=None),
    Case(name="steady-embeddings", kind="embed", count=5, script=("healthy",), outcome=None),
    Case(name="steady-responses", kind="respond", count=5, script=("healthy",)),
    Case(name="slow", count=2, script=("slow:tokens=20,gap=0.2",), kept=True),
    SPREAD,
    # Stalls, in each phase that a test can wait for, and by each verdict on the wire.
    Case(
        name="silent",
        script=("silent",),
        outcome="stalled",
        error="StreamInactivityTimeoutError",
        stalls={DEAD: 3},
        retries={(*STALL, "retry"): 2, (*STALL, "exhausted"): 1},
        kept=True,
    ),
    Case(
        name="halts",
        count=4,
        every=2.0,
        script=(HALT,),
        outcome="stalled",
        error="StreamInactivityTimeoutError",
        stalls={("idle", "dead_wire", "abort"): 1},
        retries={(*STALL, "partial_output"): 1},
        kept=True,
    ),
    Case(
        name="comments",
        script=("keepalive:tokens=2,every=0.2",),
        outcome="stalled",
        error="StreamInactivityTimeoutError",
        stalls={("idle", "keepalive_only", "abort"): 1},
        retries={(*STALL, "partial_output"): 1},
        kept=True,
    ),
    Case(
        name="beats",
        script=("heartbeats:every=0.2",),
        outcome="stalled",
        error="StreamInactivityTimeoutError",
        stalls={("first_token", "heartbeat_only", "abort"): 1},
        # Not tried again: the empty chunks have reached the caller.
        retries={(*STALL, "partial_output"): 1},
        kept=True,
    ),
    Case(
        # The request goes on long after its first span has ended: a sampler must not decide in between.
        name="stalls-early",
        script=("silent",),
        options={"policy": {"max_retries": 0}, "linger": 4.0},
        outcome="stalled",
        error="StreamInactivityTimeoutError",
        stalls={DEAD: 1},
        retries={(*STALL, "retries_off"): 1},
        kept=True,
    ),
    Case(
        # Long enough silent to be seen while it is.
        name="hangs",
        count=1,
        script=("silent",),
        options={"policy": {"max_retries": 0, "first_token": 14}},
        outcome="stalled",
        error="StreamInactivityTimeoutError",
        stalls={DEAD: 1},
        retries={(*STALL, "retries_off"): 1},
        kept=True,
    ),
    Case(
        name="observed",
        script=("think-silently:seconds=2",),
        options={"policy": {"mode": "observe"}},
        stalls={("first_token", "dead_wire", "observe"): 1},
        kept=True,
    ),
    # Attempts that help.
    Case(
        name="recovers",
        every=4.0,
        script=("silent", "healthy"),
        stalls={DEAD: 1},
        retries={(*STALL, "retry"): 1},
        kept=True,
    ),
    Case(
        name="flaky",
        every=4.0,
        script=("error-status:code=503", "healthy"),
        retries={("capacity", "retryable", "retry"): 1},
        kept=True,
    ),
    Case(
        name="limited",
        every=4.0,
        script=("error-status:code=429,retry_after_ms=200", "healthy"),
        retries={("rate_limit", "retryable", "retry"): 1},
        kept=True,
    ),
    Case(
        name="down",
        every=4.0,
        kind="routed",
        script=("error-status:code=503",),
        options={"backup": "down-backup"},
        outcome=None,
        retries={("capacity", "retryable", "fallback"): 1},
        kept=True,
    ),
    Case(name="down-backup", kind=BACKUP, script=("healthy",)),
    Case(
        name="late",
        every=4.0,
        kind="routed",
        script=("healthy:first=0.9",),
        options={"backup": "late-backup", "hedge": 0.3},
        outcome=None,
        kept=True,
    ),
    Case(name="late-backup", kind=BACKUP, script=("healthy",), hedge="won"),
    Case(
        name="hesitant",
        every=4.0,
        kind="routed",
        script=("healthy:first=0.6",),
        options={"backup": "hesitant-backup", "hedge": 0.3},
        hedge="lost",
        kept=True,
    ),
    Case(name="hesitant-backup", kind=BACKUP, script=("healthy:first=5",), outcome=None),
    # Failures that no attempt helps.
    Case(
        name="refuses",
        script=("error-status:code=400,echo=prompt",),
        outcome="failed",
        error="BadRequestError",
        retries={("client", "fail_fast", "fail_fast"): 1},
        kept=True,
    ),
    Case(
        name="denies",
        script=("error-status:code=401,echo=key",),
        outcome="failed",
        error="AuthenticationError",
        retries={("auth", "fail_fast", "fail_fast"): 1},
        kept=True,
    ),
    Case(
        name="breaks",
        script=("cut:tokens=3",),
        outcome="failed",
        error="APIConnectionError",
        retries={(*STALL, "partial_output"): 1},
        kept=True,
    ),
    Case(
        # The SDK takes that for a whole answer, so the program does not notice.
        name="ends-early",
        script=("truncated",),
        outcome="truncated",
        retries={("stream", "retryable", "partial_output"): 1},
        kept=True,
    ),
    # The user's own ends.
    Case(
        name="cancelled",
        kind="cancel",
        count=3,
        script=("endless",),
        options={"cancel_after": 0.5},
        outcome="cancelled",
        error="RunCancelledError",
    ),
    Case(name="left", kind="close_early", count=3, script=("endless",), outcome="closed_early"),
    # Secrets.
    Case(
        name="secretive",
        kind="with_secrets_in_the_address",
        script=(HALT,),
        outcome="stalled",
        error="StreamInactivityTimeoutError",
        stalls={("idle", "dead_wire", "abort"): 1},
        retries={(*STALL, "partial_output"): 1},
        kept=True,
    ),
    Case(name="neighbour", kind="beside_a_careless_neighbour", outcome=None, kept=True, asks=False),
)
