"""A second route is asked beside the first when that makes no progress in time; the first progress wins."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from opentelemetry import trace

import stallwatch
from stallwatch import HedgePolicy
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
    Wait,
)
from support.bounds import LATE
from support.drivers import ASYNC, MESSAGES, Driver
from support.expect import Histogram, bare_shape, in_time
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

if TYPE_CHECKING:
    from routing.conftest import Scene

SILENT = [Headers(), Silence()]
GOOD = [Role(), EmptyDelta("content"), Token("Hel"), Token("lo"), Finish(), Done()]
SLOW = [Role(), Wait(0.3), Token("slow"), Finish(), Done()]
LASTING = [Role(), Token("Hel"), Wait(0.15), Token("lo"), Finish(), Done()]
"""A winner that lasts long enough for its loser to be told of on the same span."""
HEDGE = HedgePolicy(delay=0.1, max_share=1.0)


def text_of(chunks: list[Any]) -> str:
    return "".join(
        choice.delta.content or ""
        for chunk in chunks
        if hasattr(chunk, "choices")
        for choice in chunk.choices
    ) + "".join(
        chunk.delta for chunk in chunks if getattr(chunk, "type", None) == "response.output_text.delta"
    )


async def read(scene: Scene, stage: Stage, router: Any, **request: Any) -> str:
    return text_of(await stage.all(await scene.ask(stage, router, **request)))


# Who wins


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    "first",
    [SILENT, [RefuseHeaders()], [Role(), Silence()], [Role(), EmptyDelta("no_choices"), Silence()]],
    ids=["silent", "no headers", "role only", "empty chunks"],
)
def test_the_hedge_answers_for_a_first_route_without_progress(
    scene: Scene, driver: Driver, guarded: Any, attempts: Any, api: str, first: list[Any]
) -> None:
    scene.script(first, LASTING)

    async def story(stage: Stage) -> tuple[list[Any], float]:
        async with scene.router(stage, hedge=HEDGE) as router:
            started = time.monotonic()
            stream = await scene.ask(stage, router, api)
            took = time.monotonic() - started
            assert type(stream) is (openai.AsyncStream if stage.is_async else openai.Stream)
            answered = scene.second.ledger().requests[0].request_id
            assert stream.response.headers["x-request-id"] == answered
            return await stage.all(stream), took

    with guarded(first_token=5) as captured:
        chunks, took = play(driver, story)
        in_time(took, 0.1)
        assert text_of(chunks) == "Hello"
        assert scene.asked == (1, 1)
        attributes = captured.attributes()
        assert attributes["stallwatch.outcome"] == "completed"
        assert attributes["stallwatch.attempts"] == 2
        assert "stallwatch.stalls" not in attributes
        one, two = attempts(captured)
        assert (one["attempt.role"], one["attempt.race"], one["outcome"]) == ("first", "loser", "cancelled")
        assert one["usage_known"] is False
        assert (two["attempt.role"], two["attempt.race"], two["outcome"]) == ("hedge", "winner", "completed")
        (hedge,) = captured.events()
        assert hedge.name == "stallwatch.hedge"
        assert dict(hedge.attributes) == {"stallwatch.hedge.result": "won", "stallwatch.hedge.delay": 0.1}
        assert captured.total("stallwatch.hedges", stallwatch__hedge__result="won") == 1
        assert captured.total("stallwatch.hedges") == 1
        assert captured.total("stallwatch.stalls") == 0
        assert captured.total("stallwatch.retries") == 0
        first_token = Histogram(captured, "stallwatch.time_to_first_token")
        assert first_token.count == 1
        in_time(first_token.sum, 0.1)
        assert Histogram(captured, "gen_ai.client.operation.duration").count == 1
        assert captured.total("stallwatch.streams") == 1

    bare = driver.tell(scene.second.base_url, "m2", api=api)
    assert bare_shape(chunks) == bare_shape(bare.chunks)


def test_reasoning_is_progress(scene: Scene, driver: Driver, captured: Captured) -> None:
    scene.script([Role(), Reasoning("hm"), Wait(0.2), Token("a"), Finish(), Done()], GOOD)

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE) as router:
            return await read(scene, stage, router)

    assert play(driver, story) == "a"
    assert scene.asked == (1, 0)


def test_a_first_route_that_answers_in_time_is_alone(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    scene.script([Wait(0.05), *GOOD], GOOD)

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HedgePolicy(delay=0.3, max_share=1.0)) as router:
            return await read(scene, stage, router)

    assert play(driver, story) == "Hello"
    assert scene.asked == (1, 0)
    (attempt,) = attempts(captured)
    assert "attempt.race" not in attempt
    assert captured.total("stallwatch.hedges") == 0
    assert not captured.events()


def test_the_first_route_wins_if_it_is_faster_after_all(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    """The role of the hedge comes first, and is no progress."""
    scene.script([Wait(0.2), *LASTING], [Role(), Silence()])

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE) as router:
            return await read(scene, stage, router)

    assert play(driver, story) == "Hello"
    assert scene.asked == (1, 1)
    assert scene.second.ledger().requests[0].closed_how in ("fin", "rst")
    one, two = attempts(captured)
    assert (one["attempt.race"], two["attempt.race"]) == ("winner", "loser")
    assert captured.total("stallwatch.hedges", stallwatch__hedge__result="lost") == 1


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_whole_answers_are_hedged_too(
    scene: Scene, driver: Driver, guarded: Any, attempts: Any, api: str
) -> None:
    """Both attempts are on the span, with how the race went, although the winner has ended when it wins."""
    scene.script([RefuseHeaders()], GOOD)

    async def story(stage: Stage) -> Any:
        async with scene.router(stage, hedge=HEDGE) as router:
            answer = await scene.ask(stage, router, api, stream=False)
            await scene.until(
                stage, scene.first, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst")
            )
            return answer

    with guarded() as captured:
        answer = play(driver, story)
        kind = ChatCompletion if api == "chat" else Response
        assert type(answer) is kind
        assert captured.attributes()["stallwatch.outcome"] == "completed"
        assert captured.total("stallwatch.hedges", stallwatch__hedge__result="won") == 1
        assert Histogram(captured, "gen_ai.client.operation.duration").count == 1
        races = [attempt.get("attempt.race") for attempt in attempts(captured)]
        assert races == ["loser", "winner"]


def test_a_burst_of_an_answer_has_its_loser_on_the_span(
    scene: Scene, driver: Driver, guarded: Any, attempts: Any
) -> None:
    """The winner's stream is over as soon as it is read, and the loser is interrupted meanwhile."""
    scene.script(SILENT, GOOD)

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE) as router:
            return await read(scene, stage, router)

    with guarded(first_token=5) as captured:
        assert play(driver, story) == "Hello"
        assert [attempt.get("attempt.race") for attempt in attempts(captured)] == ["loser", "winner"]


