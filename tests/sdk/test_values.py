"""Values that others chose are fit for telemetry, or left out."""

from __future__ import annotations

import math
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from stallwatch.catalogue import Attr
from stallwatch.sdk.requests import body_of, call_of, choices_of, endpoint_of
from stallwatch.telemetry.recorder import Call
from stallwatch.telemetry.values import count_of, integer_of, real_of, text_of


class Model(str, Enum):  # noqa: UP042
    """Names as many programs keep them."""

    SMALL = "small"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("gpt-4o", "gpt-4o"),
        ("modèle", "modèle"),
        ("\U0001f600", "\U0001f600"),
        ("a\ud800b", "a?b"),
        ("x" * 10_000, "x" * 256),
        ("\udfff" * 10_000, "?" * 256),
        (Model.SMALL, "small"),
        ("", None),
        (None, None),
        (b"gpt", None),
        (4, None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_text(value: Any, text: str | None) -> None:
    found = text_of(value)
    assert found == text
    assert found is None or type(found) is str


@pytest.mark.parametrize(
    ("value", "integer", "count"),
    [
        (0, 0, 0),
        (2**63 - 1, 2**63 - 1, 2**63 - 1),
        (2**63, None, None),
        (-1, -1, None),
        (-(2**63), -(2**63), None),
        (-(2**63) - 1, None, None),
        (True, None, None),
        (1.0, None, None),
        ("1", None, None),
        (None, None, None),
    ],
)
def test_a_whole_number(value: Any, integer: int | None, count: int | None) -> None:
    assert (integer_of(value), count_of(value)) == (integer, count)


@pytest.mark.parametrize(
    ("value", "real"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (-2, -2.0),
        (10**400, None),
        (math.nan, None),
        (math.inf, None),
        (True, None),
        ("1", None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_number(value: Any, real: float | None) -> None:
    found = real_of(value)
    assert found == real
    assert found is None or type(found) is float


BODIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"max_tokens": 9}, {Attr.REQUEST_MAX_TOKENS: 9}),
    ({"max_tokens": 2**70}, {}),
    ({"max_completion_tokens": -1}, {}),
    ({"max_output_tokens": math.inf}, {}),
    ({"seed": -5}, {Attr.REQUEST_SEED: -5}),
    ({"seed": 2**63}, {}),
    ({"temperature": 10**400, "top_p": math.nan}, {}),
    ({"n": 1}, {}),
    ({"n": 3}, {Attr.REQUEST_CHOICE_COUNT: 3}),
    ({"n": 2**63}, {}),
    ({"n": False}, {}),
    ({"n": -2}, {}),
    ({"service_tier": "f\ud800"}, {Attr.OPENAI_REQUEST_TIER: "f?"}),
    ({"service_tier": "auto"}, {}),
    ({"reasoning_effort": "x" * 300}, {Attr.REQUEST_REASONING_LEVEL: "x" * 256}),
    ({"reasoning": {"effort": "low"}}, {Attr.REQUEST_REASONING_LEVEL: "low"}),
    ({"response_format": {"type": "json_schema"}}, {Attr.OUTPUT_TYPE: "json"}),
    ({"response_format": {"type": "\ud800"}}, {Attr.OUTPUT_TYPE: "?"}),
    ({"response_format": {"type": 3}}, {}),
]


@pytest.mark.parametrize(("body", "attributes"), BODIES, ids=lambda value: repr(value)[:40])
def test_request_attributes(body: dict[str, Any], attributes: dict[str, Any]) -> None:
    call = _call(body, stream=True)
    assert call.attributes == attributes


@pytest.mark.parametrize(
    ("model", "known"),
    [("gpt-4o", "gpt-4o"), ("m\udc80", "m?"), ("m" * 10_000, "m" * 256), ("", None), (5, None)],
    ids=lambda value: repr(value)[:20],
)
def test_the_model_asked_for(model: Any, known: str | None) -> None:
    call = _call({"model": model}, stream=False)
    assert call.model == known


@pytest.mark.parametrize(("n", "choices"), [(3, 3), (0, 1), (-1, 1), (True, 1), (None, 1), ("2", 1)])
def test_choices(n: Any, choices: int) -> None:
    assert choices_of({"n": n}) == choices


def _call(body: dict[str, Any], *, stream: bool) -> Call:
    options = _options(body)
    endpoint = endpoint_of(SimpleNamespace(base_url="http://127.0.0.1"))
    return call_of(endpoint, options, body_of(options), stream=stream)


def _options(body: dict[str, Any]) -> Any:
    return SimpleNamespace(json_data=body, url="/something")
