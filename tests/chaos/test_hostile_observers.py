"""Observers of every kind that raise, or call back into the SDK while they hold a lock.

What a user hangs into tracing and logging runs inside our calls, in whatever thread of ours is at work. Whatever it
does, each call ends as it would, in time, and nothing stands still.
"""

from __future__ import annotations

import contextvars
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import stallwatch
from stallwatch.runtime import registry
from support.bounds import LATE
from support.drivers import DRIVERS, MESSAGES, SYNC, Driver
from support.leaks import wait_until
from support.places import Place
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

LIMITS: dict[str, Any] = {"connect": 5, "first_token": 0.2, "thinking": 0.2, "idle": 0.2, "total": 20}
PATIENCE = 5.0
"""Seconds after which a lock counts as held for ever."""

NESTED = "healthy:tokens=1,gap=0,id=nested"

Act = Callable[[], None]


class Acts(SpanProcessor):
    """Acts when spans start and end."""

    def __init__(self, act: Act) -> None:
        self._act = act

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._act()

    def on_end(self, span: Any) -> None:
        self._act()


class ActsOnExport(SpanExporter):
    """Acts when spans are exported, in the thread that ends them."""

    def __init__(self, act: Act) -> None:
        self._act = act

    def export(self, spans: Any) -> SpanExportResult:
        self._act()
        return SpanExportResult.SUCCESS


class ActsOnLogs(logging.Handler):
    """Acts on every record, and does not catch what comes of it, as a handler of one's own may not."""

    def __init__(self, act: Act) -> None:
        super().__init__(logging.DEBUG)
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        self._act()


@contextmanager
def _logs(act: Act) -> Iterator[None]:
    log, handler = logging.getLogger("stallwatch"), ActsOnLogs(act)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextmanager
def _processor(act: Act, captured: Captured) -> Iterator[None]:
    captured.tracer_provider.add_span_processor(Acts(act))
    yield


@contextmanager
def _exporter(act: Act, captured: Captured) -> Iterator[None]:
    captured.tracer_provider.add_span_processor(SimpleSpanProcessor(ActsOnExport(act)))
    yield


OBSERVERS: dict[str, Callable[[Act, Captured], Any]] = {
    "processor": _processor,
    "exporter": _exporter,
    "log handler": lambda act, _: _logs(act),
}


class Once:
    """Does something, but not from within itself: an observer that observes its own calls has only itself to blame."""

    def __init__(self, act: Act) -> None:
        self._act, self._local = act, threading.local()
        self.times, self.under_way = 0, 0

    def __call__(self) -> None:
        if getattr(self._local, "inside", False):
            return
        self._local.inside = True
        self.times += 1
        self.under_way += 1
        try:
            self._act()
        finally:
            self.under_way -= 1
            self._local.inside = False


def _raises(_: Place) -> Act:
    def act() -> None:
        raise LookupError("the observer is broken")

    return act


def _calls_back(place: Place) -> Act:
    """Ask a model with a lock in hand that every other observer wants."""
    lock = threading.Lock()

    def act() -> None:
        # Outside of the run that is observed, which may be cancelled.
        contextvars.Context().run(ask)

    def ask() -> None:
        assert lock.acquire(timeout=PATIENCE), "the lock was never given back"
        try:
            request: dict[str, Any] = {"model": NESTED, "messages": MESSAGES}
            with SYNC.client(place.base_url) as client:
                assert client.chat.completions.create(**request).choices[0].message.content == "t0 "
                assert len(list(client.chat.completions.create(**request, stream=True))) == 3
        finally:
            lock.release()

    return act


ACTS = {"raises": _raises, "calls back": _calls_back}


