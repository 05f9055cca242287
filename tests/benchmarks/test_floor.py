"""What OpenTelemetry's SDK takes by itself is measured, and the page says what is found for a span."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from benchmarks import floor
from support.markdown import ROOT


def test_a_recorded_value_costs_something() -> None:
    assert 0.1 < floor.record(rounds=3, times=500) < 1_000


def test_an_open_span_is_as_heavy_as_the_page_says() -> None:
    if not version("opentelemetry-sdk").startswith("1.45."):
        pytest.skip("the page tells of 1.45")
    told = f"**An open span is {floor.open_span(spans=300) / 1000:.1f} KB**"
    assert told in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
