"""A real server, a real upstream, and a browser that closes its tab: the upstream call stops, and nobody complains."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from asgi.served import Browser, served
from stallwatch.asgi import StallwatchMiddleware
from support import leaks
from support.bounds import LIMITS
from support.places import MESSAGES, Place, eventually
from support.telemetry import Captured, instrumented

CLOSE_SEEN = 1.0
"""Seconds from the browser's leaving to the upstream's seeing it."""

ENDLESS = "endless:gap=0.05"


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    with leaks.leaves_nothing():
        yield


@pytest.fixture(autouse=True)
def says_nothing(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No traceback for a closed tab: neither from the server, nor from the loop, nor on stderr."""
    yield
    assert capfd.readouterr().err == ""
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING]


@pytest.fixture
def captured() -> Iterator[Captured]:
    """Telemetry of an instrumented SDK whose own limits play no part."""
    with instrumented(**{**LIMITS, "first_token": 30, "idle": 30, "total": 60}) as telemetry:
        yield telemetry


def event(chunk: Any) -> str:
    return f"data: {json.dumps(chunk.choices[0].delta.content or '')}\n\n"


async def through(request: Request, call_next: Any) -> Response:
    """A middleware of the app's own, of the kind that puts tasks and queues in between."""
    response: Response = await call_next(request)
    return response


