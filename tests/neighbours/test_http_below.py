"""An instrumented HTTP client: one child span per attempt, below the span of the call, whoever came first."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import openai
import pytest
from opentelemetry import context as otel_context
from opentelemetry.instrumentation.utils import suppress_http_instrumentation, suppress_instrumentation

from neighbours.stories import OURS, ours
from neighbours.tools import BELOW, HERE, capture
from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, MESSAGES, Driver
from support.stage import Stage, play

GENAI = [tool for tool in HERE if tool.name == "OpenTelemetry GenAI"]


@contextmanager
def _http() -> Any:
    module = pytest.importorskip(BELOW.module)
    for_httpx2 = tuple(int(part) for part in openai.__version__.split(".")[:1]) >= (3,)
    kind = module.HTTPX2ClientInstrumentor if for_httpx2 else module.HTTPXClientInstrumentor
    kind().instrument(
        tracer_provider=capture().tracer_provider,
        meter_provider=capture().meter_provider,
        skip_dep_check=True,
    )
    try:
        yield
    finally:
        kind().uninstrument()


async def _call(stage: Stage, gateway: FaultGateway, model: str, *, retries: int = 1) -> Any:
    http = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
    client = stage.client(gateway.base_url, max_retries=retries, http_client=http(verify=False))
    async with stage.inside(client):
        return await stage.all(
            await stage.of(client.chat.completions.create(model=model, messages=MESSAGES, stream=True))
        )


def _begin(gateway: FaultGateway) -> None:
    gateway.reset_ledger()
    capture()._spans.clear()


def _by_scope() -> tuple[list[Any], list[Any]]:
    spans = capture().spans
    http = [span for span in spans if span.instrumentation_scope.name.endswith(".httpx")]
    return [span for span in spans if span not in http], http


@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_each_attempt_is_one_child_of_our_span(gateway: FaultGateway, driver: Driver, first: str) -> None:
    _begin(gateway)
    layers: list[Callable[[], AbstractContextManager[None]]] = [ours, _http]
    one, other = layers if first == "ours" else reversed(layers)
    with one(), other():
        play(driver, lambda stage: _call(stage, gateway, "flaky:times=1,tokens=2,gap=0,retry_after_ms=1"))
    (span,), http = _by_scope()
    assert span.instrumentation_scope.name == OURS
    assert span.attributes["stallwatch.attempts"] == len(http) == 2
    assert {child.parent.span_id for child in http} == {span.context.span_id}
    assert sorted(child.attributes["http.status_code"] for child in http) == [200, 503]


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_stall_before_the_first_chunk_is_tried_again_as_another_child(
    gateway: FaultGateway, driver: Driver
) -> None:
    _begin(gateway)
    gateway.script("silent once", "silent", "healthy:tokens=2,gap=0")
    with ours(first_token=0.2), _http():
        play(driver, lambda stage: _call(stage, gateway, "silent once"))
    ours_, http = _by_scope()
    (span,) = ours_
    assert len(http) == 2
    assert {child.context.trace_id for child in http} == {span.context.trace_id}


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_beside_an_instrumentor_the_children_are_its_spans(gateway: FaultGateway, driver: Driver) -> None:
    if not GENAI:
        pytest.skip("OpenTelemetry GenAI is not installed here")
    _begin(gateway)
    GENAI[0].on(capture())
    try:
        with ours(), _http():
            play(driver, lambda stage: _call(stage, gateway, "healthy:tokens=2,gap=0"))
    finally:
        GENAI[0].off()
    (span,), (child,) = _by_scope()
    assert span.instrumentation_scope.name != OURS
    assert child.parent.span_id == span.context.span_id


@contextmanager
def _plain_key() -> Any:
    token = otel_context.attach(otel_context.set_value("suppress_instrumentation", True))
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def _api_key() -> Any:
    key = importlib.import_module("opentelemetry.context")._SUPPRESS_INSTRUMENTATION_KEY
    token = otel_context.attach(otel_context.set_value(key, True))
    try:
        yield
    finally:
        otel_context.detach(token)


@pytest.mark.parametrize(
    "suppressed", [suppress_instrumentation, _plain_key, _api_key], ids=["function", "plain key", "api's key"]
)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_suppressed_nothing_is_told_and_the_watch_goes_on(
    gateway: FaultGateway, driver: Driver, suppressed: Callable[[], AbstractContextManager[None]]
) -> None:
    import stallwatch

    _begin(gateway)
    before = capture().total("stallwatch.stalls")
    with ours(idle=0.2), suppressed(), pytest.raises(stallwatch.StreamInactivityTimeoutError):
        play(driver, lambda stage: _call(stage, gateway, "stall-after:tokens=1,gap=0"))
    assert capture().spans == []
    assert capture().total("stallwatch.stalls") == before


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_suppressing_http_clients_leaves_us_alone(gateway: FaultGateway, driver: Driver) -> None:
    _begin(gateway)
    with ours(), _http(), suppress_http_instrumentation():
        play(driver, lambda stage: _call(stage, gateway, "healthy:tokens=1,gap=0"))
    (span,), http = _by_scope()
    assert span.instrumentation_scope.name == OURS
    assert http == []
