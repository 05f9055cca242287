"""What spans and metrics carry is what the telemetry page says they carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import openai
import pytest
from docs.telemetry_tables import MEANINGS, OWN, REQUEST, RESPONSE

from docs import telemetry_tables
from stallwatch.catalogue import METRICS, Attr
from stallwatch.testing import FaultGateway
from support.places import MESSAGES
from support.telemetry import instrumented

TYPES = {"string": str, "boolean": bool, "int": int, "double": float, "string[]": tuple}
NEVER_ON_SPANS = {name for name, (_, meaning) in OWN.items() if "metrics only" in meaning}
CALLS: list[dict[str, Any]] = [
    {
        "model": "usage:form=alone",
        "temperature": 1,
        "top_p": 1,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "seed": 1,
        "max_tokens": 9,
        "n": 1,
        "service_tier": "flex",
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "stream_options": {"include_usage": True},
    },
    {"model": "stall-after:tokens=2", "n": 2},
    {"model": "reasoning:count=2,gap=0.001"},
    {"model": "error-status:code=500"},
    {"model": "truncated"},
]


@dataclass(frozen=True)
class Told:
    """Telemetry of calls of every kind that the page speaks of."""

    spans: list[Any]
    metrics: dict[str, list[Any]]


@pytest.fixture(scope="module")
def told() -> Told:
    with FaultGateway() as gateway, instrumented(idle=0.15) as captured:
        with openai.OpenAI(base_url=gateway.base_url, api_key="test", max_retries=0) as client:
            for call in CALLS:
                try:
                    for _ in client.chat.completions.create(messages=MESSAGES, stream=True, **call):
                        pass
                except openai.APIError:
                    pass
            client.chat.completions.create(messages=MESSAGES, model="healthy")
        return Told(captured.spans, captured.metrics())


def test_every_attribute_of_a_span_is_on_the_page_with_its_type(told: Told) -> None:
    for span in told.spans:
        for name, value in span.attributes.items():
            kind = TYPES[MEANINGS[name][0]]
            assert isinstance(value, kind), (name, value)
            assert kind is bool or not isinstance(value, bool), (name, value)


def test_nearly_every_attribute_on_the_page_was_seen_here(told: Told) -> None:
    seen = {name for span in told.spans for name in span.attributes}
    rare = {Attr.BACKSTOP, Attr.USAGE_CACHE_READ, Attr.USAGE_REASONING}
    rare |= {Attr.OPENAI_RESPONSE_TIER, Attr.OPENAI_FINGERPRINT, Attr.OPENAI_REQUEST_TIER}
    assert set(MEANINGS) - seen - rare - NEVER_ON_SPANS == set()
    assert not seen & NEVER_ON_SPANS
    assert not set(REQUEST) & set(RESPONSE)


def test_the_stall_event_carries_what_the_page_says(told: Told) -> None:
    (event,) = [event for span in told.spans for event in span.events]
    assert set(event.attributes) == set(telemetry_tables.EVENT_MEANINGS[event.name][1])


def test_every_metric_has_the_attributes_it_is_listed_with(told: Told) -> None:
    listed = {spec.name: set(spec.attributes) for spec in METRICS}
    for name, points in told.metrics.items():
        for point in points:
            assert set(point.attributes) <= listed[name], name
    assert set(told.metrics) == set(listed)
