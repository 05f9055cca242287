"""Every OpenAI-SDK call either makes progress or fails in bounded time, with the reason on its span."""

from stallwatch.core.words import Mode, Outcome, Phase, Wire
from stallwatch.errors import (
    RunCancelledError,
    StallwatchError,
    StreamInactivityTimeoutError,
    StreamTimeoutError,
    TotalTimeoutError,
)
from stallwatch.governing import guard, unguard
from stallwatch.instrumentor import OpenAIInstrumentor
from stallwatch.policy import DEFAULT, Deadlines, Policy, RetryPolicy, Rule, policy
from stallwatch.version import __version__

__all__ = [
    "DEFAULT",
    "Deadlines",
    "Mode",
    "OpenAIInstrumentor",
    "Outcome",
    "Phase",
    "Policy",
    "RetryPolicy",
    "Rule",
    "RunCancelledError",
    "StallwatchError",
    "StreamInactivityTimeoutError",
    "StreamTimeoutError",
    "TotalTimeoutError",
    "Wire",
    "__version__",
    "guard",
    "policy",
    "unguard",
]
