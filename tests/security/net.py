"""A net over all that comes out of the product, and the sentinels that must not be found in it."""

from __future__ import annotations

import copy
import logging
import pickle
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stallwatch

__all__ = [
    "ANSWER",
    "HEADER",
    "KEY",
    "LIMITS",
    "PASSWORD",
    "PROMPT",
    "QUERY",
    "SENTINELS",
    "USER",
    "Net",
    "net_over",
]

PROMPT = "sentinel-prompt-7f3a"
ANSWER = "sentinel-answer-d0c2"
KEY = "sk-sentinel-key-91bc-a2"
USER = "sentinel-user-52ab"
PASSWORD = "sentinel-password-18dd"
QUERY = "sentinel-query-44ef"
HEADER = "sentinel-header-3e77"
SENTINELS = (PROMPT, ANSWER, KEY, USER, PASSWORD, QUERY, HEADER, "sentinel", "api-key=")

LIMITS: dict[str, Any] = {
    **dict.fromkeys(("connect", "first_token", "thinking", "idle", "total"), 20),
    "keepalive_factor": 1,
}
"""What no answer of these tests needs, however busy the machine is."""


class Net:
    """What was caught; ``errors`` are those the caller was given."""

    def __init__(self, caplog: pytest.LogCaptureFixture, warned: list[warnings.WarningMessage]) -> None:
        self._caplog, self._warned = caplog, warned
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.errors: list[BaseException] = []

    @property
    def spans(self) -> list[Any]:
        """The ended spans."""
        return list(self.exporter.get_finished_spans())

    def outcomes(self) -> list[Any]:
        """How the spans say their calls ended."""
        return [span.attributes["stallwatch.outcome"] for span in self.spans]

    def metrics(self) -> list[Any]:
        """Every metric."""
        data = self.reader.get_metrics_data()
        found = [] if data is None else data.resource_metrics
        return [metric for resource in found for scope in resource.scope_metrics for metric in scope.metrics]

    def points(self) -> list[tuple[str, Any]]:
        """Every data point with its metric's name."""
        return [(metric.name, point) for metric in self.metrics() for point in metric.data.data_points]

    def scopes(self) -> list[Any]:
        """Resources and instrumentation scopes of spans and metrics."""
        data = self.reader.get_metrics_data()
        found = [] if data is None else data.resource_metrics
        of_metrics = [
            (dict(each.resource.attributes), [s.scope for s in each.scope_metrics]) for each in found
        ]
        return [
            *of_metrics,
            *{repr((span.resource.attributes, span.instrumentation_scope)) for span in self.spans},
        ]

    def records(self) -> list[logging.LogRecord]:
        """The log records of stallwatch, at all levels."""
        return [record for record in self._caplog.records if record.name.partition(".")[0] == "stallwatch"]

    def by_place(self) -> dict[str, str]:
        """All that was caught, as text, by where it was."""
        errors = [error for error in self.errors if isinstance(error, stallwatch.StallwatchError)]
        return {
            "spans": "\n".join(_span(span) for span in self.spans),
            "metrics": repr(
                [
                    (name, dict(point.attributes), [dict(each.filtered_attributes) for each in exemplars])
                    for name, point in self.points()
                    for exemplars in (getattr(point, "exemplars", None) or (),)
                ]
            ),
            "scopes": repr(self.scopes()),
            "log": "\n".join(_record(record) for record in self.records()),
            "errors": "\n".join(text for error in errors for text in told_by(error)),
            "warnings": "\n".join(str(each.message) for each in self._warned),
        }

    def assert_clean(self, *allowed: str) -> None:
        """Fail where a sentinel is found; ``allowed`` ones may be."""
        wanted = [sentinel for sentinel in SENTINELS if sentinel not in allowed]
        if allowed:
            wanted.remove("sentinel")
        caught = self.by_place()
        found = [
            (place, text[max(match.start() - 120, 0) : match.end() + 60])
            for place, text in caught.items()
            for match in re.finditer("|".join(map(re.escape, wanted)), text, re.IGNORECASE)
        ]
        assert not found, found[:5]


def told_by(error: BaseException) -> list[str]:
    """All texts of an error, of its copy and of its pickle; what it keeps for the SDK's own handlers apart."""
    texts: list[str] = []
    for each in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        kept = {name: value for name, value in vars(each).items() if name != "request"}
        notes = getattr(each, "__notes__", [])
        texts += [str(each), repr(each), repr(each.args), repr(notes), repr(kept), repr(each.__reduce__())]
    return texts


def _span(span: Any) -> str:
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    links = [dict(link.attributes or {}) for link in span.links]
    return repr((span.name, dict(span.attributes), span.status.description, events, links)) + span.to_json()


def _record(record: logging.LogRecord) -> str:
    told = "" if record.exc_info is None else logging.Formatter().formatException(record.exc_info)
    return repr((record.getMessage(), record.args, told, record.exc_text, record.stack_info))


@contextmanager
def net_over(caplog: pytest.LogCaptureFixture, **settings: Any) -> Iterator[Net]:
    """Instrument the SDK for the length of the block, with everything captured."""
    caplog.set_level(logging.DEBUG, "stallwatch")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        net = Net(caplog, warned)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(net.exporter))
        instrumentor = stallwatch.OpenAIInstrumentor()
        instrumentor.instrument(
            tracer_provider=provider,
            meter_provider=MeterProvider([net.reader], shutdown_on_exit=False),
            skip_dep_check=True,
            **{**LIMITS, **settings},
        )
        try:
            yield net
        finally:
            instrumentor.uninstrument()
