"""The alert rules: from one objective, on names that exist, with everything a woken person needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.promql import KNOWN, named_series, problems

pytest.importorskip("grafana_foundation_sdk", reason="the dashboard SDK is not installed")

from dashboards import rules

FOLDER = Path(__file__).parents[2] / "dashboards"
ALERTS = rules.alerts(rules.Objective())
RECORDED = {recording.name for recording in rules.recordings()}

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)


def names(alert: rules.Alert) -> str:
    return alert.name


def run(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@promtool
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    run("check", "rules", "--lint=all", "--lint-fatal", "rules.yml")


@promtool
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    run("test", "rules", "rules-test.yml")


def test_every_alert_has_a_test_that_fires_it_and_one_that_does_not() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    told: dict[str, set[bool]] = {alert.name: set() for alert in ALERTS}
    for test in yaml.safe_load((FOLDER / "rules-test.yml").read_text(encoding="utf-8"))["tests"]:
        for row in test["alert_rule_test"]:
            told[row["alertname"]].add(bool(row["exp_alerts"]))
    assert set(map(frozenset, told.values())) == {frozenset({True, False})}


@pytest.mark.parametrize("recording", rules.recordings(), ids=lambda recording: recording.name)
def test_a_recording_rule_names_only_what_exists(recording: rules.Recording) -> None:
    measured = [named.series for named in named_series(recording.expr) if named.series not in RECORDED]
    assert set(measured) <= KNOWN.keys()
    if measured:
        assert problems(recording.expr.partition(" or ")[0]) == []


@pytest.mark.parametrize("alert", ALERTS, ids=names)
def test_an_alert_names_only_what_is_recorded_or_measured(alert: rules.Alert) -> None:
    for named in named_series(alert.expr):
        assert named.series in RECORDED or not problems(named.series), named.series


@pytest.mark.parametrize("alert", ALERTS, ids=names)
def test_an_alert_compares_waits_and_tells_where_to_look(alert: rules.Alert) -> None:
    told = rules.annotations(rules.Objective(), alert)
    assert alert.severity in {"page", "ticket"}
    assert re.search(r"[<>]", alert.expr)
    assert alert.wait != "0m"
    assert set(told) == {"summary", "description", "runbook_url", "dashboard_url"}
    for label in rules.GROUP:
        assert f"$labels.{label} | urlquery" in told["dashboard_url"]


@pytest.mark.parametrize("alert", ALERTS, ids=names)
def test_the_runbook_has_a_section_for_every_alert(alert: rules.Alert) -> None:
    section = (
        (FOLDER / "runbooks.md")
        .read_text(encoding="utf-8")
        .partition(f"\n## {alert.name}\n")[2]
        .partition("\n## ")[0]
    )
    for heading in ("What it means", "What to look at", "What to do", "How to silence"):
        assert f"**{heading}.**" in section


def test_the_fast_and_the_low_traffic_alert_never_speak_of_the_same_model() -> None:
    fast, low = (next(a.expr for a in ALERTS if a.name.endswith(name)) for name in ("BurnFast", "LowTraffic"))
    assert "model:stallwatch_streams:increase1h >= 100" in fast
    assert "model:stallwatch_streams:increase1h < 100" in low


@pytest.mark.parametrize("target", [0.0, 0.9, 0.93, 1.0, 1.5])
def test_an_objective_that_could_never_page_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"target={target!r} is not allowed")):
        rules.Objective(target=target)


def test_thresholds_follow_the_objective() -> None:
    fast = rules.alerts(rules.Objective(target=0.999))[0]
    assert "> 0.0144" in fast.expr
    assert "> 0.006" in fast.expr


def test_no_built_in_deadline_allows_the_wait_that_pages() -> None:
    assert rules.longest_wait() == 600
    assert rules.Objective().stuck_after > rules.longest_wait()
