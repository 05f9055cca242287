"""Whatever telemetry does, the call goes on and stays guarded."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.metrics import Meter, NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import NonRecordingSpan, NoOpTracerProvider, Span, Tracer

import stallwatch
from support.children import spawn
from support.drivers import DRIVERS, MESSAGES, Driver
from support.places import Place
from support.stage import Stage, play
from support.telemetry import instrumented


class Raising:
    """Raises from whatever is asked of it."""

    def __init__(self, *kept: str) -> None:
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> Any:
            raise LookupError(f"telemetry is broken: {name}")

        return fail


class RaisingTracer(Raising):
    """A tracer, and its provider, that cannot start a span."""

    def get_tracer(self, *_: object, **__: object) -> Any:
        return self


class RaisingInstruments(Raising):
    """A meter, and its provider, whose instruments cannot be used."""

    def get_meter(self, *_: object, **__: object) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_"):
            return lambda *_, **__: Raising()
        return super().__getattr__(name)


class RaisingSpan(NonRecordingSpan):
    """A span that can do nothing but say where it belongs."""

    def is_recording(self) -> bool:
        return True

    def set_attributes(self, *_: object, **__: object) -> None:
        raise LookupError("broken")

    add_event = set_status = end = set_attribute = set_attributes


class SpansRaise(Tracer):
    """A tracer, and its provider, whose spans cannot be used."""

    def get_tracer(self, *_: object, **__: object) -> Any:
        return self

    def start_span(self, *_: object, **__: object) -> Span:
        from opentelemetry.trace import INVALID_SPAN_CONTEXT

        return RaisingSpan(INVALID_SPAN_CONTEXT)

    def start_as_current_span(self, *_: object, **__: object) -> Any:
        raise LookupError("broken")


class RaisingProcessor(SpanProcessor):
    """Raises at the start and end of spans."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise LookupError("broken")

    def on_end(self, span: ReadableSpan) -> None:
        raise LookupError("broken")


def _broken_processor() -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(RaisingProcessor())
    return provider


BROKEN: dict[str, Any] = {
    "tracer": lambda: (RaisingTracer(), NoOpMeterProvider()),
    "spans": lambda: (SpansRaise(), NoOpMeterProvider()),
    "instruments": lambda: (NoOpTracerProvider(), RaisingInstruments()),
    "processor": lambda: (_broken_processor(), NoOpMeterProvider()),
}


def _assert_guarded(driver: Driver, base_url: str) -> None:
    told = driver.tell(base_url, "healthy:tokens=3,gap=0")
    assert (told.text, told.error) == ("t0 t1 t2 ", None)
    told = driver.tell(base_url, "stall-after:tokens=2,gap=0")
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError)
    assert told.after_last < 0.5
    told = driver.tell(base_url, "endless:gap=0.01", stop_after=3)
    assert (len(told.chunks), told.error) == (3, None)
    client = driver.client(base_url)
    del client


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_broken_provider_breaks_no_call(
    plain: Place, driver: Driver, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    tracers, meters = BROKEN[broken]()
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=tracers, meter_provider=meters, skip_dep_check=True, idle=0.2)
    try:
        _assert_guarded(driver, plain.base_url)
    finally:
        instrumentor.uninstrument()
    told = [record for record in caplog.records if record.name == "stallwatch"]
    assert len(told) <= 1, "it is told once, and not for every call"
    caplog.clear()


def _routed(driver: Driver, base_url: str, *models: str, **settings: Any) -> str:
    """Read an answer from a router over these models."""

    async def story(stage: Stage) -> str:
        async with stage.inside(stage.client(base_url)) as client:
            kind = stallwatch.AsyncRouter if stage.is_async else stallwatch.Router
            router = kind([stallwatch.Route(client=client, model=model) for model in models], **settings)
            stream = await stage.of(router.chat.completions.create(messages=MESSAGES, stream=True))
            chunks = await stage.all(stream)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    return play(driver, story)


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_broken_provider_breaks_no_retry_fallback_hedge_or_cancel(
    plain: Place, driver: Driver, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    tracers, meters = BROKEN[broken]()
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(
        tracer_provider=tracers, meter_provider=meters, skip_dep_check=True, first_token=0.2, idle=0.2
    )
    good, url = "healthy:tokens=2,gap=0", plain.base_url
    try:
        for first in ("silent", "error-status:code=503", "error-frame:tokens=0"):
            told = driver.tell(url, f"{first}>{good}", options={"max_retries": 1})
            assert (told.text, told.error) == ("t0 t1 ", None)
        assert _routed(driver, url, "silent", good) == "t0 t1 "
        hedge = stallwatch.HedgePolicy(delay=0.05, max_share=1.0)
        assert _routed(driver, url, "never-responds", good, hedge=hedge) == "t0 t1 "
        with stallwatch.Run() as run:
            run.cancel()
            assert isinstance(driver.tell(url, good).error, stallwatch.RunCancelledError)
    finally:
        instrumentor.uninstrument()
    told_of = [
        record
        for record in caplog.records
        if record.name == "stallwatch" and record.levelno >= logging.WARNING
    ]
    assert len(told_of) <= 1, "it is told once, and not for every call"
    caplog.clear()


def test_a_meter_that_makes_no_instruments_breaks_no_call(
    plain: Place, caplog: pytest.LogCaptureFixture
) -> None:
    class NoInstruments(Meter):
        def _fail(self, *_: object, **__: object) -> Any:
            raise LookupError("broken")

        create_counter = create_up_down_counter = create_histogram = _fail
        create_observable_counter = create_observable_gauge = create_observable_up_down_counter = _fail

        def get_meter(self, *_: object, **__: object) -> Any:
            return self

    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(meter_provider=NoInstruments("broken"), skip_dep_check=True, idle=0.2)
    try:
        _assert_guarded(DRIVERS[0], plain.base_url)
    finally:
        instrumentor.uninstrument()
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) <= 1
    caplog.clear()


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_suppressed_instrumentation_gives_no_telemetry_and_still_guards(plain: Place, driver: Driver) -> None:
    with instrumented(idle=0.2) as captured:
        with suppress_instrumentation():
            _assert_guarded(driver, plain.base_url)
        assert captured.spans == []
        assert captured.total("stallwatch.streams") == 0
        assert captured.total("stallwatch.stalls") == 0


GUARDED = """
import json, sys
if "no-sdk" in sys.argv:
    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.startswith("opentelemetry.sdk"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Blocker())
from support.drivers import DRIVERS
import stallwatch
stallwatch.OpenAIInstrumentor().instrument(idle=0.2, skip_dep_check=True)
told = []
for driver in DRIVERS:
    for model in ("healthy:tokens=3,gap=0", "stall-after:tokens=2,gap=0"):
        seen = driver.tell(sys.argv[1], model)
        told.append([type(seen.error).__name__, seen.text, seen.after_last < 0.6])
print(json.dumps([told, "opentelemetry.sdk" in sys.modules]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["no-sdk", "disabled"])
def test_without_a_telemetry_sdk_calls_are_guarded(plain: Place, how: str) -> None:
    environment = {"OTEL_SDK_DISABLED": "true"} if how == "disabled" else {}
    ((told, loaded),), err = spawn(GUARDED, plain.base_url, how, **environment).finish()
    expected = [["NoneType", "t0 t1 t2 ", True], ["StreamInactivityTimeoutError", "t0 t1 ", True]]
    assert told == expected * 2
    assert not loaded
    assert err == ""