@pytest.mark.parametrize("driver_first", [True, False], ids=["first wins or loses", "hedge"])
def test_both_answer_in_the_same_moment(
    scene: Scene, driver: Driver, captured: Captured, driver_first: bool
) -> None:
    """Fifty times: one span, one winner, and what the other had opened is closed."""
    early, late = [Wait(0.03), *LASTING[:2], Wait(0.02), Token("lo"), Finish(), Done()], LASTING
    same = [*LASTING[:2], Wait(0.02), Token("lo"), Finish(), Done()]
    scene.script(early, same if driver_first else late[:2] + same[2:])
    delay = 0.03 if driver_first else 0.029
    rounds = 25

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay=delay, max_share=1.0)) as router:
            for _ in range(rounds):
                assert await read(scene, stage, router) == "Hello"
            for gateway in scene.gateways:
                await scene.until(stage, gateway, lambda ledger: _quiet(ledger.requests))

    gc.disable()
    try:
        play(driver, story)
    finally:
        gc.enable()
    assert len(captured.spans) == rounds
    for span in captured.spans:
        assert span.attributes["stallwatch.outcome"] == "completed"
    assert captured.total("stallwatch.streams") == rounds
    assert captured.total("stallwatch.streams.active") == 0


def _quiet(requests: Any) -> bool:
    """Every answer was sent whole or its connection has gone."""
    return all(request.completed_at or request.closed_how for request in requests)


