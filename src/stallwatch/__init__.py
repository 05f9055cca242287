"""Every OpenAI-SDK call either makes progress or fails in bounded time, with the reason on its span."""

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
from stallwatch.router import AsyncRouter, Route, Router
from stallwatch.run import Run, current_run
from stallwatch.runtime.failures import classify
from stallwatch.version import __version__

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
