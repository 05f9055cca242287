"""A call made while another is being sent is a call of its own: neither takes the other for part of itself."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

import stallwatch
from stallwatch.testing import Done, Finish, Role, Tokens, Wait
from support.connects import quick_client
from support.drivers import DRIVERS, Driver
from support.places import Place
from support.stage import Stage, play
from support.telemetry import instrumented

LIMITS: dict[str, Any] = {"connect": 5, "first_token": 5, "thinking": 0.15, "idle": 0.15, "total": 5}
THINKS = [Role(), Tokens(1), Wait(0.25), Tokens(1), Finish(), Done()]
"""Silent for longer than the outer call may be."""

OWN_TIMEOUT = 17.0
"""Of the inner client, nothing of which is ours."""


class Seen:
    """What became of a call: its chunks, and how its requests looked when they were sent."""

    def __init__(self) -> None:
        self.chunks = 0
        self.error: BaseException | None = None
        self.extensions: list[dict[str, Any]] = []

    def is_untouched(self) -> None:
        assert self.error is None
        assert self.chunks == 4
        (extensions,) = self.extensions
        assert "stallwatch" not in extensions
        assert set(extensions["timeout"].values()) == {OWN_TIMEOUT}


def _client(stage: Stage, place: Place, hook: Callable[[Any], Any], **options: Any) -> Any:
    """A client whose HTTP client calls ``hook``, of the stage's kind, with each request."""
    http_client = quick_client(is_async=stage.is_async, event_hooks={"request": [hook]})
    return stage.client(place.base_url, http_client=http_client, **options)


def _noting(stage: Stage, seen: Seen) -> Callable[[Any], Any]:
    def note(request: Any) -> None:
        seen.extensions.append(dict(request.extensions))

    async def note_async(request: Any) -> None:
        note(request)

    return note_async if stage.is_async else note


async def _call(stage: Stage, client: Any, seen: Seen, model: str) -> None:
    try:
        async for _ in stage.over(await stage.chat(client, model)):
            seen.chunks += 1
    except Exception as error:
        seen.error = error


def _run(step: Awaitable[None]) -> None:
    """Run what never suspends."""
    with pytest.raises(StopIteration):
        step.send(None)  # type: ignore[attr-defined]  # a coroutine


def _in_hook(stage: Stage, act: Callable[[], Awaitable[None]]) -> Callable[[Any], Any]:
    """A hook of the stage's kind that does ``act``."""

    async def hook_async(_: object) -> None:
        await act()

    return hook_async if stage.is_async else lambda _: _run(act())


@contextmanager
def _everybody_but_off() -> Iterator[Callable[[Any], Any]]:
    with instrumented(**LIMITS):
        yield lambda _: stallwatch.policy(mode="off")


@contextmanager
def _one_client_only() -> Iterator[Callable[[Any], Any]]:
    guarded = []

    def guard(client: Any) -> Any:
        guarded.append(stallwatch.guard(client, policy=stallwatch.Policy.of(**LIMITS)))
        return nullcontext()

    try:
        yield guard
    finally:
        for client in guarded:
            stallwatch.unguard(client)


GOVERNED: dict[str, Any] = {"mode is off": _everybody_but_off, "not guarded": _one_client_only}

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
ways = pytest.mark.parametrize("way", GOVERNED)


def _is_its_own(outer: Seen) -> None:
    """The outer call, of a model that stalls after one token, knows of no attempt and no chunk but its own."""
    assert isinstance(outer.error, stallwatch.StreamInactivityTimeoutError), repr(outer.error)
    assert outer.error.phase == "idle"
    assert (outer.error.attempt, outer.error.chunks_received, outer.chunks) == (1, 2, 2)


