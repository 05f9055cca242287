"""Every OpenAI-SDK call either makes progress or fails in bounded time, with the reason on its span."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from stallwatch.core.classify import Failure, Verdict
from stallwatch.core.words import (
    Diagnosis,
    FailureKind,
    FailureReason,
    HedgeResult,
    Mode,
    Outcome,
    Phase,
    RetryDecision,
    Wire,
)
from stallwatch.errors import (
    EarlierRouteError,
    RunCancelledError,
    StallwatchError,
    StreamInactivityTimeoutError,
    StreamTimeoutError,
    TotalTimeoutError,
)
from stallwatch.governing import guard, unguard
from stallwatch.instrumentor import OpenAIInstrumentor
from stallwatch.policy import DEFAULT, Deadlines, HedgePolicy, Policy, RetryPolicy, Rule
from stallwatch.policy_blocks import policy
from stallwatch.run import Run, current_run
from stallwatch.runtime.failures import classify
from stallwatch.version import __version__

if TYPE_CHECKING:
    from stallwatch.router import AsyncRouter, Route, Router

__all__ = [
    "DEFAULT",
    "AsyncRouter",
    "Deadlines",
    "Diagnosis",
    "EarlierRouteError",
    "Failure",
    "FailureKind",
    "FailureReason",
    "HedgePolicy",
    "HedgeResult",
    "Mode",
    "OpenAIInstrumentor",
    "Outcome",
    "Phase",
    "Policy",
    "RetryDecision",
    "RetryPolicy",
    "Route",
    "Router",
    "Rule",
    "Run",
    "RunCancelledError",
    "StallwatchError",
    "StreamInactivityTimeoutError",
    "StreamTimeoutError",
    "TotalTimeoutError",
    "Verdict",
    "Wire",
    "__version__",
    "classify",
    "current_run",
    "guard",
    "policy",
    "unguard",
]

_ON_FIRST_USE = ("AsyncRouter", "Route", "Router")
"""Most programs call a single route, and do not pay for the import of what chooses between several."""


def __getattr__(name: str) -> object:
    if name not in _ON_FIRST_USE and name != "router":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    router = import_module("stallwatch.router")
    globals().update({known: getattr(router, known) for known in _ON_FIRST_USE})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
