"""A transport without a socket: what is bounded there, and what is not, is as the page on transports says."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import stallwatch
from support.bounds import LATE, LIMITS
from support.connects import http
from support.drivers import ASYNC, SYNC
from support.expect import in_time
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

CHUNK = (
    b'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
)
HEADERS = {"content-type": "text/event-stream"}


class Blocking(http.BaseTransport):  # type: ignore[misc, name-defined]
    """Answers with one chunk and then waits: for as long as the read timeout says, or for ever."""

    def __init__(self, *, heeds: bool, before_headers: bool = False) -> None:
        self.heeds, self.before_headers = heeds, before_headers
        self.over = threading.Event()
        self.closed = False

    def wait(self, request: Any) -> None:
        timeout = request.extensions["timeout"]["read"] if self.heeds else None
        if not self.over.wait(timeout):
            raise http.ReadTimeout("timed out", request=request)

    def handle_request(self, request: Any) -> Any:
        if self.before_headers:
            self.wait(request)
        return http.Response(200, headers=HEADERS, stream=Body(self, request))


class Body(http.SyncByteStream):  # type: ignore[misc, name-defined]
    def __init__(self, transport: Blocking, request: Any) -> None:
        self.transport, self.request = transport, request

    def __iter__(self) -> Iterator[bytes]:
        yield CHUNK
        self.transport.wait(self.request)

    def close(self) -> None:
        self.transport.closed = True
        self.transport.over.set()


class Waiting(http.AsyncBaseTransport):  # type: ignore[misc, name-defined]
    """The same, asynchronously, and deaf to timeouts."""

    def __init__(self, *, before_headers: bool = False) -> None:
        self.before_headers = before_headers
        self.closed = False

    async def handle_async_request(self, request: Any) -> Any:
        if self.before_headers:
            await asyncio.get_running_loop().create_future()
        return http.Response(200, headers=HEADERS, stream=AsyncBody(self))


class AsyncBody(http.AsyncByteStream):  # type: ignore[misc, name-defined]
    def __init__(self, transport: Waiting) -> None:
        self.transport = transport

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield CHUNK
        await asyncio.get_running_loop().create_future()

    async def aclose(self) -> None:
        self.transport.closed = True


def _said(captured: Captured) -> tuple[str, str]:
    attributes = captured.attributes()
    return str(attributes["stallwatch.outcome"]), str(attributes["stallwatch.interrupt"])


def _sync_client(transport: Any) -> Any:
    return SYNC.client("http://127.0.0.1:9/v1", http_client=http.Client(transport=transport))


def test_sync_the_read_timeout_is_the_bound_if_it_is_heeded() -> None:
    transport = Blocking(heeds=True)

    async def story(stage: Stage) -> BaseException:
        async with stage.inside(_sync_client(transport)) as client:
            with pytest.raises(Exception) as caught:
                await stage.all(await stage.chat(client, "m"))
            return caught.value

    started = time.monotonic()
    with instrumented(**LIMITS) as captured:
        error = play(SYNC, story)
    # The longest silence that any phase allows; the transport is not told of phases.
    in_time(time.monotonic() - started, max(LIMITS[name] for name in ("first_token", "thinking", "idle")))
    assert "Timeout" in type(error).__name__
    assert transport.closed
    assert _said(captured) == ("failed", "none")


def test_sync_a_wait_that_heeds_nothing_ends_with_a_close_only() -> None:
    transport = Blocking(heeds=False)

    async def story(stage: Stage) -> float:
        async with stage.inside(_sync_client(transport)) as client:
            stream = await stage.chat(client, "m")
            timer = threading.Timer(0.6, stream.close)
            timer.start()
            started = time.monotonic()
            await stage.all(stream)
            timer.join()
            return time.monotonic() - started

    with instrumented(**LIMITS) as captured:
        in_time(play(SYNC, story), 0.6)
    assert _said(captured) == ("closed_early", "none")


@pytest.mark.parametrize("before_headers", [True, False], ids=["headers", "body"])
def test_async_our_call_ends_in_time_and_the_transport_is_told_to_close(before_headers: bool) -> None:
    transport = Waiting(before_headers=before_headers)

    async def story(stage: Stage) -> stallwatch.StreamTimeoutError:
        client = ASYNC.client("http://127.0.0.1:9/v1", http_client=http.AsyncClient(transport=transport))
        async with stage.inside(client):
            with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
                await stage.all(await stage.chat(client, "m"))
            return caught.value

    with instrumented(**LIMITS) as captured:
        error = play(ASYNC, story)
    limit = LIMITS["first_token" if before_headers else "idle"]
    assert error.phase == ("first_token" if before_headers else "idle")
    assert limit - 0.02 <= error.waited <= limit + LATE
    assert transport.closed is not before_headers
    assert _said(captured) == ("stalled", "unproven")


def test_async_a_cancel_of_the_run_wakes_whoever_waits() -> None:
    transport = Waiting()

    async def story(stage: Stage) -> float:
        client = ASYNC.client("http://127.0.0.1:9/v1", http_client=http.AsyncClient(transport=transport))
        async with stage.inside(client):
            with stallwatch.Run() as run:
                timer = threading.Timer(0.3, run.cancel, ("enough",))
                timer.start()
                started = time.monotonic()
                with pytest.raises(stallwatch.RunCancelledError):
                    await stage.all(await stage.chat(client, "m"))
                timer.join()
                return time.monotonic() - started

    with instrumented(**{**LIMITS, "idle": 10}) as captured:
        in_time(play(ASYNC, story), 0.3)
    assert _said(captured) == ("cancelled", "unproven")
