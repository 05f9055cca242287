"""What follows a failed attempt: another, another route, or the error, each time with the reason.

Rules, in this order; the first that applies is the reason
----------------------------------------------------------
1. The user's cancel wins over everything, whatever the attempt died of in the same moment.
2. What has reached the caller is never delivered twice, so nothing follows it.
3. A run whose total is spent ends, whatever its last attempt died of.
4. Only what may help is tried again. What nobody can tell does not count as that.
5. What the user allows comes before what the request permits, and that before what the route says now: the reason
   named is the one that would still stand if the others were gone.
6. A wait longer than is ever slept is not shortened: trying earlier would ignore what the server said, and add to what
   it suffers from. The same goes for a queue in front of the route that has grown as long.
7. A wait that would not end before the total is not begun. The caller gets its error now, and not after a sleep that
   could lead to nothing.
8. The route's budget comes last, so that it is named only where nothing else stood in the way.

Nothing here remembers anything: how many retries were made is the driver's to count, the SDK's own included, because
both spend the same patience. How long a wait is proposed is decided in ``budget`` and ``pacing``; what sort of failure
it was, in ``classify``. Interrupting an attempt and cancelling a run are two things: only the second is ``cancelled``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stallwatch.core.budget import LONGEST_SERVER_WAIT
from stallwatch.core.words import Diagnosis, FailureKind, FailureReason, RetryDecision

if TYPE_CHECKING:
    from stallwatch.core.classify import Verdict

__all__ = ["Next", "Standing", "after_attempt", "may_fall_back"]

_ELIGIBLE = frozenset({FailureKind.RATE_LIMIT, FailureKind.CAPACITY, FailureKind.STREAM})
"""Failures of the route and not of the request: another may serve it, even where this one says not to come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a run stands after one of its attempts failed."""

    verdict: Verdict
    delivered: bool
    """Whether anything has reached the caller."""
    cancelled: bool
    """Whether the user has cancelled the run."""
    retries_made: int
    """The SDK's own included."""
    retries_allowed: int
    replayable: bool
    """Whether the request can be sent again as it was."""
    total_left: float | None
    """Seconds of waiting left to the run; None when it has no total."""
    delay: float
    """Seconds of the wait proposed: back-off, the server's wish and the queue together."""
    server_wait: float | None
    """Seconds the server asked for."""
    budget_left: bool
    """Whether the route may see one more retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What to do now: try again after ``delay`` seconds, or raise the error for this reason (``delay`` is then 0)."""

    decision: RetryDecision
    delay: float = 0.0


def after_attempt(standing: Standing) -> Next:
    """Decide whether the run tries again."""
    refusal = _refusal(standing)
    if refusal is not None:
        return Next(decision=refusal)
    return Next(decision=RetryDecision.RETRY, delay=standing.delay)


def _refusal(run: Standing) -> RetryDecision | None:
    ended = _ended(run.verdict, run.delivered, run.cancelled, run.total_left)
    if ended is not None:
        return ended
    if run.verdict.diagnosis is not Diagnosis.RETRYABLE:
        return RetryDecision.FAIL_FAST
    if run.retries_allowed <= 0:
        return RetryDecision.RETRIES_OFF
    if run.retries_made >= run.retries_allowed:
        return RetryDecision.EXHAUSTED
    if not run.replayable:
        return RetryDecision.NOT_REPLAYABLE
    if max(run.delay, run.server_wait or 0.0) > LONGEST_SERVER_WAIT:
        return RetryDecision.SERVER_WAIT
    if run.total_left is not None and run.delay >= run.total_left:
        return RetryDecision.DEADLINE
    return None if run.budget_left else RetryDecision.BUDGET_EXHAUSTED


def may_fall_back(
    *,
    verdict: Verdict,
    delivered: bool,
    cancelled: bool,
    total_left: float | None,
    routes_left: int,
    eligible: frozenset[FailureKind | FailureReason] = frozenset(),
) -> RetryDecision:
    """Return ``FALLBACK`` if the run may go on with another route, else the reason why not.

    Another route is tried after failures that may be retried (a stall is one), and in any case after rate limits,
    overload and bodies that are no answer; ``eligible`` adds kinds and reasons that the user wants it tried after, such
    as a spent quota. Another route needs no wait, so the server's wait and the budget of the route that failed do not
    count.
    """
    ended = _ended(verdict, delivered, cancelled, total_left)
    if ended is not None:
        return ended
    asked_for = verdict.kind in eligible or verdict.reason in eligible
    if not (asked_for or verdict.diagnosis is Diagnosis.RETRYABLE or verdict.kind in _ELIGIBLE):
        return RetryDecision.FAIL_FAST
    return RetryDecision.FALLBACK if routes_left > 0 else RetryDecision.EXHAUSTED


def _ended(
    verdict: Verdict, delivered: bool, cancelled: bool, total_left: float | None
) -> RetryDecision | None:
    """Return what ends a run for good, on this route and on any other."""
    if cancelled or verdict.kind is FailureKind.CANCEL:
        return RetryDecision.CANCELLED
    if delivered:
        return RetryDecision.PARTIAL_OUTPUT
    return RetryDecision.DEADLINE if total_left is not None and total_left <= 0 else None
