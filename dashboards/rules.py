"""The rule file: recording and alerting rules as Prometheus reads them."""

from __future__ import annotations

import json

from dashboards import pipeline_alerts, retry_alerts, stream_alerts
from dashboards.alerting import Alert, told
from dashboards.objective import Objective
from dashboards.recordings import recordings


def group(goal: Objective) -> list[Alert]:
    """Return every alerting rule."""
    return [*stream_alerts.alerts(goal), *retry_alerts.alerts(goal), *pipeline_alerts.alerts()]


def render(goal: Objective) -> str:
    """Return the rule file."""
    lines = [
        "# Written by dashboards/generate.py: change the objective there, not the expressions here.",
        "groups:",
        "  - name: stallwatch-recordings",
        "    rules:",
    ]
    for recording in recordings(goal):
        lines += [f"      - record: {recording.name}", f"        expr: {recording.expr}"]
    lines += ["  - name: stallwatch-alerts", "    rules:"]
    for alert in group(goal):
        lines += [f"      - alert: {alert.name}", *_block("expr", alert.expr), f"        for: {alert.wait}"]
        if alert.keep is not None:
            lines.append(f"        keep_firing_for: {alert.keep}")
        lines += ["        labels:", f"          severity: {alert.severity}", "        annotations:"]
        for name, text in told(goal, alert).items():
            # JSON's strings are YAML's too, whatever stands in them.
            lines.append(f"          {name}: {json.dumps(text, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _block(name: str, expr: str) -> list[str]:
    return [f"        {name}: |-", *(f"          {line}" for line in expr.split("\n"))]
