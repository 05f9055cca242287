"""The rule file: valid, from one objective, on names that exist, with everything a woken person needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support import promtool
from support.markdown import anchors
from support.promql import KNOWN, named_series, problems

pytest.importorskip("grafana_foundation_sdk", reason="the dashboard SDK is not installed")

from dashboards import alerting, generate, objective, probe, recordings, rules, uids
from dashboards import promql as q

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards"
GOAL = objective.Objective()
ALERTS = rules.group(GOAL)
RECORDINGS = recordings.recordings(GOAL)
RUNBOOKS = FOLDER / "runbooks.md"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"

amtool = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool (Debian package prometheus-alertmanager) is missing"
)


def names(one: alerting.Alert | recordings.Recording) -> str:
    return one.name


@promtool.installed
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    promtool.run("check", "rules", "--lint=all", "--lint-fatal", "rules.yml", folder=FOLDER)


@promtool.installed
def test_promtool_can_read_every_query_of_every_dashboard(tmp_path: Path) -> None:
    """As a rule file, which is the one way to have a query parsed and not run."""
    queries = sorted({expr for name in generate.boards(GOAL) for expr in queries_of(name)})
    assert len(queries) > 80
    parsed = [{"record": f"q:{number}", "expr": expr} for number, expr in enumerate(queries)]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "queries", "rules": parsed}]}))
    promtool.run("check", "rules", "queries.yml", folder=tmp_path)


def queries_of(name: str) -> list[str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    found = [json.loads(f'"{expr}"') for expr in re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', text)]
    return [re.sub(r"\$__(rate_interval|range)", "5m", expr) for expr in found]


@pytest.mark.parametrize("recording", RECORDINGS, ids=names)
def test_a_recording_rule_names_only_what_exists_and_comes_after_what_it_reads(
    recording: recordings.Recording,
) -> None:
    known = [one.name for one in RECORDINGS]
    earlier = known[: known.index(recording.name)]
    for named in named_series(recording.expr):
        assert named.series in (earlier if named.series in known else KNOWN)
    assert problems(recording.expr) == []


@pytest.mark.parametrize("alert", ALERTS, ids=names)
def test_an_alert_names_only_what_is_recorded_or_emitted(alert: alerting.Alert) -> None:
    assert problems(alert.expr) == []


@pytest.mark.parametrize("alert", ALERTS, ids=names)
def test_an_alert_compares_waits_and_tells_where_to_look(alert: alerting.Alert) -> None:
    boards = probe.shipped()
    told = alerting.told(GOAL, alert)
    assert alert.severity in {"page", "ticket"}
    assert re.search(r"[<>=] ?[\d.]", alert.expr)
    assert re.fullmatch(r"[1-9]\d*[mh]", alert.wait)
    assert set(told) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert told["runbook_url"] == f"{GOAL.runbooks}#{alert.name.lower()}"
    assert told["dashboard_url"].startswith(f"{GOAL.grafana}/d/{alert.board}?var-")
    assert alert.board in {uids.STREAMS, uids.SLO, uids.PIPELINE}
    on_board = {
        variable["name"]
        for board in boards.values()
        if board["uid"] == alert.board
        for variable in board["templating"]["list"]
    }
    assert set(alert.variables) <= on_board
    for text in told.values():
        assert text.count("{{") == text.count("}}")


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("LLMStreamIdleTimeoutBurnFast", 7),
        ("LLMStreamIdleTimeoutBurnSlow", 73),
        ("LLMStreamIdleTimeoutLowTraffic", 2),
        ("LLMStreamStuckBeyondWatchdog", 1),
        ("LLMStreamSilentShareHigh", 26),
        ("LLMStreamFirstTokenSlow", 26),
        ("LLMStreamRetriesNotHelping", 1),
        ("LLMStreamRetryStorm", 1),
        ("LLMStreamHedgeBudgetSpent", 2),
        ("LLMTelemetryAbsent", 7),
        ("LLMScrapeFailing", 7),
        ("LLMCollectorDown", 7),
        ("LLMCollectorLosingData", 1),
        ("LLMCollectorRefusing", 1),
        ("LLMCollectorQueueFilling", 1),
        ("LLMSamplerOverflow", 1),
    ],
)
def test_the_dashboard_opens_on_all_that_the_alert_looked_at(name: str, hours: int) -> None:
    """Its longest window, offset included, and its waiting time."""
    (alert,) = (alert for alert in ALERTS if alert.name == name)
    assert alerting.told(GOAL, alert)["dashboard_url"].endswith(f"&from=now-{hours}h&to=now")


@pytest.mark.parametrize("alert", ALERTS, ids=names)
def test_the_labels_that_an_alert_tells_are_those_it_has(alert: alerting.Alert) -> None:
    """What the query sums away would be told as an empty word, and give a link that chooses nothing."""
    written = " ".join(alerting.told(GOAL, alert).values())
    wanted = set(re.findall(r"\$labels\.(\w+)", written))
    recorded = any(named.series.startswith("model:") for named in named_series(alert.expr))
    first = re.search(r"(?:by|on) \(([^)]*)\)", alert.expr.partition("\n")[0])
    bare = not recorded and first is None
    has = {"job", "instance"} if bare else set(q.GROUP) if recorded else set(first[1].split(", "))  # type: ignore[index]
    assert wanted <= has


@pytest.mark.parametrize("alert", ALERTS, ids=names)
def test_the_runbook_has_a_section_for_every_alert(alert: alerting.Alert) -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    section = text.partition(f"\n## {alert.name}\n")[2].partition("\n## ")[0]
    for heading in ("What it means", "What to look at", "What to do", "How to silence"):
        assert f"**{heading}.**" in section
    assert alert.name.lower() in anchors(RUNBOOKS)


def test_the_runbooks_speak_of_no_alert_or_panel_that_does_not_exist() -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    assert set(re.findall(r"\bLLM[A-Z]\w+", text)) == {alert.name for alert in ALERTS}
    titles = set()
    for name in generate.boards(GOAL):
        titles |= set(re.findall(r'"title": "([^"]+)"', (FOLDER / name).read_text(encoding="utf-8")))
    panels = {" ".join(panel.split()) for panel in re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", text)}
    assert panels <= titles


def test_the_runbooks_can_be_followed_where_nothing_else_is_published() -> None:
    links = re.findall(r"\]\(([^)]+)\)", RUNBOOKS.read_text(encoding="utf-8"))
    assert [link for link in links if not link.startswith("#")] == []


def test_the_runbooks_numbers_for_the_end_of_the_page_are_the_rules() -> None:
    text = " ".join(RUNBOOKS.read_text(encoding="utf-8").split())
    for burn, minutes in ((objective.FAST, 5), (objective.SUSTAINED, 30)):
        assert burn.short == f"{minutes}m"
        share = f"{100 * GOAL.threshold(burn):g} %"
        assert f"{share} of the last {minutes} minutes" in text
    (keep,) = (alert.keep for alert in ALERTS if alert.name.endswith("BurnFast"))
    assert keep == "5m"
    assert "it is kept for 5 minutes more" in text


def test_the_readme_tells_of_every_alert() -> None:
    told = re.findall(
        r"^\| `(LLM\w+)` \| (\w+) \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert told == [(alert.name, alert.severity) for alert in ALERTS]


# Where alerts go


@amtool
@pytest.mark.parametrize("alert", ALERTS, ids=names)
def test_a_page_goes_to_the_pagers_and_a_ticket_to_the_tickets(alert: alerting.Alert) -> None:
    receiver = {"page": "pages", "ticket": "tickets"}[alert.severity]
    labels = [f"severity={alert.severity}", f"alertname={alert.name}", "job=app", f"{q.MODEL}=m"]
    config = f"--config.file={ALERTMANAGER}"
    subprocess.run(
        ["amtool", "config", "routes", "test", config, f"--verify.receivers={receiver}", *labels],
        check=True,
        capture_output=True,
    )


@amtool
def test_alertmanager_takes_its_configuration() -> None:
    subprocess.run(["amtool", "check-config", str(ALERTMANAGER)], check=True, capture_output=True)


def test_what_alertmanager_groups_and_holds_back_are_alerts_and_labels_of_ours() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    config = yaml.safe_load(ALERTMANAGER.read_text(encoding="utf-8"))
    assert set(config["route"]["group_by"]) == {"alertname", *q.GROUP}
    for rule in config["inhibit_rules"]:
        assert set(rule["equal"]) <= set(q.GROUP)
        for matcher in [*rule["source_matchers"], *rule["target_matchers"]]:
            label, value = re.fullmatch(r'(\w+)=~?"(.*)"', matcher).groups()  # type: ignore[union-attr]
            if label == "alertname":
                assert any(re.fullmatch(value, alert.name) for alert in ALERTS)


# The objective


@pytest.mark.parametrize("target", [0.0, 0.9, 0.93, 1.0, 1.5])
def test_an_objective_that_could_never_page_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"target={target!r} is not allowed")):
        objective.Objective(target=target)


@pytest.mark.parametrize(("field", "value"), [("stuck_after", 0.0), ("first_token", 11.0)])
def test_numbers_that_no_alert_can_use_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{field}={value!r} is not allowed")):
        objective.Objective(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("burn", "days", "factor"),
    [
        (objective.FAST, 30, 14.4),
        (objective.SUSTAINED, 30, 6.0),
        (objective.SLOW, 30, 1.0),
        (objective.FAST, 28, 13.44),
        (objective.SLOW, 7, 0.233333),
    ],
)
def test_factors_follow_from_what_may_be_spent(burn: objective.Burn, days: int, factor: float) -> None:
    assert objective.Objective(period_days=days).factor(burn) == factor


def test_thresholds_follow_the_objective_in_rules_and_dashboards_alike() -> None:
    written = generate.files(objective.Objective(target=0.999, period_days=28))
    assert "ratio1h > 0.01344" in written["rules.yml"]
    assert "[28d]" in written["rules.yml"]
    assert "/ 0.001" in written["idle-timeout-slo.json"]
    assert "Promised: 0.999" in written["idle-timeout-slo.json"]


def test_the_fast_and_the_low_traffic_alert_never_speak_of_the_same_hour() -> None:
    fast, low = (next(a.expr for a in ALERTS if a.name.endswith(name)) for name in ("BurnFast", "LowTraffic"))
    assert "model:stallwatch_stalled_streams:increase1h > 9.5" in fast
    assert "model:stallwatch_stalled_streams:increase1h <= 9.5" in low


def test_no_built_in_deadline_allows_the_wait_that_pages() -> None:
    assert objective.longest_wait() == 600
    assert GOAL.stuck_after > objective.longest_wait()