@dataclass
class Site:
    """Endpoints that pass an upstream's answer on, each in another way; ``model`` comes from the query."""

    place: Place
    client: Any = None
    sync_client: Any = None

    @contextlib.asynccontextmanager
    async def clients(self, _: Any) -> AsyncIterator[None]:
        """Clients with one connection each, so that a request that kept it would starve the next."""
        self.sync_client = self.place.client(connections=1)
        self.client = self.place.async_client(connections=1)
        with self.sync_client:
            async with self.client:
                yield

    async def create(self, request: Request, **more: Any) -> Any:
        model = request.query_params["model"]
        return await self.client.chat.completions.create(model=model, messages=MESSAGES, **more)

    async def streamed(self, request: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            async for chunk in await self.create(request, stream=True):
                yield event(chunk)

        return StreamingResponse(events(), media_type="text/event-stream")

    def streamed_in_threads(self, request: Request) -> Response:
        def events() -> Iterator[str]:
            for chunk in self.sync_client.chat.completions.create(
                model=request.query_params["model"], messages=MESSAGES, stream=True
            ):
                yield event(chunk)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def whole(self, request: Request) -> Response:
        return JSONResponse((await self.create(request)).choices[0].message.content)

    def whole_in_a_thread(self, request: Request) -> Response:
        answer = self.sync_client.chat.completions.create(
            model=request.query_params["model"], messages=MESSAGES
        )
        return JSONResponse(answer.choices[0].message.content)

    async def afterwards(self, request: Request) -> Response:
        return JSONResponse("done", background=BackgroundTask(self.create, request))

    async def streamed_and_afterwards(self, request: Request) -> Response:
        async def summarise() -> None:
            context = contextvars.Context() if "detached" in request.query_params else None
            await asyncio.create_task(
                self.client.chat.completions.create(model="healthy", messages=MESSAGES), context=context
            )

        response = await self.streamed(request)
        response.background = BackgroundTask(summarise)
        return response

    def app(self, *, outermost: bool = False, **options: Any) -> Any:
        """The site with the middleware added the usual way, or around everything."""
        endpoints = [
            self.streamed,
            self.streamed_in_threads,
            self.whole,
            self.whole_in_a_thread,
            self.afterwards,
            self.streamed_and_afterwards,
        ]
        routes = [Route(f"/{endpoint.__name__}", endpoint) for endpoint in endpoints]
        handlers: dict[Any, Any] = {openai.APITimeoutError: lambda *_: JSONResponse("late", 504)}
        app = Starlette(routes=routes, lifespan=self.clients, exception_handlers=handlers)
        if outermost:
            return StallwatchMiddleware(app, **options)
        app.add_middleware(StallwatchMiddleware, **options)
        return app


@pytest.fixture
def site(plain: Place) -> Site:
    return Site(plain)


def leaves(port: int, path: str, site: Site, chunks: int) -> None:
    """Ask, read so many chunks (or wait until the upstream was asked), and close the tab."""
    with Browser(port, path) as browser:
        site.place.gateway.wait_for(lambda ledger: ledger.requests)
        if chunks:
            browser.reads(count=chunks)
    site.place.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"), CLOSE_SEEN)


def next_gets_the_connection(port: int, path: str) -> None:
    with Browser(port, path.partition("?")[0] + "?model=healthy:gap=0") as browser:
        assert browser.status == 200
        # To its very end, or leaving would cancel this one as well.
        browser.reads(b"0\r\n\r\n" if "/streamed" in path else b"t4 ")


CASES = [
    ("/streamed", ENDLESS, 3),
    ("/streamed", "stall-after:tokens=2,gap=0", 3),
    ("/streamed", "silent", 0),
    ("/streamed", "never-responds", 0),
    ("/streamed_in_threads", ENDLESS, 3),
    ("/streamed_in_threads", "stall-after:tokens=2,gap=0", 3),
    ("/streamed_in_threads", "silent", 0),
    ("/streamed_in_threads", "never-responds", 0),
    ("/whole", "never-responds", 0),
    ("/whole_in_a_thread", "never-responds", 0),
]


def check(site: Site, captured: Captured, app: Any, path: str, model: str, chunks: int, loop: str) -> None:
    with served(app, loop, lifespan="on") as port:
        leaves(port, f"{path}?model={model}", site, chunks)
        next_gets_the_connection(port, path)
    eventually(lambda: len(captured.spans) == 2)
    first, second = captured.spans
    assert first.attributes["stallwatch.outcome"] == "cancelled"
    assert first.status.description is None
    if "/streamed" in path:
        assert first.attributes["stallwatch.chunks"] >= chunks
    assert second.attributes["stallwatch.outcome"] == "completed"


@pytest.mark.parametrize(("path", "model", "chunks"), CASES)
def test_the_upstream_call_stops_and_its_connection_is_free(
    site: Site, captured: Captured, path: str, model: str, chunks: int
) -> None:
    check(site, captured, site.app(), path, model, chunks, "asyncio")


@pytest.mark.parametrize("path", ["/streamed", "/streamed_in_threads", "/whole"])
def test_the_same_on_uvloop(site: Site, captured: Captured, path: str) -> None:
    model = "never-responds" if path == "/whole" else ENDLESS
    check(site, captured, site.app(), path, model, 0 if path == "/whole" else 3, "uvloop")


def within(site: Site) -> Any:
    """The middleware inside of one that is written the other way."""
    app = site.app()
    app.add_middleware(BaseHTTPMiddleware, dispatch=through)
    return app


def around(site: Site) -> Any:
    """The middleware around one that is written the other way."""
    app = site.app()
    app.user_middleware.append(app.user_middleware.pop(0).__class__(BaseHTTPMiddleware, dispatch=through))
    app.add_middleware(StallwatchMiddleware)
    return app


@pytest.mark.parametrize("path", ["/streamed", "/streamed_in_threads", "/whole"])
@pytest.mark.parametrize("build", [lambda site: site.app(outermost=True), within, around])
def test_the_place_among_other_middlewares_does_not_matter(
    site: Site, captured: Captured, path: str, build: Callable[[Site], Any]
) -> None:
    model = "never-responds" if path == "/whole" else ENDLESS
    check(site, captured, build(site), path, model, 0 if path == "/whole" else 3, "asyncio")


def test_who_reads_to_the_end_gets_all_and_the_answer_is_not_buffered(site: Site, captured: Captured) -> None:
    with (
        served(site.app(), lifespan="on") as port,
        Browser(port, "/streamed?model=healthy:gap=0") as browser,
    ):
        browser.reads(b"0\r\n\r\n")
        assert browser.headers["x-accel-buffering"] == "no"
        assert browser.headers["cache-control"] == "no-cache, no-transform"
    assert captured.attributes()["stallwatch.outcome"] == "completed"


def test_what_runs_after_the_answer_goes_on_without_the_browser(site: Site, captured: Captured) -> None:
    path = "/afterwards?model=late-headers:seconds=0.3"
    with served(site.app(total="100ms"), lifespan="on") as port:
        with Browser(port, path) as browser:
            browser.reads(b"done")
        site.place.gateway.wait_for(lambda ledger: ledger.requests[0].completed_at)
    assert captured.attributes()["stallwatch.outcome"] == "completed"


@pytest.mark.parametrize("path", ["/whole", "/whole_in_a_thread"])
@pytest.mark.parametrize(
    ("options", "header"), [({"total": 0.3}, "60s"), ({}, "300ms"), ({"total": 60}, "0.3")]
)
def test_the_request_ends_in_the_time_that_was_given(
    site: Site, captured: Captured, path: str, options: dict[str, Any], header: str
) -> None:
    app = site.app(deadline_header="x-request-deadline", **options)
    with (
        served(app, lifespan="on") as port,
        Browser(port, f"{path}?model=never-responds", f"X-Request-Deadline: {header}") as browser,
    ):
        assert browser.status == 504
    assert captured.attributes()["stallwatch.stall.phase"] == "total"


def test_with_no_time_left_the_upstream_is_not_even_asked(site: Site, captured: Captured) -> None:
    app = site.app(deadline_header="x-request-deadline")
    with (
        served(app, lifespan="on") as port,
        Browser(port, "/whole?model=healthy", "X-Request-Deadline: 0") as browser,
    ):
        assert browser.status == 504
    assert not site.place.gateway.ledger().requests
