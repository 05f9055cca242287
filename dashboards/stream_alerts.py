"""Alerts on streams: too many stall, too many are silent, one is stuck, answers begin late.

The objective's alerts count streams that have ended. A stall ends a stream only after minutes, and a stream that never
ends has no outcome at all; so two alerts look at what is open now, and one at how long answers take to begin. Levels
alone would wake people for models that are slow by nature, so those two also want the level to be unusual: well above
what it was in the day before. Without such a day (the first hours) the level alone counts.
"""

from __future__ import annotations

from dashboards import promql as q
from dashboards import uids
from dashboards.alerting import COUNT, SHARE, TIME, WHO, Alert, label, percent
from dashboards.objective import FAST, SLOW, SUSTAINED, Burn, Objective, about
from dashboards.recordings import BY, FIRST_TOKEN, OPEN, SILENT_SHARE, ratio, stalled


def alerts(goal: Objective) -> list[Alert]:
    """Return the alerting rules."""
    return [
        _burn_fast(goal),
        _burn_slow(goal),
        _low_traffic(goal),
        _stuck(goal),
        _silent(goal),
        _first_token(goal),
    ]


def _burns(goal: Objective, burn: Burn) -> str:
    limit = f"{goal.threshold(burn):.6g}"
    return (
        f"{ratio(burn.long)} > {limit}\n"
        f"and {ratio(burn.short)} > {limit}\n"
        f"and {stalled(burn.long)} > {about(goal.min_stalls)}"
    )


def _burn_fast(goal: Objective) -> Alert:
    return Alert(
        name="LLMStreamIdleTimeoutBurnFast",
        severity="page",
        wait="2m",
        keep="5m",
        expr=f"(\n{_burns(goal, FAST)}\n)\nor\n(\n{_burns(goal, SUSTAINED)}\n)",
        summary=f"Streams of {WHO} stall far more often than the objective allows.",
        description=(
            f"{SHARE} of the streams ended in a stall within {_window(goal, FAST)}, or else within "
            f"{_window(goal, SUSTAINED)}; the objective allows {percent(goal.budget)}."
        ),
    )


def _window(goal: Objective, burn: Burn) -> str:
    return f"{burn.long} (above {percent(goal.threshold(burn))}, and in the last {burn.short} too)"


def _burn_slow(goal: Objective) -> Alert:
    return Alert(
        name="LLMStreamIdleTimeoutBurnSlow",
        severity="ticket",
        wait="1h",
        expr=_burns(goal, SLOW),
        summary=f"Streams of {WHO} stall a little more often than the objective allows, for days.",
        description=(
            f"{SHARE} of the streams ended in a stall within three days; the objective allows {percent(goal.budget)}."
        ),
        board=uids.SLO,
    )


def _low_traffic(goal: Objective) -> Alert:
    return Alert(
        name="LLMStreamIdleTimeoutLowTraffic",
        severity="ticket",
        wait="5m",
        expr=(
            f"{stalled('1h')} > {about(goal.low_traffic_stalls)}\n"
            f"and {ratio('1h')} > {goal.low_traffic_share:g}\n"
            f"and {stalled('1h')} <= {about(goal.min_stalls)}"
        ),
        summary=f"Streams of {WHO} stall, at too little traffic for a ratio.",
        description=f"About {COUNT} streams ended in a stall within the hour.",
    )


def _stuck(goal: Objective) -> Alert:
    return Alert(
        name="LLMStreamStuckBeyondWatchdog",
        severity="page",
        wait="1m",
        expr=f"max by ({', '.join(q.GROUP)}, instance) ({q.OLDEST_WAIT}) > {goal.stuck_after:g}",
        summary=f"A stream of {WHO} on {label('instance')} waits longer than any deadline allows.",
        description=(
            f"It has waited {TIME}. Either nothing enforces a deadline there (mode observe, a deadline switched off, a "
            "transport that cannot be interrupted), or the watchdog is stuck."
        ),
    )


def _silent(goal: Objective) -> Alert:
    return Alert(
        name="LLMStreamSilentShareHigh",
        severity="page",
        wait="3m",
        expr=(
            f"{SILENT_SHARE} > {goal.silent_share:g}\n"
            f"and {_unusual(goal, SILENT_SHARE)}\n"
            f"and {OPEN} >= {goal.silent_streams}"
        ),
        summary=f"Many open streams of {WHO} have fallen silent.",
        description=(
            f"{SHARE} of the open streams wait for more than 10 s without progress, which is not usual for them. "
            "Timeouts will follow."
        ),
    )


def _first_token(goal: Objective) -> Alert:
    enough = f"{BY} (increase({q.TIME_TO_FIRST_TOKEN}_count[10m])) > {about(goal.first_token_streams)}"
    return Alert(
        name="LLMStreamFirstTokenSlow",
        severity="ticket",
        wait="10m",
        expr=f"{FIRST_TOKEN} > {goal.first_token:g}\nand {_unusual(goal, FIRST_TOKEN)}\nand {enough}",
        summary=f"Answers of {WHO} begin late.",
        description=f"One answer in twenty takes {TIME} or longer to begin, which is not usual for this model.",
    )


def _unusual(goal: Objective, recorded: str) -> str:
    usual = f"avg_over_time({recorded}[1d] offset 1h)"
    return f"{recorded} > {goal.unusual:g} * ({usual} or 0 * {recorded})"
