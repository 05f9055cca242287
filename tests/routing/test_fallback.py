"""The next route is asked when one fails before its first progress: with clocks of its own, inside the same call."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

import stallwatch
from stallwatch.testing import (
    Done,
    EmptyDelta,
    Finish,
    Headers,
    Reasoning,
    RefuseHeaders,
    Role,
    Silence,
    Status,
    Token,
    Tokens,
    ToolCall,
    Wait,
    unaccepting_server,
)
from support.bounds import CLOSE_SEEN, LATE, LIMITS
from support.drivers import ASYNC, SYNC, Driver
from support.expect import Histogram, bare_shape, in_time, timeout_error
from support.stage import Stage, play
from support.telemetry import Captured

if TYPE_CHECKING:
    from routing.conftest import Scene

SILENT = [Headers(), Silence()]
ROLE_ONLY = [Role(), EmptyDelta("no_choices"), Silence()]
GOOD = [Role(), EmptyDelta("content"), Token("Hel"), Token("lo"), Finish(), Done()]
FIRST, IDLE = LIMITS["first_token"], LIMITS["idle"]


def text_of(chunks: list[Any]) -> str:
    deltas = [
        choice.delta.content or ""
        for chunk in chunks
        if hasattr(chunk, "choices")
        for choice in chunk.choices
    ]
    return "".join(deltas) + "".join(
        chunk.delta for chunk in chunks if getattr(chunk, "type", None) == "response.output_text.delta"
    )


def stream_kind(driver: Driver) -> type:
    return openai.AsyncStream if driver.is_async else openai.Stream


# The field case


@pytest.mark.parametrize("around", ["nothing", "a run", "asyncio.timeout"])
def test_a_fallback_is_not_aborted_at_birth(
    scene: Scene, driver: Driver, guarded: Any, attempts: Any, around: str
) -> None:
    """Field case A14: the first model times out, and the second answers after 0.8 s."""
    if around == "asyncio.timeout" and not driver.is_async:
        pytest.skip("there is no such thing without a loop")
    scene.script(SILENT, [Wait(0.8), Role(), Tokens(5, 0.02), Finish(), Done()])

    async def story(stage: Stage) -> tuple[Any, str]:
        async with AsyncExitStack() as stack:
            if around == "a run":
                await stack.enter_async_context(stage.inside(stallwatch.Run(total=30, name="answer")))
            if around == "asyncio.timeout":
                await stack.enter_async_context(asyncio.timeout(30))
            router = await stack.enter_async_context(scene.router(stage))
            stream = await scene.ask(stage, router)
            return stream, text_of(await stage.all(stream))

    with guarded(first_token=1, idle=1, connect=1, total=8) as captured:
        stream, text = play(driver, story)
        assert text == "t0 t1 t2 t3 t4 "
        assert type(stream) is stream_kind(driver)
        assert scene.asked == (1, 1)
        (asked,) = scene.first.ledger().requests
        assert asked.closed_how in ("fin", "rst")
        assert asked.peer_closed_at is not None
        in_time(asked.peer_closed_at - asked.received_at, 1)

        span, attributes = captured.span, captured.attributes()
        assert span.name == "chat m1"
        assert attributes["stallwatch.outcome"] == "completed"
        assert attributes["stallwatch.attempts"] == 2
        assert attributes["stallwatch.stalls"] == 1
        assert attributes["stallwatch.stalled"] is False
        assert "error.type" not in attributes
        assert attributes.get("stallwatch.run.name") == ("answer" if around == "a run" else None)
        one, two = attempts(captured)
        assert (one["attempt.role"], one["gen_ai.request.model"], one["outcome"]) == (
            "first",
            "m1",
            "stalled",
        )
        assert (one["retry.decision"], one["retry.reason"]) == ("fallback", "stall")
        assert (one["server.address"], one["server.port"]) == ("127.0.0.1", scene.first.port)
        assert (two["attempt.role"], two["gen_ai.request.model"]) == ("fallback", "m2")
        assert two["outcome"] == "completed"
        assert (two["server.address"], two["server.port"]) == ("127.0.0.1", scene.second.port)
        assert "retry.decision" not in two
        assert [event.name for event in captured.events()] == ["stallwatch.stall", "stallwatch.fallback"]
        (fallback,) = captured.events("fallback")
        assert fallback.attributes["stallwatch.fallback.from"] == "m1 at 127.0.0.1"
        assert fallback.attributes["stallwatch.fallback.to"] == "m2 at 127.0.0.1"
        first_token = Histogram(captured, "stallwatch.time_to_first_token")
        assert first_token.count == 1
        in_time(first_token.sum, 1.8)
        duration = Histogram(captured, "gen_ai.client.operation.duration")
        assert duration.count == 1
        in_time(duration.sum, 1.9)
        assert captured.total("stallwatch.streams", stallwatch__outcome="completed") == 1
        assert captured.total("stallwatch.streams") == 1
        assert captured.total("stallwatch.retries", stallwatch__retry__decision="fallback") == 1


# Clocks


@pytest.mark.parametrize(
    ("second", "phase", "limit", "chunks"),
    [
        (SILENT, "first_token", FIRST, 0),
        ([RefuseHeaders()], "first_token", FIRST, 0),
        ([Role(), Silence()], "first_token", FIRST, 1),
        ([Role(), Token("a"), Silence()], "idle", IDLE, 2),
        ("connect", "connect", LIMITS["connect"], 0),
    ],
    ids=["silent", "no headers", "role only", "mid-answer", "connect"],
)
def test_the_second_route_has_clocks_of_its_own(
    scene: Scene, driver: Driver, captured: Captured, second: Any, phase: str, limit: float, chunks: int
) -> None:
    scene.script(SILENT, "silent" if second == "connect" else second)
    got: list[Any] = []

    async def story(stage: Stage) -> BaseException:
        async with AsyncExitStack() as stack:
            urls = None
            if second == "connect":
                address = stack.enter_context(unaccepting_server())
                urls = [scene.first.base_url, address.base_url]
            router = await stack.enter_async_context(scene.router(stage, urls=urls))
            with pytest.raises(openai.APITimeoutError) as caught:
                async for chunk in stage.over(await scene.ask(stage, router)):
                    got.append(chunk)  # noqa: PERF401 - a comprehension loses what came before the error
            return caught.value

    wire = None if chunks == 1 else "dead_wire"
    error = play(driver, story)
    timeout_error(error, phase=phase, limit=limit, chunks=chunks, attempt=2, wire=wire)
    assert len(got) == (chunks if phase == "idle" else 0)
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "stalled"
    assert attributes["stallwatch.stall.phase"] == phase
    assert attributes["stallwatch.stalls"] == 2
    assert captured.total("stallwatch.streams", stallwatch__outcome="stalled") == 1


@pytest.mark.parametrize(
    "first", [SILENT, [RefuseHeaders()], ROLE_ONLY], ids=["silent", "no headers", "role"]
)
@pytest.mark.parametrize("by", ["total", "run"])
def test_the_total_is_shared_and_blames_nobody(
    scene: Scene, driver: Driver, guarded: Any, first: list[Any], by: str
) -> None:
    """Route 1 takes a part of it, route 2 the rest."""
    scene.script(first, SILENT)

    async def story(stage: Stage) -> float:
        started = time.monotonic()
        async with AsyncExitStack() as stack:
            router = await stack.enter_async_context(scene.router(stage))
            if by == "run":
                await stack.enter_async_context(stage.inside(stallwatch.Run(total=0.6)))
            with pytest.raises(stallwatch.TotalTimeoutError) as caught:
                await scene.ask(stage, router)
            assert caught.value.limit == 0.6
            return time.monotonic() - started

    with guarded(total=0.6 if by == "total" else 60) as captured:
        in_time(play(driver, story), 0.6)
        assert scene.asked == (1, 1)
        assert captured.attributes()["stallwatch.stall.phase"] == "total"
        assert captured.attributes()["stallwatch.retry.decision"] == "deadline"


@pytest.mark.parametrize("first", [SILENT, [RefuseHeaders()]], ids=["silent", "no headers"])
@pytest.mark.parametrize("by", ["total", "run"])
def test_no_route_is_asked_once_the_total_is_spent(
    scene: Scene, driver: Driver, guarded: Any, first: list[Any], by: str
) -> None:
    scene.script(first, GOOD)

    async def story(stage: Stage) -> None:
        async with AsyncExitStack() as stack:
            router = await stack.enter_async_context(scene.router(stage))
            for _ in range(5):
                with pytest.raises(stallwatch.TotalTimeoutError) as caught:
                    async with stage.inside(stallwatch.Run(total=0.1 if by == "run" else None)):
                        await scene.ask(stage, router)
                assert caught.value.__cause__ is None or not isinstance(
                    caught.value.__cause__, stallwatch.EarlierRouteError
                )

    with guarded(total=0.1 if by == "total" else 60) as captured:
        play(driver, story)
        assert scene.asked == (5, 0)
        for span in captured.spans:
            assert span.attributes["stallwatch.retry.decision"] == "deadline"
            assert span.attributes["stallwatch.outcome"] == "stalled"


# Nothing is delivered twice, and nothing is lost


@pytest.mark.parametrize("kind", ["text", "tool call", "reasoning"])
def test_after_output_nothing_follows(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any, kind: str
) -> None:
    """Field case A11, with a router."""
    before: list[Any] = {
        "text": [Token("Hel")],
        "tool call": [ToolCall("write", ['{"a":'])],
        "reasoning": [Reasoning("hm")],
    }[kind]
    scene.script([Role(), *before, Silence()], GOOD)
    got: list[Any] = []

    async def story(stage: Stage) -> BaseException:
        async with scene.router(stage, options={"max_retries": 2}) as router:
            stream = await scene.ask(stage, router)
            with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
                async for chunk in stage.over(stream):
                    got.append(chunk)  # noqa: PERF401 - a comprehension loses what came before the error
            return caught.value

    error = play(driver, story)
    assert error.__cause__ is None or not isinstance(error.__cause__, stallwatch.EarlierRouteError)
    assert scene.asked == (1, 0)
    assert len(got) >= 2
    assert text_of(got) == ("Hel" if kind == "text" else "")
    (attempt,) = attempts(captured)
    assert attempt["retry.decision"] == "partial_output"
    assert captured.attributes()["stallwatch.outcome"] == "stalled"
    assert not captured.events("fallback")


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("first", [SILENT, ROLE_ONLY, [Status(503)]], ids=["silent", "role only", "503"])
def test_the_chunks_are_those_of_the_route_that_answered(
    scene: Scene, driver: Driver, captured: Captured, api: str, first: list[Any]
) -> None:
    scene.script(first, GOOD)

    async def story(stage: Stage) -> list[Any]:
        async with scene.router(stage) as router:
            stream = await scene.ask(stage, router, api)
            assert type(stream) is stream_kind(driver)
            ledger = scene.second.ledger()
            assert stream.response.headers["x-request-id"] == ledger.requests[0].request_id
            return await stage.all(stream)

    chunks = play(driver, story)
    bare = driver.tell(scene.second.base_url, "m2", api=api)
    assert bare_shape(chunks) == bare_shape(bare.chunks)
    assert text_of(chunks) == "Hello"


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("first", [[RefuseHeaders()], [Status(529)]], ids=["stall", "529"])
def test_whole_answers_fall_back_too(
    scene: Scene, driver: Driver, guarded: Any, attempts: Any, api: str, first: list[Any]
) -> None:
    """Not streamed there is no first token to wait for: a stall is the total's, unless the route's own says less."""
    scene.script(first, GOOD)
    stalls = first == [RefuseHeaders()]

    async def story(stage: Stage) -> Any:
        timeouts = {"timeout": 0.3} if stalls else {}
        async with scene.router(stage, options=timeouts) as router:
            return await scene.ask(stage, router, api, stream=False)

    with guarded() as captured:
        answer = play(driver, story)
        if api == "chat":
            assert type(answer) is ChatCompletion
            assert answer.choices[0].message.content == "Hello"
        else:
            assert type(answer) is Response
            assert answer.output_text == "Hello"
        assert [attempt["attempt.role"] for attempt in attempts(captured)] == ["first", "fallback"]
        assert captured.attributes()["stallwatch.outcome"] == "completed"


def test_an_answer_without_any_progress_is_the_calls_answer(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script([Role(), Finish(), Done()], GOOD)

    async def story(stage: Stage) -> list[Any]:
        async with scene.router(stage) as router:
            return await stage.all(await scene.ask(stage, router))

    assert len(play(driver, story)) == 2
    assert scene.asked == (1, 0)
    assert captured.attributes()["stallwatch.outcome"] == "completed"


# What users do with the stream


LONG = [Role(), Tokens(40, 0.02), Finish(), Done()]


@pytest.mark.parametrize("how", ["with and break", "close", "twice", "next", "with"])
def test_the_stream_is_used_as_the_sdks_own(
    scene: Scene, driver: Driver, captured: Captured, how: str
) -> None:
    scene.script(SILENT, GOOD if how in ("twice", "next", "with") else LONG)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            stream = await scene.ask(stage, router)
            if how == "with and break":
                async with stage.inside(stream) as entered:
                    assert entered is stream
                    async for chunk in stage.over(entered):
                        if text_of([chunk]):
                            break
            elif how == "close":
                await stage.take(stream, 2)
                await stage.close(stream)
            elif how == "twice":
                assert len(await stage.all(stream)) == 5
                assert await stage.all(stream) == []
            elif how == "next":
                assert len(await stage.take(stream, 5)) == 5
                with pytest.raises(StopAsyncIteration):
                    await stage.step(stream)
            else:
                async with stage.inside(stream):
                    assert text_of(await stage.all(stream)) == "Hello"
            if "close" in how or "break" in how:
                await scene.until(
                    stage, scene.second, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst")
                )

    play(driver, story)
    expected = "closed_early" if how in ("close", "with and break") else "completed"
    assert captured.attributes()["stallwatch.outcome"] == expected
    assert captured.total("stallwatch.streams") == 1


def test_a_stream_closed_before_it_is_read_keeps_nothing(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    """What was read ahead is let go with it: after a close the bare SDK's stream gives nothing more."""
    scene.script(SILENT, LONG)

    async def story(stage: Stage) -> list[Any]:
        async with scene.router(stage) as router:
            stream = await scene.ask(stage, router)
            await stage.close(stream)
            await scene.until(
                stage, scene.second, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst")
            )
            try:
                return await stage.all(stream)
            except Exception:
                return []

    play(driver, story)
    assert captured.attributes()["stallwatch.outcome"] == "closed_early"