# Failures in a race


def test_the_first_fails_while_the_hedge_runs(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    scene.script([Wait(0.15), Status(503)], [Wait(0.15), *GOOD])

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE) as router:
            return await read(scene, stage, router)

    assert play(driver, story) == "Hello"
    assert scene.asked == (1, 1)
    one, two = attempts(captured)
    assert (one["outcome"], one["retry.reason"]) == ("failed", "overloaded")
    assert (two["outcome"], two["attempt.race"]) == ("completed", "winner")
    assert captured.attributes()["stallwatch.outcome"] == "completed"
    assert "error.type" not in captured.attributes()
    assert captured.total("stallwatch.hedges", stallwatch__hedge__result="won") == 1


def test_the_first_stalls_while_the_hedge_runs(scene: Scene, driver: Driver, captured: Captured) -> None:
    """The stall is on the span and in the count alike."""
    scene.script(SILENT, [Wait(0.32), *GOOD])

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE) as router:
            return await read(scene, stage, router)

    assert play(driver, story) == "Hello"
    assert scene.asked == (1, 1)
    assert len(captured.events("stall")) == 1
    assert captured.attributes()["stallwatch.stalls"] == 1
    assert captured.attributes()["stallwatch.outcome"] == "completed"


def test_the_first_fails_before_the_delay_and_the_next_is_no_hedge(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    scene.script([Status(503)], [Wait(0.2), *GOOD])

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE) as router:
            return await read(scene, stage, router)

    assert play(driver, story) == "Hello"
    assert [attempt["attempt.role"] for attempt in attempts(captured)] == ["first", "fallback"]
    assert captured.total("stallwatch.hedges") == 0


@pytest.mark.parametrize("first_last", [False, True], ids=["the hedge fails last", "the first fails last"])
def test_both_fail(scene: Scene, driver: Driver, captured: Captured, first_last: bool) -> None:
    scene.script(
        [Wait(0.3 if first_last else 0.15), Status(503)], [Wait(0.05 if first_last else 0.2), Status(429)]
    )

    async def story(stage: Stage) -> BaseException:
        async with scene.router(stage, hedge=HEDGE) as router:
            with pytest.raises(openai.APIStatusError) as caught:
                await scene.ask(stage, router)
            return caught.value

    error = play(driver, story)
    assert type(error) is (openai.InternalServerError if first_last else openai.RateLimitError)
    earlier = error.__cause__
    assert isinstance(earlier, stallwatch.EarlierRouteError)
    assert earlier.route.startswith("m2" if first_last else "m1")
    assert type(earlier.__cause__) is (openai.RateLimitError if first_last else openai.InternalServerError)
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["error.type"] == type(error).__name__
    assert captured.total("stallwatch.hedges", stallwatch__hedge__result="failed") == 1


