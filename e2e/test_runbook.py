"""From the page for the idle-timeout objective to the trace of a stalled stream, by the page's links and its runbook.

This is the walk of somebody who has been woken, as far as a machine can take it: what is asked for by name exists, has
something to say of the model, and leads on. Whether a person understands it is not tested.
"""

from __future__ import annotations

import re

import pytest
from dashboards.probe import Answer, Moment, ask, panels

from e2e.application import SERVICE
from e2e.collectors import Span
from e2e.drill import JOBS, MODEL, PROGRAMS, STALLS, Drill
from e2e.runbook import Chosen, Section, matches, named, opened, section

SHOWING = {
    "Stalls by phase",
    "Stalls by wire verdict",
    "Failed attempts by what followed",
    "Models",
    "Wait that was judged a stall",
}
"""The panels that must have something to say of the model; no stream was open any more, and none was tried again."""


def links(drill: Drill, path: str) -> tuple[Section, Chosen]:
    told = drill.about(path)[0].annotations
    return section(told["runbook_url"]), opened(told["dashboard_url"])


def looked_at(drill: Drill, chosen: Chosen) -> list[tuple[str, Answer]]:
    """Return what every panel of the dashboard gets, with the choices of the link, when the page comes."""
    moment = Moment(until=drill.fired, span=drill.span, window="10s", values=chosen.values)
    answers = ask(drill.stack.prometheus.url, chosen.board, moment)
    return [(one.where.rpartition(" ")[0], one) for one in answers if one.kind == "panel"]


@pytest.mark.parametrize("path", JOBS)
def test_the_link_opens_a_dashboard_with_the_alerts_labels_chosen(drill: Drill, path: str) -> None:
    _, chosen = links(drill, path)
    assert chosen.values == {"job": JOBS[path], "provider": "openai", "model": MODEL}
    assert chosen.values.keys() <= {variable["name"] for variable in chosen.board["templating"]["list"]}


@pytest.mark.parametrize("path", JOBS)
def test_everything_that_the_runbook_names_is_on_that_dashboard(drill: Drill, path: str) -> None:
    guide, chosen = links(drill, path)
    titles = {panel["title"] for panel in [*chosen.board["panels"], *panels(chosen.board)]}
    names = [name for step in guide.steps for name in named(step)]
    assert len(names) > 5
    assert set(names) - titles == set()


@pytest.mark.parametrize("path", JOBS)
def test_the_panels_that_the_runbook_names_speak_of_the_model(drill: Drill, path: str) -> None:
    guide, chosen = links(drill, path)
    names = {name for step in guide.steps for name in named(step)}
    assert {
        title for title, answer in looked_at(drill, chosen) if answer.series and title in names
    } >= SHOWING


def test_every_point_that_can_be_clicked_there_leads_to_a_stalled_stream(drill: Drill) -> None:
    """On the collector's path: the Python Prometheus exporter tells no exemplars."""
    guide, chosen = links(drill, "collected")
    (step,) = [step for step in guide.steps if "exemplar" in step]
    clickable = {
        panel["title"]
        for panel in panels(chosen.board)
        if panel["title"] in named(step) and any(target.get("exemplar") for target in panel["targets"])
    }
    assert clickable
    held = drill.stack.store.traces()
    for title in clickable:
        points = [
            exemplar
            for name, answer in looked_at(drill, chosen)
            if name == title
            for _, exemplar, _ in drill.stack.prometheus.exemplars(
                answer.expr, start=drill.began, end=drill.fired
            )
        ]
        assert points, title
        for point in points:
            (span,) = [span for span in held[point["trace_id"]] if span.id == point["span_id"]]
            assert explains(span)


@pytest.mark.parametrize("path", JOBS)
def test_the_runbooks_query_finds_the_stalled_streams_in_the_trace_store(drill: Drill, path: str) -> None:
    guide, chosen = links(drill, path)
    (query,) = re.findall(r"^\s*(\{ .* \})$", guide.text, re.MULTILINE)
    query = query.replace("MODEL", chosen.values["model"]).replace("SERVICE", SERVICE)
    found = [span for span in drill.stack.store.spans() if matches(query, span)]
    ours = [span for span in found if span.resource["service.instance.id"] == PROGRAMS[path]]
    assert len(ours) == STALLS
    for span in ours:
        assert explains(span)
        events = {name for name, _ in span.events} | {key for _, held in span.events for key in held}
        assert guide.attributes - span.attributes.keys() - events == set()


def explains(span: Span) -> bool:
    """Tell whether a span says that the stream stalled, in which phase, at which limit and after how long."""
    told = span.attributes
    return (
        told["gen_ai.request.model"] == MODEL
        and told["stallwatch.stalled"] is True
        and told["stallwatch.stall.phase"] == "idle"
        and told["stallwatch.stall.waited"] >= told["stallwatch.stall.limit"] == 1.0
    )
