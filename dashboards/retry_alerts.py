"""Alerts on what retries and hedges do: whether they help, and whether they have become the load.

The counter of failed attempts tells why each was made, so a retry in vain is one whose role is ``retry``, whatever was
decided after it, and a retry made is an attempt after which it was decided so. Fallbacks are not looked at here: what
they are made of lies with two models, and an alert speaks of one.
"""

from __future__ import annotations

from dashboards.alerting import COUNT, SHARE, WHO, Alert
from dashboards.objective import Objective, about
from dashboards.recordings import ATTEMPTS, FAILED, HEDGES, HEDGES_REFUSED, MADE, WANTED


def alerts(goal: Objective) -> list[Alert]:
    """Return the alerting rules."""
    return [_not_helping(goal), _storm(goal), _hedges(goal)]


def _not_helping(goal: Objective) -> Alert:
    failed, made = FAILED.recorded, MADE.recorded
    return Alert(
        name="LLMStreamRetriesNotHelping",
        severity="ticket",
        wait="5m",
        expr=(
            f"clamp_max({failed} / ({made} > 0), 1) > {goal.vain_share:g}\n"
            f"and {failed} > {about(goal.vain_retries)}"
        ),
        summary=f"Retries of calls to {WHO} hardly help.",
        description=f"Of the retries of the last half hour {SHARE} failed as well.",
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
