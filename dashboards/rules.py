"""The recording and alerting rules, from one objective.

The service level is the share of streams that do not end in a stall, of whatever phase ("idle timeout" in the alerts'
names). Two burn-rate alerts look at it over a long and a short window each, with the factors of the SRE workbook. They
need traffic: at a budget of one per cent, 14 % of fewer than a hundred streams is noise, so small models have an alert
that counts. A stream that never ends has no outcome, so the last alert looks at the longest present wait instead.

Every number stands in ``Objective``; change it there (or by the generator's options) and not in PromQL. Factors that
can never be reached with the chosen target are refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from dashboards import promql as q
from dashboards.llm_streams import UID
from stallwatch.core.deadlines import Limits
from stallwatch.resolution import BACKSTOP_MARGIN, BUILT_IN, HIDDEN_REASONING

GROUP = ("job", q.PROVIDER, q.MODEL)
WINDOWS = ("5m", "30m", "1h", "6h", "3d")

FAST, SUSTAINED, SLOW = 14.4, 6.0, 1.0
"""How many times as fast as allowed the budget burns: it would be spent in 2 days, 5 days, 30 days."""


def longest_wait() -> float:
    """Return the longest wait in seconds that the built-in deadlines allow, keepalive extension included."""
    waits = []
    for deadlines in (BUILT_IN.deadlines, HIDDEN_REASONING):
        limits = {name: getattr(deadlines, name) for name in ("connect", "first_token", "thinking", "idle")}
        waits.append(Limits(**limits).longest_silence())
    return max(waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is promised, and from how much traffic on a ratio means something."""

    target: float = 0.99
    """Share of streams that do not end in a stall."""
    fast_streams: int = 100
    """Streams in an hour from which the fast alert believes a ratio; below, the low-traffic alert counts."""
    sustained_streams: int = 200
    """The same in six hours."""
    slow_streams: int = 500
    """The same in three days."""
    low_traffic_share: float = 0.2
    low_traffic_stalls: int = 3
    stuck_after: float = longest_wait() + BACKSTOP_MARGIN
    """Seconds of waiting that no deadline in force allows."""
    runbooks: str = "https://runbooks.example.com/stallwatch"
    """Where ``runbooks.md`` of this folder is published."""
    grafana: str = "https://grafana.example.com"

    def __post_init__(self) -> None:
        if not 0 < self.target < 1 or FAST * self.budget >= 1:
            lowest = 1 - 1 / FAST
            raise ValueError(
                f"target={self.target!r} is not allowed: give a number above {lowest:.3f} and below 1"
            )

    @property
    def budget(self) -> float:
        """The share of streams that may end in a stall."""
        return round(1 - self.target, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A series that is worked out ahead."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert; its runbook's section has its name."""

    name: str
    severity: str
    wait: str
    expr: str
    summary: str
    description: str
    keep: str | None = None


def streams(window: str) -> str:
    """Return the recorded number of streams that ended within a window."""
    return f"model:stallwatch_streams:increase{window}"


def stalled(window: str) -> str:
    """Return the recorded number of streams that stalled within a window."""
    return f"model:stallwatch_stalled_streams:increase{window}"


def ratio(window: str) -> str:
    """Return the recorded share of streams that stalled within a window."""
    return f"model:stallwatch_stalled_streams:ratio{window}"


def recordings() -> list[Recording]:
    """Return the recording rules: counts and ratios for every window.

    A model without a stalled series counts as zero stalls, and one without traffic has no ratio instead of NaN.
    """
    by = f"sum by ({', '.join(GROUP)})"
    found = []
    for window in WINDOWS:
        every = f"{by} (increase({q.STREAMS}[{window}]))"
        bad = f'{by} (increase({q.STREAMS}{{{q.OUTCOME}="stalled"}}[{window}]))'
        found += [
            Recording(name=streams(window), expr=every),
            Recording(name=stalled(window), expr=f"{bad} or 0 * {streams(window)}"),
            Recording(name=ratio(window), expr=f"{stalled(window)} / ({streams(window)} > 0)"),
        ]
    return found


def alerts(goal: Objective) -> list[Alert]:
    """Return the alerting rules."""
    budget = goal.budget
    fast, sustained, slow = (f"{factor * budget:.6g}" for factor in (FAST, SUSTAINED, SLOW))
    who = f"{{{{ $labels.{q.MODEL} }}}} ({{{{ $labels.{q.PROVIDER} }}}}, job {{{{ $labels.job }}}})"
    share = "{{ $value | humanizePercentage }} of the streams"
    return [
        Alert(
            name="LLMStreamIdleTimeoutBurnFast",
            severity="page",
            wait="2m",
            keep="5m",
            expr=(
                f"({ratio('1h')} > {fast} and {ratio('5m')} > {fast} and {streams('1h')} >= {goal.fast_streams})\n"
                f"or\n({ratio('6h')} > {sustained} and {ratio('30m')} > {sustained}"
                f" and {streams('6h')} >= {goal.sustained_streams})"
            ),
            summary=f"Streams of {who} stall far more often than the objective allows.",
            description=f"{share} ended in a stall within the hour (or six); the objective allows {budget:.4g}.",
        ),
        Alert(
            name="LLMStreamIdleTimeoutBurnSlow",
            severity="ticket",
            wait="1h",
            expr=f"{ratio('3d')} > {slow} and {ratio('6h')} > {slow} and {streams('3d')} >= {goal.slow_streams}",
            summary=f"Streams of {who} stall a little more often than the objective allows, for days.",
            description=f"{share} ended in a stall within three days; the objective allows {budget:.4g}.",
        ),
        Alert(
            name="LLMStreamIdleTimeoutLowTraffic",
            severity="ticket",
            wait="5m",
            expr=(
                # increase() extrapolates, so three stalls may show as a little less.
                f"{stalled('1h')} > {goal.low_traffic_stalls - 0.5:g} and {ratio('1h')} > {goal.low_traffic_share:g}"
                f" and {streams('1h')} < {goal.fast_streams}"
            ),
            summary=f"Streams of {who} stall, at too little traffic for a ratio.",
            description='About {{ $value | printf "%.0f" }} streams ended in a stall within the hour.',
        ),
        Alert(
            name="LLMStreamStuckBeyondWatchdog",
            severity="page",
            wait="1m",
            expr=f"max by ({', '.join(GROUP)}, instance) ({q.OLDEST_WAIT}) > {goal.stuck_after:g}",
            summary=f"A stream of {who} on {{{{ $labels.instance }}}} waits longer than any deadline allows.",
            description=(
                "It has waited {{ $value | humanizeDuration }}. Either nothing enforces a deadline there (mode "
                "observe, a deadline switched off, a transport that cannot be interrupted), or the watchdog is stuck."
            ),
        ),
    ]


def render(goal: Objective) -> str:
    """Return the rule file."""
    lines = [
        "# Written by dashboards/generate.py: change the objective there, not the expressions here.",
        "groups:",
        "  - name: stallwatch-recordings",
        "    rules:",
    ]
    for recording in recordings():
        lines += [f"      - record: {recording.name}", f"        expr: {recording.expr}"]
    lines += ["  - name: stallwatch-alerts", "    rules:"]
    for alert in alerts(goal):
        lines += [f"      - alert: {alert.name}", *_block("expr", alert.expr), f"        for: {alert.wait}"]
        if alert.keep is not None:
            lines.append(f"        keep_firing_for: {alert.keep}")
        lines += ["        labels:", f"          severity: {alert.severity}", "        annotations:"]
        for name, text in annotations(goal, alert).items():
            # JSON's strings are YAML's too, whatever stands in them.
            lines.append(f"          {name}: {json.dumps(text, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def annotations(goal: Objective, alert: Alert) -> dict[str, str]:
    """Return what an alert tells: what it is, what to do about it, and where to look."""
    chosen = "&".join(
        f"var-{variable}={{{{ $labels.{label} | urlquery }}}}"
        for variable, label in (("job", "job"), ("provider", q.PROVIDER), ("model", q.MODEL))
    )
    return {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{goal.runbooks}#{alert.name.lower()}",
        "dashboard_url": f"{goal.grafana}/d/{UID}?{chosen}",
    }


def _block(name: str, expr: str) -> list[str]:
    return [f"        {name}: |-", *(f"          {line}" for line in expr.split("\n"))]
