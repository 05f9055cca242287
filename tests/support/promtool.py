"""Runs promtool on rules, and on scenarios: what series do, and which alerts fire then, and no others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from dashboards import alerting, objective

__all__ = ["Complaint", "Scenario", "Telling", "installed", "run", "unit_tests"]

installed = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)

FIRING = 'count by (alertname, gen_ai_request_model, instance) (ALERTS{alertstate="firing"})'

ORDER = ["stallwatch-recordings", "stallwatch-alerts"]
"""In which the groups are evaluated; promtool's own order is another one in every run."""


class Complaint(Exception):
    """What promtool found wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What series do, and what fires then.

    ``series`` holds values in promtool's notation. ``firing`` holds, by time, every alert that fires: its name, or its
    name and what it speaks of after a colon, a model or (after ``@``) an instance.
    """

    name: str
    series: Mapping[str, str]
    firing: Mapping[str, Iterable[str]]
    interval: str = "1m"
    """Time between the values, and between evaluations of the rules."""
    values: Mapping[tuple[str, str], float | None] = field(default_factory=dict)
    """What an expression is at a time; None for nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """What one alert tells, in full, at a time of a scenario."""

    scenario: str
    at: str
    alert: alerting.Alert
    labels: Mapping[str, str]
    summary: str
    description: str


def run(*arguments: str, folder: Path) -> str:
    """Run promtool and return all that it says; raises Complaint, in its words, when it finds something wrong."""
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Complaint(done.stdout + done.stderr)
    return done.stdout


def unit_tests(
    rules: str,
    scenarios: Iterable[Scenario],
    tellings: Iterable[Telling] = (),
    goal: objective.Objective | None = None,
) -> dict[str, str]:
    """Return promtool's unit tests of a rule file, a file for each interval; JSON, which is YAML too."""
    by_interval: dict[str, list[Scenario]] = {}
    for scenario in scenarios:
        by_interval.setdefault(scenario.interval, []).append(scenario)
    tellings, goal = list(tellings), goal or objective.Objective()
    return {
        f"every-{interval}.json": _unit_tests(rules, interval, group, tellings, goal)
        for interval, group in by_interval.items()
    }


def _unit_tests(
    rules: str,
    interval: str,
    scenarios: Iterable[Scenario],
    tellings: Iterable[Telling],
    goal: objective.Objective,
) -> str:
    told_in: dict[str, list[Telling]] = {}
    for telling in tellings:
        told_in.setdefault(telling.scenario, []).append(telling)
    tests = []
    for scenario in scenarios:
        expected = [
            {"expr": FIRING, "eval_time": at, "exp_samples": [_sample(who) for who in firing]}
            for at, firing in scenario.firing.items()
        ]
        expected += [
            {
                "expr": expr,
                "eval_time": at,
                "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
            }
            for (at, expr), value in scenario.values.items()
        ]
        tests.append(
            {
                "name": scenario.name,
                "interval": interval,
                "input_series": [{"series": s, "values": v} for s, v in scenario.series.items()],
                "promql_expr_test": expected,
                "alert_rule_test": [_told(one, goal) for one in told_in.get(scenario.name, [])],
            }
        )
    described = {
        "rule_files": [rules],
        "evaluation_interval": interval,
        "group_eval_order": ORDER,
        "tests": tests,
    }
    return json.dumps(described, indent=1)


def _sample(who: str) -> dict[str, Any]:
    name, _, what = who.partition(":")
    labels = {"alertname": name}
    model, _, instance = what.partition("@")
    if model:
        labels["gen_ai_request_model"] = model
    if instance:
        labels["instance"] = instance
    return {"labels": "{" + ", ".join(f'{k}="{v}"' for k, v in labels.items()) + "}", "value": 1}


def _told(telling: Telling, goal: objective.Objective) -> dict[str, Any]:
    def filled(match: re.Match[str]) -> str:
        return quote_plus(telling.labels.get(match[1], ""))

    links = {
        name: re.sub(r"\{\{ \$labels\.(\w+) \| urlquery \}\}", filled, text)
        for name, text in alerting.told(goal, telling.alert).items()
        if name.endswith("_url")
    }
    words = {"summary": telling.summary, "description": telling.description}
    return {
        "eval_time": telling.at,
        "alertname": telling.alert.name,
        "exp_alerts": [
            {
                "exp_labels": {"severity": telling.alert.severity, **telling.labels},
                "exp_annotations": {**words, **links},
            }
        ],
    }
