"""The page for the idle-timeout objective, from real streams that stall to the webhook, and back when they are well."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from dashboards.probe import Moment, ask_all

from e2e.drill import ALERT, JOBS, MODEL, Drill
from e2e.hurry import hurried, hurried_rules
from e2e.needs import debian

RULES = """
expr: sum_over_time(model:x:increase5m[3599s:1m]) / model:x:p95_10m offset 1h > 300
for: 2m
keep_firing_for: 5m
summary: "for 10 m; [see 5m]"
"""
HURRIED = """
expr: sum_over_time(model:x:increase5m[239933ms:4000ms]) / model:x:p95_10m offset 240000ms > 300
for: 8000ms
keep_firing_for: 20000ms
summary: "for 10 m; [see 5m]"
"""


def test_only_durations_are_changed(folder: Path) -> None:
    assert hurried(RULES) == HURRIED


def test_the_hurried_rules_are_still_rules(folder: Path) -> None:
    done = subprocess.run(
        [debian("promtool"), "check", "rules", str(hurried_rules(folder) / "rules.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", JOBS)
def test_it_fires_and_is_resolved(drill: Drill, path: str) -> None:
    print(f"after {drill.fired - drill.began:.0f} s, and {drill.resolved - drill.fired:.0f} s later")
    told = drill.about(path)
    assert (told[0].status, told[-1].status) == ("firing", "resolved")
    for one in told:
        assert one.receiver == "pages"
        assert one.labels == {
            "alertname": ALERT,
            "severity": "page",
            "job": JOBS[path],
            "gen_ai_provider_name": "openai",
            "gen_ai_request_model": MODEL,
        }


@pytest.mark.parametrize("path", JOBS)
def test_it_says_what_it_is_and_where_to_look(drill: Drill, path: str) -> None:
    told = drill.about(path)[0].annotations
    assert told.keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert f"{MODEL} (openai, job {JOBS[path]})" in told["summary"]
    share = re.match(r"([\d.]+)% of the streams", told["description"])
    assert share is not None
    # Every stream stalled; what comes from extrapolation is the same for both counts.
    assert float(share[1]) > 95
    assert not re.search(r"\{\{|<no value>|<error", " ".join(told.values()))


def test_nobody_is_told_of_the_model_that_is_well_or_of_the_restart(drill: Drill) -> None:
    assert {(one.labels["alertname"], one.labels.get("gen_ai_request_model")) for one in drill.told} == {
        (ALERT, MODEL)
    }
    # Nor would anybody have been, had the traffic gone on.
    assert {series.get("gen_ai_request_model") for series in drill.waiting} <= {MODEL}


def test_what_has_gone_is_missed_on_either_path(drill: Drill) -> None:
    assert {(series["alertname"], series["job"]) for series in drill.missed} == {
        ("LLMTelemetryAbsent", JOBS["collected"]),
        ("LLMTelemetryAbsent", JOBS["scraped"]),
        ("LLMCollectorDown", "collectors"),
        ("LLMScrapeFailing", JOBS["scraped"]),
    }


def test_the_dashboards_show_it_while_it_fires_and_not_after(drill: Drill) -> None:
    for at, number in ((drill.fired + 0.5, 2.0), (drill.resolved + 0.5, 0.0)):
        moment = Moment(until=at, span=int(at - drill.began) + 5, window="10s")
        answers = {(one.board, one.where): one for one in ask_all(drill.stack.prometheus.url, moment)}
        assert [str(one) for one in answers.values() if one.fault is not None] == []
        assert answers["Idle-timeout SLO", "Alerts firing A"].values == (number,)
        assert answers["Idle-timeout SLO", "Firing alerts A"].series == number
        # These show the whole time.
        assert answers["LLM streams", "Pages"].series == 2
        assert answers["Idle-timeout SLO", "Alerts over time A"].series == 1