async def _stories(stage: Stage, base_url: str) -> list[str]:
    """Everything that spans, events and log lines come of; what each call came to."""
    told = []
    async with stage.inside(stage.client(base_url)) as client:
        for model, retries in (
            ("healthy:tokens=2,gap=0", 0),
            ("stall-after:tokens=2,gap=0", 0),
            ("error-frame:tokens=0>healthy:tokens=2,gap=0", 1),
            ("error-status:code=503,retry_after_ms=20>healthy:tokens=2,gap=0", 1),
            ("cut:tokens=2,gap=0", 0),
        ):
            try:
                stream = await stage.chat(client.with_options(max_retries=retries), model)
                told.append(f"{len(await stage.all(stream))} chunks")
            except (openai.OpenAIError, *BROKEN) as error:
                told.append("stalled" if isinstance(error, stallwatch.StreamTimeoutError) else "broken")
        dropped = await stage.chat(client, "stall-after:tokens=2,gap=0,id=dropped")
        await stage.step(dropped)
        del dropped
        gc.collect()
        run = stallwatch.Run()
        canceller = threading.Timer(0.1, run.cancel)
        with run:
            try:
                canceller.start()
                await stage.all(await stage.chat(client, "endless:gap=0.02"))
            except stallwatch.RunCancelledError:
                told.append("cancelled")
        router = (stallwatch.AsyncRouter if stage.is_async else stallwatch.Router)(
            [stallwatch.Route(client=client, model=model) for model in ("silent", "healthy:tokens=1,gap=0")]
        )
        stream = await stage.of(router.chat.completions.create(messages=MESSAGES, stream=True))
        told.append(f"{len(await stage.all(stream))} chunks")
        # What is dropped is closed on its loop, as long as that runs.
        until = time.monotonic() + PATIENCE
        while registry.live() and time.monotonic() < until:
            gc.collect()
            await stage.sleep(0.01)
    return told


def _broken() -> tuple[type[BaseException], ...]:
    from support.connects import http

    return (http.HTTPError,)


BROKEN = _broken()
"""Up to the SDK's 2.x the transport's own errors come out of an iteration."""


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_calls_end_as_they_would(
    plain: Place, driver: Driver, observer: str, act: str, caplog: pytest.LogCaptureFixture
) -> None:
    acting = Once(ACTS[act](plain))
    with instrumented(**LIMITS) as captured, OBSERVERS[observer](acting, captured):
        told = play(driver, lambda stage: _stories(stage, plain.base_url))
        assert told == ["4 chunks", "stalled", "4 chunks", "4 chunks", "broken", "cancelled", "3 chunks"]
        # The telemetry SDK lets a processor that raises at the start of a span undo the span.
        if (observer, act) != ("processor", "raises"):
            wait_until(
                lambda: gc.collect() >= 0 and len(_outcomes(captured)) == 8, lambda: _outcomes(captured)
            )
            assert _outcomes(captured) == [*OUTCOMES]
        # A thread of ours may be in the middle of it still.
        wait_until(lambda: not acting.under_way, lambda: acting.under_way)
    assert acting.times >= 2
    warned = [
        each.getMessage()
        for each in caplog.records
        if each.name == "stallwatch" and each.levelno >= logging.WARNING
    ]
    assert len(warned) <= (1 if act == "raises" else 0), "it is told once, and not for every call"
    caplog.clear()


OUTCOMES = sorted(("completed",) * 4 + ("stalled", "failed", "abandoned", "cancelled"))


def _outcomes(captured: Captured) -> list[str]:
    """How the stories ended by their spans, the observer's own calls left out."""
    attributes = [span.attributes or {} for span in captured.spans]
    return sorted(
        str(each["stallwatch.outcome"]) for each in attributes if each["gen_ai.request.model"] != NESTED
    )


def test_what_blocks_one_thread_holds_up_no_other(plain: Place) -> None:
    """A processor is called by the thread that ends the span, so that this call waits for it, and only this one."""
    let_go, blocked = threading.Event(), threading.Event()

    def block() -> None:
        if threading.current_thread().name == "unlucky":
            blocked.set()
            assert let_go.wait(PATIENCE)

    def ask() -> None:
        SYNC.tell(plain.base_url, "healthy:tokens=1,gap=0")

    with instrumented(**LIMITS) as captured:
        captured.tracer_provider.add_span_processor(Acts(block))
        unlucky = threading.Thread(target=ask, name="unlucky")
        unlucky.start()
        assert blocked.wait(PATIENCE)
        for driver in DRIVERS:
            told = driver.tell(plain.base_url, "stall-after:tokens=1,gap=0")
            assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError)
            assert told.after_last < LIMITS["idle"] + LATE
        let_go.set()
        unlucky.join(PATIENCE)
        assert not unlucky.is_alive()
        assert len(captured.spans) == 3
