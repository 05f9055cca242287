"""The page for the idle-timeout objective, from real streams that stall to the webhook, and back when they are well.

The shipped rules are run fifteen times as fast as they are meant to be (``hurry`` says what that is), and Alertmanager
waits a second where the shipped file has it wait thirty. Two programs make the same calls: one sends everything to the
collector, the other is scraped. Both are started anew in between. Then the alert's links are followed, as far as a
machine can, to the trace of a stalled stream.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dashboards.probe import Answer, Moment, ask, ask_all, panels

from e2e.alerting import Notification
from e2e.application import Application, scraped_at
from e2e.collectors import Span
from e2e.hurry import hurried, hurried_rules
from e2e.needs import debian
from e2e.plans import calls, written
from e2e.processes import free_ports
from e2e.runbook import matches, named, opened, section
from e2e.stack import Stack, stack
from e2e.traffic import HALT

ALERT = "LLMStreamIdleTimeoutBurnFast"
MODEL = "wavering"
WELL = "steady"
STALLS = 20
"""Twice as many as are needed to be believed."""
HEALTHY = 360
"""Enough for the stalls to be less than 6 % of all: then the slower of the alert's two conditions holds no more."""
JOBS = {"collected": "e2e/e2e-program", "scraped": "applications"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """What came of it."""

    stack: Stack
    began: float
    fired: float
    ended: float
    told: list[Notification]
    programs: dict[str, str]
    """What the store knows each path's program by."""

    def about(self, job: str) -> list[Notification]:
        """Return what was told of the alert for one path's program, oldest first."""
        return [
            one for one in self.told if one.labels["alertname"] == ALERT and one.labels["job"] == JOBS[job]
        ]

    def answers(self, at: float) -> list[Answer]:
        """Return what all dashboards get."""
        return ask_all(
            self.stack.prometheus.url, Moment(until=at, span=int(at - self.began) + 5, window="10s")
        )


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Generator[Drill]:
    folder = tmp_path_factory.mktemp("alert")
    (port,) = free_ports(1)
    with stack(folder, applications=[f"127.0.0.1:{port}"], rules=hurried_rules(folder)) as running:
        programs = {
            Application(
                running.processes,
                base_url=running.gateway.base_url,
                endpoint=running.collector.endpoint,
                name=name,
            ): environ
            for name, environ in (("sends", {}), ("is-scraped", scraped_at(port)))
        }

        def start(plan: Path) -> None:
            for program, environ in programs.items():
                program.start(plan, environ, stay=True)

        def wait(status: str, seconds: float) -> float:
            for job in JOBS.values():
                running.webhook.wait_for(ALERT, status=status, seconds=seconds, job=job)
            return time.time()

        began = time.time()
        running.gateway.script(MODEL, HALT, by_header=True)
        start(stalling(folder))
        fired = wait("firing", 90)
        for program in programs:
            assert program.process is not None
            program.process.stop()
        running.gateway.script(MODEL, "healthy:tokens=3", by_header=True)
        start(recovering(folder))
        ended = wait("resolved", 120)
        yield Drill(
            stack=running,
            began=began,
            fired=fired,
            ended=ended,
            told=running.webhook.notifications(),
            programs={"collected": "sends", "scraped": "is-scraped"},
        )


def stalling(folder: Path) -> Path:
    """Plan a first call alone, and a while later the rest: what is in a series' first export has no rate."""
    first, *rest = calls(MODEL, count=STALLS, every=0.4)
    later = [{**call, "after": call["after"] + 3.5} for call in rest]
    return written(folder / "stalling.json", [first, *later, *calls(WELL, count=30, every=0.4)])


def recovering(folder: Path) -> Path:
    every = 22 / HEALTHY
    return written(
        folder / "recovering.json",
        [*calls(MODEL, count=HEALTHY, every=every), *calls(WELL, count=30, every=0.7)],
    )


def test_only_durations_are_changed(folder: Path) -> None:
    rules = "\n".join(
        [
            "expr: sum_over_time(model:x:increase5m[3599s:1m]) / model:x:p95_10m offset 1h > 300",
            "for: 2m",
            "keep_firing_for: 5m",
            'summary: "for 10 m; [see 5m]"',
        ]
    )
    assert hurried(rules).splitlines() == [
        "expr: sum_over_time(model:x:increase5m[239933ms:4000ms]) / model:x:p95_10m offset 240000ms > 300",
        "for: 8000ms",
        "keep_firing_for: 20000ms",
        'summary: "for 10 m; [see 5m]"',
    ]
    done = subprocess.run(
        [debian("promtool"), "check", "rules", str(hurried_rules(folder) / "rules.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", JOBS)
def test_the_alert_fires_and_is_resolved(drill: Drill, path: str) -> None:
    print(
        f"fired after {drill.fired - drill.began:.0f} s, resolved after {drill.ended - drill.fired:.0f} s more"
    )
    told = drill.about(path)
    assert [one.status for one in told][0] == "firing"
    assert [one.status for one in told][-1] == "resolved"
    assert {one.receiver for one in told} == {"pages"}
    for one in told:
        assert one.labels == {
            "alertname": ALERT,
            "severity": "page",
            "job": JOBS[path],
            "gen_ai_provider_name": "openai",
            "gen_ai_request_model": MODEL,
        }


@pytest.mark.parametrize("path", JOBS)
def test_it_says_what_it_is_and_where_to_look(drill: Drill, path: str) -> None:
    first = drill.about(path)[0]
    assert first.annotations.keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert f"{MODEL} (openai, job {JOBS[path]})" in first.annotations["summary"]
    share = re.match(r"([\d.]+)% of the streams", first.annotations["description"])
    assert share is not None
    assert 80 <= float(share[1]) <= 100
    assert not re.search(r"\{\{|<no value>|<error", " ".join(first.annotations.values()))


def test_nobody_is_told_of_the_model_that_is_well_or_of_the_restart(drill: Drill) -> None:
    assert {(one.labels["alertname"], one.labels["gen_ai_request_model"]) for one in drill.told} == {
        (ALERT, MODEL)
    }


def test_the_dashboards_show_the_alert_while_it_fires_and_not_after(drill: Drill) -> None:
    for at, number in ((drill.fired + 1, 2.0), (drill.ended + 1, 0.0)):
        answers = {(one.board, one.where): one for one in drill.answers(at)}
        assert [str(one) for one in answers.values() if one.fault is not None] == []
        assert answers["Idle-timeout SLO", "Alerts firing A"].values == (number,)
        assert answers["LLM streams", "Pages"].series == 2
        assert answers["Idle-timeout SLO", "Firing alerts A"].series == number
        assert answers["Idle-timeout SLO", "Alerts over time A"].series == 1


@pytest.mark.parametrize("path", JOBS)
def test_its_links_lead_to_a_runbook_and_to_a_dashboard_with_its_labels_chosen(
    drill: Drill, path: str
) -> None:
    first = drill.about(path)[0]
    chosen = opened(first.annotations["dashboard_url"])
    assert chosen.values == {"job": JOBS[path], "provider": "openai", "model": MODEL}
    assert chosen.values.keys() <= {variable["name"] for variable in chosen.board["templating"]["list"]}
    titles = {panel["title"] for panel in [*chosen.board["panels"], *panels(chosen.board)]}
    steps = section(first.annotations["runbook_url"]).steps
    assert len(steps) > 5
    assert [name for step in steps for name in named(step) if name not in titles] == []


@pytest.mark.parametrize("path", JOBS)
def test_the_panels_that_its_runbook_names_have_something_to_say_of_the_model(
    drill: Drill, path: str
) -> None:
    """Of retries too: none was made, and what ended the calls is what the runbook tells to look for."""
    first = drill.about(path)[0]
    named_here = {name for step in section(first.annotations["runbook_url"]).steps for name in named(step)}
    moment = Moment(
        until=drill.fired,
        span=int(drill.fired - drill.began) + 5,
        window="10s",
        values=opened(first.annotations["dashboard_url"]).values,
    )
    answers = ask(drill.stack.prometheus.url, opened(first.annotations["dashboard_url"]).board, moment)
    shown = {
        one.where.rpartition(" ")[0]
        for one in answers
        if one.series and one.where.rpartition(" ")[0] in named_here
    }
    assert shown >= {
        "Stalls by phase",
        "Stalls by wire verdict",
        "Failed attempts by what followed",
        "Models",
    }


def test_a_point_of_the_panels_that_its_runbook_names_leads_to_the_trace_of_a_stalled_stream(
    drill: Drill,
) -> None:
    first = drill.about("collected")[0]
    chosen = opened(first.annotations["dashboard_url"])
    moment = Moment(
        until=drill.fired, span=int(drill.fired - drill.began) + 5, window="10s", values=chosen.values
    )
    (step,) = [step for step in section(first.annotations["runbook_url"]).steps if "exemplar" in step]
    (sentence,) = re.findall(r"[^;.]*exemplar[^;]*;", step)
    clickable = named(sentence)
    assert clickable
    held = drill.stack.store.traces()
    for title in clickable:
        asked = [
            one
            for one in ask(drill.stack.prometheus.url, chosen.board, moment)
            if one.kind == "panel" and one.where.rpartition(" ")[0] == title
        ]
        found = [
            exemplar["trace_id"]
            for one in asked
            for _, exemplar, _ in drill.stack.prometheus.exemplars(
                one.expr, start=drill.began, end=drill.fired
            )
        ]
        assert found, f"{title} has no point to click"
        for trace in found:
            (span,) = [span for span in held[trace] if span.attributes.get("stallwatch.stalled")]
            assert explains(span)


@pytest.mark.parametrize("path", JOBS)
def test_the_query_of_its_runbook_finds_the_stalled_streams_in_the_trace_store(
    drill: Drill, path: str
) -> None:
    guide = section(drill.about(path)[0].annotations["runbook_url"])
    (query,) = re.findall(r"^\s*(\{ .* \})$", guide.text, re.MULTILINE)
    model = drill.about(path)[0].labels["gen_ai_request_model"]
    found = [span for span in drill.stack.store.spans() if matches(query.replace("MODEL", model), span)]
    ours = [span for span in found if span.resource["service.instance.id"] == drill.programs[path]]
    assert len(ours) == STALLS
    for span in ours:
        assert explains(span)
        told = {
            *span.attributes,
            *(name for name, _ in span.events),
            *(key for _, held in span.events for key in held),
        }
        assert guide.attributes <= told


def explains(span: Span) -> bool:
    """Tell whether a span says that the stream stalled, in which phase, at which limit and after how long."""
    return (
        span.attributes["gen_ai.request.model"] == MODEL
        and span.attributes["stallwatch.stalled"] is True
        and span.attributes["stallwatch.stall.phase"] == "idle"
        and span.attributes["stallwatch.stall.waited"] >= span.attributes["stallwatch.stall.limit"] == 1.0
    )