def test_a_third_route_is_asked_when_first_and_hedge_have_failed(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    scene.first.script("m1", [Wait(0.15), Status(503)])
    scene.first.script("m2", [Wait(0.1), Status(503)])
    scene.first.script("m3", GOOD)

    async def story(stage: Stage) -> str:
        urls = [scene.first.base_url] * 3
        async with scene.router(stage, urls=urls, routes=3, route=[{}] * 3, hedge=HEDGE) as router:
            return await read(scene, stage, router)

    assert play(driver, story) == "Hello"
    assert [each["attempt.role"] for each in attempts(captured)] == ["first", "hedge", "fallback"]


@pytest.mark.parametrize("by", ["total", "run"])
def test_the_total_ends_a_race(scene: Scene, driver: Driver, guarded: Any, by: str) -> None:
    scene.script(SILENT, [RefuseHeaders()])

    async def story(stage: Stage) -> float:
        async with AsyncExitStack() as stack:
            router = await stack.enter_async_context(scene.router(stage, hedge=HEDGE))
            started = time.monotonic()
            if by == "run":
                await stack.enter_async_context(stage.inside(stallwatch.Run(total=0.4)))
            with pytest.raises(stallwatch.TotalTimeoutError):
                await scene.ask(stage, router)
            took = time.monotonic() - started
            for gateway in scene.gateways:
                await scene.until(
                    stage, gateway, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst")
                )
            return took

    with guarded(first_token=8, total=0.4 if by == "total" else 60) as captured:
        in_time(play(driver, story), 0.4)
        assert captured.attributes()["stallwatch.outcome"] == "stalled"
        assert captured.attributes()["stallwatch.stall.phase"] == "total"


def test_the_delay_counts_from_the_call_and_not_from_its_coroutine(scene: Scene, captured: Captured) -> None:
    """A coroutine may be made long before it is awaited, behind a semaphore for one."""
    scene.script([Wait(0.05), *GOOD], GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay=0.2, max_share=1.0)) as router:
            call = router.chat.completions.create(messages=MESSAGES, stream=True)
            await asyncio.sleep(0.3)
            assert text_of(await stage.all(await call)) == "Hello"

    play(ASYNC, story)
    assert scene.asked == (1, 0)


# Routes, shares, learned delays


def test_a_single_route_is_hedged_on_itself(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    scene.first.script("m1", SILENT, LASTING)

    async def story(stage: Stage) -> str:
        async with scene.router(stage, routes=1, hedge=HEDGE) as router:
            return await read(scene, stage, router)

    assert play(driver, story) == "Hello"
    assert scene.asked == (2, 0)
    assert [each["attempt.race"] for each in attempts(captured)] == ["loser", "winner"]


def test_one_client_may_serve_several_routes(scene: Scene, driver: Driver, captured: Captured) -> None:
    scene.first.script("m1", SILENT)
    scene.first.script("m2", LASTING)

    async def story(stage: Stage) -> str:
        async with stage.inside(stage.client(scene.first.base_url)) as client:
            kind = stallwatch.AsyncRouter if stage.is_async else stallwatch.Router
            routes = [stallwatch.Route(client=client, model=f"m{number}") for number in (1, 2)]
            return await read(scene, stage, kind(routes, hedge=HEDGE))

    assert play(driver, story) == "Hello"
    assert scene.asked == (2, 0)


def test_at_most_the_share_is_hedged_and_what_is_refused_is_counted(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script([Wait(0.1), *GOOD], GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay=0.005, max_share=0.1)) as router:
            for _ in range(40):
                assert await read(scene, stage, router) == "Hello"

    play(driver, story)
    assert scene.asked == (40, 4)
    assert captured.total("stallwatch.hedges", stallwatch__hedge__result="refused") == 36
    assert captured.total("stallwatch.hedges") == 40
    assert len(captured.spans) == 40


def test_a_refused_hedge_is_counted_also_when_the_call_fails(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script([Wait(0.1), Status(400)], GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay=0.01, max_share=0.01)) as router:
            with pytest.raises(openai.BadRequestError):
                await scene.ask(stage, router)

    play(driver, story)
    assert scene.asked == (1, 0)
    assert captured.total("stallwatch.hedges", stallwatch__hedge__result="refused") == 1


def test_a_percentile_is_learned_before_it_is_used(scene: Scene, driver: Driver, guarded: Any) -> None:
    quick = [Wait(0.02), *GOOD]
    scene.first.script("m1", *[quick] * 20, SILENT)
    scene.second.script("m2", LASTING)

    async def story(stage: Stage) -> float:
        async with scene.router(stage, hedge=HedgePolicy(delay="p90", max_share=1.0)) as router:
            for _ in range(20):
                await read(scene, stage, router)
            assert scene.asked == (20, 0)
            started = time.monotonic()
            stream = await scene.ask(stage, router)
            took = time.monotonic() - started
            await stage.all(stream)
            return took

    with guarded(connect=5, first_token=5, idle=5) as captured:
        took = play(driver, story)
        assert scene.asked == (21, 1)
        assert 0.015 < took < 2
        assert captured.total("stallwatch.hedges", stallwatch__hedge__result="won") == 1


@pytest.mark.parametrize("other", [{"stream": False}, {"api": "responses"}], ids=["whole", "responses"])
def test_what_was_learned_of_one_kind_of_call_is_not_used_for_another(
    scene: Scene, driver: Driver, guarded: Any, other: dict[str, Any]
) -> None:
    scene.first.script("m1", *[GOOD] * 20, [Wait(0.2), *GOOD])
    scene.second.script("m2", GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay="p90", max_share=1.0)) as router:
            for _ in range(20):
                await read(scene, stage, router)
            answer = await scene.ask(stage, router, **other)
            if "stream" not in other:
                await stage.all(answer)

    with guarded(connect=5, first_token=5, idle=5):
        play(driver, story)
    assert scene.asked == (21, 0)


