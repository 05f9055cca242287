"""The series that are worked out ahead: counts and ratios per job, provider and model.

Zero-safe: a model without a stalled series has zero stalls. NaN-safe: one without traffic has no ratio, because nought
out of nought is neither a success nor a failure. Restarts are ``increase``'s business.

Only the shortest window reads the counters themselves. They are a series for every process, and three days of them
are more samples than a large installation can look at every few seconds; so longer windows are summed from what the
shortest has recorded, which is a series for every model. The price: a window fills from the time on when the rules were
loaded, and what happens while no rules are evaluated is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from dashboards import promql as q
from dashboards.objective import HOURS, WINDOWS, Objective

BY = q.sum_by(q.GROUP)
BASE = "5m"
"""The window that reads the counters; four scrapes must fit into it."""

SILENT_SHARE = "model:stallwatch_streams_silent:share"
OPEN = "model:stallwatch_streams_active:sum"
FIRST_TOKEN = "model:stallwatch_time_to_first_token_seconds:p95_10m"
PERIOD_RATIO = "model:stallwatch_stalled_streams:ratio_period"
BUDGET_LEFT = "model:stallwatch_stalled_streams:budget_left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A series that is worked out ahead."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What an alert counts within one window, beside streams."""

    what: str
    counter: str
    window: str

    def within(self, window: str) -> str:
        """Return the recorded series of one window."""
        return f"model:stallwatch_{self.what}:increase{window}"

    @property
    def recorded(self) -> str:
        """The series of the window that matters."""
        return self.within(self.window)


def _retries(what: str, label: str, values: str, window: str) -> Count:
    return Count(what=what, counter=f'{q.RETRIES}{{{label}=~"{values}"}}', window=window)


MADE = _retries("retries_made", q.RETRY_DECISION, q.RETRY, "30m")
FAILED = _retries("retries_failed", q.ATTEMPT_ROLE, q.FAILED_RETRY, "30m")
WANTED = _retries("retries_wanted", q.RETRY_DECISION, q.WANTED, "10m")
ATTEMPTS = Count(what="attempts", counter=q.ATTEMPTS, window="10m")
HEDGES = Count(what="hedges", counter=q.HEDGES, window="1h")
HEDGES_REFUSED = Count(
    what="hedges_refused", counter=f'{q.HEDGES}{{{q.HEDGE_RESULT}="{q.REFUSED_HEDGE}"}}', window="1h"
)
COUNTS = (MADE, FAILED, WANTED, ATTEMPTS, HEDGES, HEDGES_REFUSED)


def streams(window: str) -> str:
    """Return the recorded number of streams that ended within a window."""
    return f"model:stallwatch_streams:increase{window}"


def stalled(window: str) -> str:
    """Return the recorded number of streams that stalled within a window."""
    return f"model:stallwatch_stalled_streams:increase{window}"


def ratio(window: str) -> str:
    """Return the recorded share of streams that stalled within a window."""
    return f"model:stallwatch_stalled_streams:ratio{window}"


def recordings(goal: Objective) -> list[Recording]:
    """Return the recording rules, each after those it reads."""
    every = f"{BY} (increase({q.STREAMS}[{BASE}]))"
    bad = f'{BY} (increase({q.STREAMS}{{{q.OUTCOME}="stalled"}}[{BASE}]))'
    found = [
        Recording(name=streams(BASE), expr=every),
        Recording(name=stalled(BASE), expr=f"{bad} or 0 * {every}"),
    ]
    for window in WINDOWS:
        if window != BASE:
            found += [
                Recording(name=counted(window), expr=_summed(counted(BASE), window))
                for counted in (streams, stalled)
            ]
        found.append(Recording(name=ratio(window), expr=f"{stalled(window)} / ({streams(window)} > 0)"))
    # Each stream is counted once for every evaluation within the base, in numerator and denominator alike.
    period = f"[{goal.period_days}d]"
    whole = f"sum_over_time({stalled(BASE)}{period}) / (sum_over_time({streams(BASE)}{period}) > 0)"
    for count in COUNTS:
        found += [
            Recording(name=count.within(BASE), expr=f"{BY} (increase({count.counter}[{BASE}]))"),
            Recording(name=count.recorded, expr=_summed(count.within(BASE), count.window)),
        ]
    silent = f"({BY} ({q.SILENT}) or 0 * {OPEN})"
    begun = f"sum by ({', '.join(('le', *q.GROUP))}) (rate({q.TIME_TO_FIRST_TOKEN}_bucket[10m]))"
    return [
        *found,
        Recording(name=PERIOD_RATIO, expr=whole),
        Recording(name=BUDGET_LEFT, expr=f"1 - {PERIOD_RATIO} / {goal.budget:.6g}"),
        Recording(name=OPEN, expr=f"{BY} ({q.ACTIVE})"),
        Recording(name=SILENT_SHARE, expr=f"{silent} / ({OPEN} > 0)"),
        Recording(name=FIRST_TOKEN, expr=f"histogram_quantile(0.95, {begun}) >= 0"),
    ]


def _summed(recorded: str, window: str) -> str:
    """Return the count of a longer window: every minute's look at the base counts for a minute of it.

    A second is missing from the range, so that it never holds one minute too many: its ends are both part of it.
    """
    seconds = round(HOURS[window] * 3600) - 1
    minutes = round(HOURS[BASE] * 60)
    return f"sum_over_time({recorded}[{seconds}s:1m]) / {minutes}"
