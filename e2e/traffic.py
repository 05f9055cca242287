"""The traffic: what is asked, how the gateway answers, and what must come of it.

Expectations are written down per call, in the catalogue's words, and compared with what Prometheus stores. How many
requests that took is not expected but read from the gateway's ledger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stallwatch.testing import Role, Silence, Step, Token, Tokens

__all__ = ["CASES", "KEY", "SENTINELS", "SETTINGS", "Case", "Stall", "Verdict", "plan"]

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
    script: tuple[Sequence[Step] | str, ...] = ()
    """What the gateway plays, one for each attempt; of the model named like the case."""
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
    traced: bool = True

    @property
    def stalled(self) -> bool:
        """Whether each call waits past a deadline at least once."""
        return bool(self.stalls)


DEAD = ("first_token", "dead_wire", "abort")
STALL = ("transport", "retryable")
HALT: tuple[Step, ...] = (Role(), Token("SENTINEL-ANSWER "), Tokens(4, 0.02), Silence())

CASES = (
    # Nothing wrong. Enough of them for a share to be seen.
    Case(name="steady", count=60, script=("healthy:tokens=20,gap=0.01",)),
    Case(name="steady-async", kind="stream_async", count=10, script=("healthy:tokens=20,gap=0.01",)),
    Case(name="steady-plain", kind="plain", count=10, script=("healthy",), outcome=None),
    Case(name="steady-embeddings", kind="embed", count=5, script=("healthy",), outcome=None),
    Case(name="steady-responses", kind="respond", count=5, script=("healthy",)),
    Case(name="slow", count=2, script=("slow:tokens=20,gap=0.2",), kept=True),
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
        options={"policy": {"max_retries": 0}},
        outcome="stalled",
        error="StreamInactivityTimeoutError",
        stalls={("first_token", "heartbeat_only", "abort"): 1},
        retries={(*STALL, "retries_off"): 1},
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
        script=("silent", "healthy"),
        stalls={DEAD: 1},
        retries={(*STALL, "retry"): 1},
        kept=True,
    ),
    Case(name="flaky", script=("flaky:code=503",), retries={("server", "retryable", "retry"): 1}, kept=True),
    Case(
        name="limited",
        script=("flaky:code=429,retry_after_ms=200",),
        retries={("rate_limit", "retryable", "retry"): 1},
        kept=True,
    ),
    Case(
        name="down",
        kind="routed",
        script=("error-status:code=503",),
        options={"backup": "down-backup"},
        outcome=None,
        kept=True,
    ),
    Case(
        name="late",
        kind="routed",
        script=("healthy:first=0.9",),
        options={"backup": "late-backup", "hedge": 0.3},
        outcome=None,
        kept=True,
    ),
    Case(
        name="hesitant",
        kind="routed",
        script=("healthy:first=0.6",),
        options={"backup": "hesitant-backup", "hedge": 0.3},
        outcome="completed",
        kept=True,
    ),
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
    Case(name="breaks", script=("cut:tokens=3",), outcome="failed", error="APIConnectionError", kept=True),
    Case(name="ends-early", script=("truncated",), outcome="truncated", error="APIError", kept=True),
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
    Case(name="neighbour", kind="beside_a_careless_neighbour", outcome=None, kept=True, traced=False),
)

BACKUPS = {
    "down-backup": ("healthy",),
    "late-backup": ("healthy",),
    "hesitant-backup": ("healthy:first=5",),
}
"""What the second routes' models play."""


def plan(folder: Path, cases: Sequence[Case] = CASES, *, threads: int = 48, name: str = "plan") -> Path:
    """Write down what the program is to do, the longest first."""
    calls = [
        {"case": case.name, "model": case.name, "kind": case.kind, "count": case.count, **case.options}
        for case in sorted(cases, key=lambda case: -len(case.options) - 10 * case.stalled)
    ]
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"threads": threads, "calls": calls}), encoding="utf-8")
    return path