def test_before_a_percentile_is_known_nothing_is_hedged(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script([Wait(0.2), *GOOD], GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay="p50", max_share=1.0)) as router:
            assert await read(scene, stage, router) == "Hello"

    play(driver, story)
    assert scene.asked == (1, 0)
    assert captured.total("stallwatch.hedges") == 0


# What is around the call


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_router_routes_in_every_mode(scene: Scene, driver: Driver, guarded: Any, mode: str) -> None:
    """The mode is the watchdog's; a hedge or a fallback was asked for by the router's user."""
    scene.script([RefuseHeaders()], GOOD)
    used: list[float] = []

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE, options={"timeout": 1.0}) as router:
            before = time.process_time()
            text = await read(scene, stage, router)
            used.append(time.process_time() - before)
            return text

    with guarded(mode=mode) as captured:
        assert play(driver, story) == "Hello"
        assert scene.asked == (1, 1)
        assert len(captured.spans) == (mode == "observe")
        # The bare calls take a few hundredths; waiting is not done by looking again and again.
        assert used[0] < 0.2


def test_clients_of_nobody_are_guarded(scene: Scene, driver: Driver) -> None:
    scene.script(SILENT, GOOD)

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE) as router:
            try:
                return await read(scene, stage, router)
            finally:
                for route in router.routes:
                    stallwatch.unguard(route.client)

    assert play(driver, story) == "Hello"
    assert scene.asked == (1, 1)


def test_a_policy_block_around_reaches_both(scene: Scene, driver: Driver, guarded: Any) -> None:
    scene.script(SILENT, SILENT)

    async def story(stage: Stage) -> float:
        async with scene.router(stage, hedge=HEDGE) as router:
            started = time.monotonic()
            with (
                stallwatch.policy(first_token=0.25),
                pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught,
            ):
                await scene.ask(stage, router)
            assert caught.value.limit == 0.25
            return time.monotonic() - started

    with guarded(first_token=8):
        in_time(play(driver, story), 0.35)


MINE: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="unset")


def test_context_variables_and_the_span_reach_both(scene: Scene, driver: Driver, guarded: Any) -> None:
    scene.script(SILENT, LASTING)
    seen: list[tuple[str, int]] = []

    def look(_: Any) -> None:
        seen.append((MINE.get(), trace.get_current_span().get_span_context().span_id))

    async def look_async(request: Any) -> None:
        look(request)

    async def story(stage: Stage, captured: Captured) -> None:
        tracer = captured.tracer_provider.get_tracer("user")
        async with scene.router(stage, hedge=HEDGE) as router:
            for route in router.routes:
                route.client._client.event_hooks = {"request": [look_async if stage.is_async else look]}
            MINE.set("from the caller")
            with tracer.start_as_current_span("outer") as outer:
                stream = await scene.ask(stage, router)
                assert trace.get_current_span() is outer
            await stage.all(stream)

    with guarded(first_token=5) as captured:
        token = MINE.set("before")
        try:
            play(driver, lambda stage: story(stage, captured))
        finally:
            MINE.reset(token)
        outer, call = sorted(captured.spans, key=lambda span: span.name != "outer")
        assert outer.name == "outer"
        assert call.parent.span_id == outer.context.span_id
        assert seen == [("from the caller", call.context.span_id)] * 2


