"""What an alert is, and what it tells whoever it wakes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dashboards import promql as q
from dashboards import uids
from dashboards.objective import Objective

MODEL_VARIABLES = {"job": "job", "provider": q.PROVIDER, "model": q.MODEL}

_HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1, "d": 24}
_WINDOW = re.compile(r"(?<!\d)(\d+)([smhd])\b(?:\] offset (\d+)([smhd])\b)?")
"""A range, with its offset, or the window in a recorded series' name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert; its runbook's section has its name.

    In ``expr`` every condition after the first stands on a line of its own, so that tests can leave it out. The value
    told is the first one's.
    """

    name: str
    severity: str
    wait: str
    expr: str
    summary: str
    description: str
    keep: str | None = None
    board: str = uids.STREAMS
    variables: Mapping[str, str] = field(default_factory=lambda: MODEL_VARIABLES)
    """The dashboard's variables, and the labels that they are set from."""


def label(name: str) -> str:
    """Return what an annotation writes for a label's value."""
    return f"{{{{ $labels.{name} }}}}"


WHO = f"{label(q.MODEL)} ({label(q.PROVIDER)}, job {label('job')})"
SHARE = "{{ $value | humanizePercentage }}"
COUNT = '{{ $value | printf "%.0f" }}'
TIME = "{{ $value | humanizeDuration }}"


def percent(share: float) -> str:
    """Return a share as an annotation's ``humanizePercentage`` writes it."""
    return f"{100 * share:.4g}%"


def hours_back(alert: Alert) -> int:
    """Return how many hours a dashboard must show: all that the alert looked at when its condition began to hold.

    That is its longest window and its waiting time, rounded up to whole hours.
    """
    reaches = [0.0]
    for number, unit, offset, of in _WINDOW.findall(alert.expr):
        reaches.append(int(number) * _HOURS[unit] + (int(offset) * _HOURS[of] if offset else 0))
    return math.ceil(max(reaches) + int(alert.wait[:-1]) * _HOURS[alert.wait[-1]])


def told(goal: Objective, alert: Alert) -> dict[str, str]:
    """Return what an alert tells: what it is, what to do about it, and where to look."""
    chosen = "&".join(
        f"var-{variable}={{{{ $labels.{name} | urlquery }}}}" for variable, name in alert.variables.items()
    )
    return {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{goal.runbooks}#{alert.name.lower()}",
        "dashboard_url": f"{goal.grafana}/d/{alert.board}?{chosen}&from=now-{hours_back(alert)}h&to=now",
    }
