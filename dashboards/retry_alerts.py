"""Alerts on what retries and hedges do: whether they help, and whether they have become the load.

Which attempt was a retry is not told by the counters, so what was used up in vain is worked out: a call that ends as
``exhausted`` has used up all the retries it may make. Calls that gave up for another reason after a retry are not in
it, so the share is a lower bound.
"""

from __future__ import annotations

from dashboards.alerting import COUNT, SHARE, WHO, Alert
from dashboards.objective import Objective, about
from dashboards.recordings import ATTEMPTS, HEDGES, HEDGES_REFUSED, IN_VAIN, MADE, WANTED


def alerts(goal: Objective) -> list[Alert]:
    """Return the alerting rules."""
    return [_not_helping(goal), _storm(goal), _hedges(goal)]


def _not_helping(goal: Objective) -> Alert:
    failed, made = IN_VAIN.recorded, MADE.recorded
    return Alert(
        name="LLMStreamRetriesNotHelping",
        severity="ticket",
        wait="5m",
        expr=(
            f"clamp_max({goal.retries_per_call} * {failed} / ({made} > 0), 1) > {goal.vain_share:g}\n"
            f"and {failed} > {about(goal.vain_calls)}"
        ),
        summary=f"Retries of calls to {WHO} hardly help.",
        description=f"About {SHARE} of the retries of the last half hour went into calls that failed all the same.",
    )


def _storm(goal: Objective) -> Alert:
    return Alert(
        name="LLMStreamRetryStorm",
        severity="ticket",
        wait="5m",
        expr=(
            f"{WANTED.recorded} / ({ATTEMPTS.recorded} > 0) > {goal.storm_share:g}\n"
            f"and {ATTEMPTS.recorded} > {about(goal.storm_attempts)}"
        ),
        summary=f"Retries have become a large part of the load on {WHO}.",
        description=(
            f"Within ten minutes there was a wish to try again for {SHARE} of the attempts; the retry budget may have "
            "kept some of them back."
        ),
    )


def _hedges(goal: Objective) -> Alert:
    due, refused = HEDGES.recorded, HEDGES_REFUSED.recorded
    return Alert(
        name="LLMStreamHedgeBudgetSpent",
        severity="ticket",
        wait="10m",
        expr=f"{refused} > {about(goal.hedges_refused)}\nand {refused} / ({due} > 0) > 0.5",
        summary=f"Most hedges of calls to {WHO} are refused: their share of the calls is used up.",
        description=f"About {COUNT} second attempts were due within the hour and not started.",
    )
