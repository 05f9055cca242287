"""The page on sizing: what it says one process and one call weigh is what they weigh."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.common", reason="the OTLP encoder is not installed")

from benchmarks import cardinality, span_sizes
from dashboards import objective, recordings
from stallwatch import catalogue
from support.markdown import ROOT

TEXT = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, list[str]]:
    """The table under a heading: the first cell of each line, and the others."""
    section = TEXT.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return {line[0].strip("`"): line[1:] for line in lines[2:]}


def test_the_series_of_a_process_are_those_on_the_page() -> None:
    told = rows("Series")
    counted = [cardinality.series(cardinality.measured(calls)) for calls in cardinality.KINDS.values()]
    for spec in catalogue.METRICS:
        assert [int(cell) for cell in told[spec.name]] == [one.get(spec.name, 0) for one in counted], (
            spec.name
        )
    assert [int(cell) for cell in told["all"]] == [sum(one.values()) for one in counted]


def test_the_weights_of_spans_are_about_those_on_the_page() -> None:
    told = rows("Spans")
    spans = span_sizes.measured()
    assert set(told) == set(spans)
    for case, span in spans.items():
        size, events = (int(cell) for cell in told[case])
        assert size == pytest.approx(span_sizes.weight(span), rel=0.05), case
        assert events == len(span.events)


def test_the_counters_that_are_preset_leave_room_for_a_hundred_models() -> None:
    data = cardinality.many_models(5)
    assert max(cardinality.points(data).values()) / 5 * catalogue.MODEL_CAP < 2000
    preset, limit = re.findall(
        r"limit of its own, (\d+) sets .*? with\s+(\d+)\s+preset ones", TEXT, re.DOTALL
    )[0][::-1]
    assert cardinality.points(data)["stallwatch.retries"] / 5 == int(preset)
    assert int(limit) == 2000


def test_a_model_is_as_many_recorded_series_as_the_page_says() -> None:
    assert (
        f"{len(recordings.recordings(objective.Objective()))} series for each job, provider and model" in TEXT
    )