def test_a_run_inside_a_run_bounds_the_race(scene: Scene, driver: Driver, guarded: Any) -> None:
    scene.script(SILENT, LASTING)

    async def story(stage: Stage) -> str:
        async with AsyncExitStack() as stack:
            router = await stack.enter_async_context(scene.router(stage, hedge=HEDGE))
            await stack.enter_async_context(stage.inside(stallwatch.Run(total=30, name="outer")))
            inner = await stack.enter_async_context(stage.inside(stallwatch.Run(name="inner")))
            text = await read(scene, stage, router)
            # Losing a race is nobody's cancel.
            assert not inner.cancelled
            return text

    with guarded(first_token=5) as captured:
        assert play(driver, story) == "Hello"
        attributes = captured.attributes()
        assert attributes["stallwatch.run.name"] == "inner"
        assert attributes["stallwatch.outcome"] == "completed"
        assert "stallwatch.cancel.reason" not in attributes


def test_the_winner_belongs_to_the_run_when_it_is_read(scene: Scene, driver: Driver, guarded: Any) -> None:
    scene.script(SILENT, [Role(), Token("a"), Silence()])

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            async with stage.inside(stallwatch.Run()) as run:
                stream = await scene.ask(stage, router)
                await stage.take(stream, 2)
                timer = threading.Timer(0.1, run.cancel, ("user stop",))
                timer.start()
                started = time.monotonic()
                with pytest.raises(stallwatch.RunCancelledError) as caught:
                    await stage.all(stream)
                assert time.monotonic() - started < 0.1 + LATE
                assert caught.value.reason == "user stop"
            timer.join()
            await scene.until(
                stage, scene.second, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst")
            )

    with guarded(first_token=5, idle=5) as captured:
        play(driver, story)
        assert captured.attributes()["stallwatch.outcome"] == "cancelled"


def test_many_races_at_once(scene: Scene, driver: Driver, guarded: Any) -> None:
    """As many as the share ever saves up."""
    scene.script(SILENT, LASTING)
    texts: list[str] = []

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            if stage.is_async:
                texts.extend(await asyncio.gather(*(read(scene, stage, router) for _ in range(10))))
                return

            def call() -> None:
                texts.append(text_of(list(router.chat.completions.create(messages=[], stream=True))))

            threads = [threading.Thread(target=call) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)

    with guarded(first_token=8) as captured:
        play(driver, story)
        assert texts == ["Hello"] * 10
        assert scene.asked == (10, 10)
        assert len(captured.spans) == 10
        for span in captured.spans:
            numbers = [
                event.attributes["stallwatch.attempt.number"]
                for event in span.events
                if event.name == "stallwatch.attempt"
            ]
            assert sorted(numbers) == [1, 2]


def test_a_healthy_answer_of_a_router_costs_no_thread(scene: Scene, driver: Driver) -> None:
    """Without a hedge a leg runs where the caller is."""
    scene.script(GOOD, GOOD)
    seen: list[int | None] = []

    def look(_: Any) -> None:
        seen.append(threading.get_ident())

    async def look_async(request: Any) -> None:
        look(request)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            router.routes[0].client._client.event_hooks = {
                "request": [look_async if stage.is_async else look]
            }
            await read(scene, stage, router)

    with instrumented():
        play(driver, story)
    assert seen == [threading.get_ident()]


def test_a_long_wait_of_tokens_after_the_race_is_the_winners_own(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    """After the race the idle clock is that of the route that answered."""
    scene.script(SILENT, [Role(), Tokens(2), Silence()])

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            stream = await scene.ask(stage, router)
            await stage.sleep(0.3)
            with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
                await stage.all(stream)
            assert caught.value.phase == "idle"
            assert caught.value.__cause__ is None or not isinstance(
                caught.value.__cause__, stallwatch.EarlierRouteError
            )

    play(driver, story)
    assert captured.attributes()["stallwatch.retry.decision"] == "partial_output"
