"""What spans and metrics carry is what the telemetry page says they carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import openai
import pytest
from docs.telemetry_tables import MEANINGS, OWN, REQUEST, RESPONSE

import stallwatch
from docs import telemetry_tables
from stallwatch import HedgePolicy, Route, Router
from stallwatch.catalogue import EVENTS, METRICS, VALUES, Attr, Event
from stallwatch.testing import FaultGateway
from support.places import MESSAGES
from support.telemetry import instrumented

TYPES = {"string": str, "boolean": bool, "int": int, "double": float, "string[]": tuple}
NEVER_ON_SPANS = {name for name, (_, meaning) in OWN.items() if "metrics only" in meaning}
ON_EVENTS_ONLY = {name for name, (_, meaning) in OWN.items() if "on events only" in meaning}
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
RETRIED = ["silent>healthy", "flaky:code=429,retry_after_ms=10"]
ROUTED = [
    (None, "silent"),
    (HedgePolicy(delay=0.05, max_share=1), "silent"),
]


@dataclass(frozen=True)
class Told:
    """Telemetry of calls of every kind that the page speaks of."""

    spans: list[Any]
    metrics: dict[str, list[Any]]

    def events(self, name: str) -> list[dict[str, Any]]:
        """The attributes of the events with this name."""
        return [dict(event.attributes) for span in self.spans for event in span.events if event.name == name]


@pytest.fixture(scope="module")
def told() -> Told:
    with FaultGateway() as gateway, instrumented(idle=0.15, first_token=0.6) as captured:
        with openai.OpenAI(base_url=gateway.base_url, api_key="test", max_retries=0) as client:
            for call in CALLS:
                read(client, **call)
            client.chat.completions.create(messages=MESSAGES, model="healthy")
        with openai.OpenAI(base_url=gateway.base_url, api_key="test", max_retries=1) as client:
            for model in RETRIED:
                read(client, model=model)
            for hedge, first in ROUTED:
                read(Router([Route(client=client, model=model) for model in (first, "healthy")], hedge=hedge))
            with stallwatch.Run(name="answer") as run:
                run.cancel("the user has left")
                read(client, model="healthy")
        return Told(captured.spans, captured.metrics())


def read(client: openai.OpenAI | Router, **call: Any) -> None:
    try:
        for _ in client.chat.completions.create(messages=MESSAGES, stream=True, **call):
            pass
    except (openai.APIError, stallwatch.RunCancelledError):
        pass


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
    assert set(MEANINGS) - seen - rare - NEVER_ON_SPANS - ON_EVENTS_ONLY == set()
    assert not seen & (NEVER_ON_SPANS | ON_EVENTS_ONLY)
    assert not set(REQUEST) & set(RESPONSE)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_carries_what_the_page_says_and_nothing_else(told: Told, name: str) -> None:
    seen = {attribute for event in told.events(name) for attribute in event}
    assert seen == set(telemetry_tables.EVENT_MEANINGS[name][1])
    for event in told.events(name):
        for attribute, value in event.items():
            assert isinstance(value, TYPES[MEANINGS[attribute][0]]), (attribute, value)


@pytest.mark.parametrize("attribute", VALUES)
def test_no_attribute_has_a_value_that_is_not_listed(told: Told, attribute: str) -> None:
    everywhere = [span.attributes for span in told.spans]
    everywhere += [event for name in EVENTS for event in told.events(name)]
    everywhere += [point.attributes for points in told.metrics.values() for point in points]
    assert {carrier[attribute] for carrier in everywhere if attribute in carrier} <= set(VALUES[attribute])


@pytest.mark.parametrize(
    ("model", "followed_by"),
    [
        ("silent>healthy", [("first", "retry"), ("retry", None)]),
        ("flaky:code=429,retry_after_ms=10", [("first", "retry"), ("retry", None)]),
        ("silent", [("first", "fallback"), ("fallback", None)]),
        ("stall-after:tokens=2", [("first", "partial_output")]),
    ],
)
def test_each_attempt_is_told_with_what_followed(
    told: Told, model: str, followed_by: list[tuple[str, str | None]]
) -> None:
    span = next(span for span in told.spans if span.name == f"chat {model}")
    attempts = [event.attributes for event in span.events if event.name == Event.ATTEMPT]
    assert [(one[Attr.ATTEMPT_ROLE], one.get(Attr.RETRY_DECISION)) for one in attempts] == followed_by
    assert [one[Attr.ATTEMPT_NUMBER] for one in attempts] == list(range(1, len(followed_by) + 1))


def test_a_status_is_on_every_span_that_had_a_response(told: Told) -> None:
    assert {
        span.attributes.get(Attr.HTTP_STATUS) for span in told.spans if span.attributes[Attr.ATTEMPTS]
    } == {
        200,
        500,
    }


def test_every_metric_has_the_attributes_it_is_listed_with(told: Told) -> None:
    listed = {spec.name: set(spec.attributes) for spec in METRICS}
    for name, points in told.metrics.items():
        for point in points:
            assert set(point.attributes) <= listed[name], name
    assert set(told.metrics) == set(listed)