def test_a_dropped_stream_frees_its_connection(scene: Scene, driver: Driver, captured: Captured) -> None:
    scene.script(SILENT, LONG)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            await scene.ask(stage, router)
            deadline = time.monotonic() + 3
            while not scene.second.ledger().requests[0].closed_how:
                assert time.monotonic() < deadline, scene.second.ledger()
                # The SDK's nested generators go one after another, with or without us.
                gc.collect()
                await stage.sleep(0.02)

    play(driver, story)
    assert captured.attributes()["stallwatch.outcome"] == "abandoned"


def test_the_stream_may_be_read_elsewhere_than_the_call_was_made(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script(SILENT, [Role(), Token("a"), Wait(0.1), Token("b"), Finish(), Done()])

    async def story(stage: Stage) -> str:
        async with scene.router(stage) as router:
            if stage.is_async:
                stream = await asyncio.create_task(scene.ask(stage, router))
                return text_of(await asyncio.create_task(stage.all(stream)))
            stream = await scene.ask(stage, router)
            got: list[Any] = []
            reader = threading.Thread(target=lambda: got.extend(stream))
            reader.start()
            reader.join(5)
            return text_of(got)

    assert play(driver, story) == "ab"
    assert captured.attributes()["stallwatch.outcome"] == "completed"


# The user's cancel


class Trap(Mapping[str, Any]):
    """Overrides that cancel a run when the second route is about to be asked."""

    def __init__(self, run: Callable[[], stallwatch.Run | None]) -> None:
        self._run = run

    def __iter__(self) -> Iterator[str]:
        run = self._run()
        if run is not None:
            run.cancel("between")
        return iter(())

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("when", ["route 1", "route 2", "between"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_cancelled_run_asks_no_further_route(
    scene: Scene, driver: Driver, guarded: Any, meanwhile: Any, when: str, stream: bool
) -> None:
    scene.script([Status(503)] if when != "route 1" else [RefuseHeaders()], [RefuseHeaders()])
    gateway = scene.first if when == "route 1" else scene.second
    held: list[stallwatch.Run] = []

    async def story(stage: Stage) -> None:
        route = (
            [{}, {"overrides": Trap(lambda: held[0] if held else None)}] if when == "between" else [{}, {}]
        )
        async with scene.router(stage, route=route) as router:
            run = stallwatch.Run()
            held.append(run)
            started: list[float] = []

            def cancel() -> None:
                started.append(time.monotonic())
                run.cancel("user stop")

            async with AsyncExitStack() as stack:
                if when != "between":
                    await stack.enter_async_context(
                        meanwhile(stage, gateway, lambda ledger: ledger.requests[0].received_at, cancel)
                    )
                async with stage.inside(run):
                    with pytest.raises(stallwatch.RunCancelledError) as caught:
                        await scene.ask(stage, router, stream=stream)
                assert when == "between" or time.monotonic() - started[0] < LATE
            assert caught.value.reason == ("between" if when == "between" else "user stop")

    with guarded(first_token=8, total=8) as captured:
        play(driver, story)
        assert scene.asked == {"route 1": (1, 0), "route 2": (1, 1), "between": (1, 0)}[when]
        attributes = captured.attributes()
        assert attributes["stallwatch.outcome"] == "cancelled"
        assert attributes["stallwatch.retry.decision"] == "cancelled"
        assert "error.type" not in attributes


@pytest.mark.parametrize("when", ["route 1", "route 2"])
@pytest.mark.parametrize("how", ["task.cancel", "asyncio.timeout", "anyio scope"])
def test_a_cancelled_task_asks_no_further_route(scene: Scene, guarded: Any, when: str, how: str) -> None:
    scene.script([Status(503)] if when == "route 2" else SILENT, SILENT)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            if how == "asyncio.timeout":
                with pytest.raises(TimeoutError) as timed:
                    async with asyncio.timeout(0.5):
                        await scene.ask(stage, router)
                assert not isinstance(timed.value, openai.OpenAIError)
                return
            if how == "anyio scope":
                with anyio.move_on_after(0.5) as scope:
                    await scene.ask(stage, router)
                assert scope.cancelled_caught
                return
            task = asyncio.create_task(scene.ask(stage, router))
            gateway = scene.first if when == "route 1" else scene.second
            await gateway.wait_for_async(lambda ledger: ledger.requests[0].headers_sent_at)
            await asyncio.sleep(0.02)
            task.cancel("own text")
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.args == ("own text",)

    with guarded(first_token=8) as captured:
        play(ASYNC, story)
        assert scene.asked == ((1, 0) if when == "route 1" else (1, 1))
        attributes = captured.attributes()
        assert attributes["stallwatch.outcome"] == "cancelled"
        assert attributes["stallwatch.retry.decision"] == "cancelled"
        assert "error.type" not in attributes
        assert captured.total("stallwatch.streams", stallwatch__outcome="cancelled") == 1


@pytest.mark.parametrize("when", ["route 1", "route 2"])
def test_ctrl_c_asks_no_further_route(scene: Scene, guarded: Any, meanwhile: Any, when: str) -> None:
    scene.script([Status(503)] if when == "route 2" else SILENT, SILENT)
    gateway = scene.first if when == "route 1" else scene.second
    main = threading.main_thread().ident
    assert main is not None

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            with pytest.raises(KeyboardInterrupt):
                async with meanwhile(
                    stage,
                    gateway,
                    lambda ledger: ledger.requests[0].headers_sent_at,
                    lambda: signal.pthread_kill(main, signal.SIGINT),
                ):
                    await scene.ask(stage, router)
            await scene.until(stage, gateway, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with guarded(first_token=8) as captured:
            play(SYNC, story)
    finally:
        signal.signal(signal.SIGINT, before)
    assert scene.asked == ((1, 0) if when == "route 1" else (1, 1))
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "cancelled"
    assert attributes["stallwatch.retry.decision"] == "cancelled"
    assert "error.type" not in attributes


def test_a_run_cancelled_after_the_answer_began_ends_at_the_next_step(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    """What was read ahead of the caller is not handed out after the cancel."""
    scene.script(SILENT, [Role(), Tokens(40, 0.02), Finish(), Done()])

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router, stage.inside(stallwatch.Run()) as run:
            stream = await scene.ask(stage, router)
            run.cancel("user stop")
            with pytest.raises(stallwatch.RunCancelledError):
                await stage.step(stream)
            await scene.until(
                stage, scene.second, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst")
            )

    play(driver, story)
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"


# Retries on a route


@pytest.mark.parametrize(
    ("own", "wanted", "asked"),
    [(2, None, (1, 1)), (2, 1, (2, 1)), (0, 2, (1, 1)), (1, 2, (2, 1))],
    ids=["none by default", "one", "the client's 0 stands", "the client's 1 stands"],
)
@pytest.mark.parametrize("first", [[Status(503)], SILENT], ids=["503", "silent"])
def test_a_route_is_tried_again_as_often_as_is_said(
    scene: Scene,
    driver: Driver,
    captured: Captured,
    attempts: Any,
    own: int,
    wanted: int | None,
    asked: tuple[int, int],
    first: list[Any],
) -> None:
    scene.script(first, GOOD)
    retry: dict[str, Any] = {} if wanted is None else {"retry": stallwatch.RetryPolicy(max_retries=wanted)}

    async def story(stage: Stage) -> str:
        async with scene.router(stage, options={"max_retries": own}, **retry) as router:
            return text_of(await stage.all(await scene.ask(stage, router)))

    assert play(driver, story) == "Hello"
    assert scene.asked == asked
    roles = [attempt["attempt.role"] for attempt in attempts(captured)]
    assert roles == ["first"] + ["retry"] * (asked[0] - 1) + ["fallback"]
    assert captured.attributes()["stallwatch.attempts"] == sum(asked)


def test_a_routes_policy_counts_for_that_route(scene: Scene, driver: Driver, guarded: Any) -> None:
    """Its own limits on each, over those of the client."""
    scene.script(SILENT, [Wait(0.4), *GOOD])
    short, long = stallwatch.Policy.of(first_token=0.2), stallwatch.Policy.of(first_token=2)

    async def story(stage: Stage) -> float:
        async with scene.router(stage, route=[{"policy": short}, {"policy": long}]) as router:
            started = time.monotonic()
            assert text_of(await stage.all(await scene.ask(stage, router))) == "Hello"
            return time.monotonic() - started

    with guarded(first_token=1, connect=None):
        in_time(play(driver, story), 0.6)
    assert scene.asked == (1, 1)


@pytest.mark.parametrize("within", [CLOSE_SEEN])
def test_the_failed_routes_connection_is_closed_before_the_next_is_asked(
    scene: Scene, driver: Driver, captured: Captured, within: float
) -> None:
    scene.script(ROLE_ONLY, GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            await stage.all(await scene.ask(stage, router))

    play(driver, story)
    first, second = scene.first.ledger().requests[0], scene.second.ledger().requests[0]
    assert first.peer_closed_at is not None
    assert first.peer_closed_at - second.received_at < within
    assert captured.attributes()["stallwatch.attempts"] == 2


def test_an_error_names_the_route_whose_policy_set_the_limit(
    scene: Scene, driver: Driver, guarded: Any
) -> None:
    scene.script(SILENT, SILENT)
    short = stallwatch.Policy.of(first_token=0.2)

    async def story(stage: Stage) -> stallwatch.StreamTimeoutError:
        async with scene.router(stage, routes=1, route=[{"policy": short}]) as router:
            with pytest.raises(stallwatch.StreamTimeoutError) as caught:
                await scene.ask(stage, router)
            return caught.value

    with guarded() as captured:
        error = play(driver, story)
    assert error.set_by == "route"
    assert "the policy of the router's route" in str(error)
    assert captured.attributes()["stallwatch.policy.rule"] == "route"