@drivers
@ways
def test_an_ungoverned_call_in_a_request_hook_is_untouched(plain: Place, driver: Driver, way: str) -> None:
    plain.gateway.script("thinks", THINKS)
    inner, outer = Seen(), Seen()

    async def story(stage: Stage) -> None:
        with GOVERNED[way]() as govern:
            own = _client(stage, plain, _noting(stage, inner), timeout=OWN_TIMEOUT)

            async def nested() -> None:
                with off:
                    await _call(stage, own, inner, "thinks")

            client = _client(stage, plain, _in_hook(stage, nested))
            off = govern(client)
            async with stage.inside(own), stage.inside(client):
                await _call(stage, client, outer, "stall-after:tokens=1,gap=0")

    play(driver, story)
    inner.is_untouched()
    _is_its_own(outer)


@drivers
def test_the_outer_calls_span_tells_of_the_outer_call_alone(plain: Place, driver: Driver) -> None:
    plain.gateway.script("thinks", THINKS)
    inner = Seen()

    async def story(stage: Stage) -> None:
        own = _client(stage, plain, _noting(stage, Seen()))

        async def nested() -> None:
            with stallwatch.policy(mode="off"):
                await _call(stage, own, inner, "thinks")

        async with stage.inside(own), stage.inside(_client(stage, plain, _in_hook(stage, nested))) as client:
            await _call(stage, client, Seen(), "healthy:tokens=3")

    with instrumented(**LIMITS) as captured:
        play(driver, story)
    assert inner.chunks == 4
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "completed"
    assert (attributes["stallwatch.attempts"], attributes["stallwatch.chunks"]) == (1, 5)


@drivers
def test_a_governed_call_in_a_request_hook_has_a_run_of_its_own(plain: Place, driver: Driver) -> None:
    inner = Seen()

    async def story(stage: Stage) -> None:
        own = _client(stage, plain, _noting(stage, Seen()))

        async def nested() -> None:
            await _call(stage, own, inner, "stall-after:tokens=2,gap=0")

        async with stage.inside(own), stage.inside(_client(stage, plain, _in_hook(stage, nested))) as client:
            await _call(stage, client, Seen(), "healthy:tokens=3")

    with instrumented(**LIMITS) as captured:
        play(driver, story)
    assert isinstance(inner.error, stallwatch.StreamInactivityTimeoutError)
    told = [
        tuple(span.attributes[f"stallwatch.{name}"] for name in ("outcome", "attempts", "chunks"))  # type: ignore[index]
        for span in captured.spans
    ]
    assert told == [("stalled", 1, 3), ("completed", 1, 5)]


@drivers
@ways
def test_what_was_started_in_a_hook_is_no_part_of_the_run_later(
    plain: Place, driver: Driver, way: str
) -> None:
    # It copies the context of the hook, and makes its call when the outer call reads its stream.
    plain.gateway.script("thinks", THINKS)
    inner, outer = Seen(), Seen()

    async def story(stage: Stage) -> None:
        with GOVERNED[way]() as govern:
            own = _client(stage, plain, _noting(stage, inner), timeout=OWN_TIMEOUT)
            go: Any = asyncio.Event() if stage.is_async else threading.Event()
            started: list[Any] = []

            async def later() -> None:
                await stage.of(go.wait())
                with off:
                    await _call(stage, own, inner, "thinks")

            async def start() -> None:
                if stage.is_async:
                    started.append(asyncio.create_task(later()))
                else:
                    context = contextvars.copy_context()
                    started.append(threading.Thread(target=context.run, args=(_run, later())))
                    started[0].start()

            client = _client(stage, plain, _in_hook(stage, start))
            off = govern(client)
            async with stage.inside(own), stage.inside(client):
                stream = await stage.chat(client, "stall-after:tokens=1,gap=0")
                outer.chunks = len(await stage.take(stream, 2))
                go.set()
                await _finish(stage, stream, outer)
                await stage.of(started[0] if stage.is_async else started[0].join())

    play(driver, story)
    inner.is_untouched()
    _is_its_own(outer)


async def _finish(stage: Stage, stream: Any, seen: Seen) -> None:
    try:
        seen.chunks += len(await stage.all(stream))
    except stallwatch.StreamTimeoutError as error:
        seen.error = error
