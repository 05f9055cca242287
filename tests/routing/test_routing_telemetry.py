"""One call over several routes is one span and one sample of each metric, whatever became of its attempts."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import openai
import pytest
from opentelemetry.trace import StatusCode

import stallwatch
from stallwatch import HedgePolicy
from stallwatch.testing import (
    Done,
    Finish,
    Headers,
    Reset,
    Role,
    Silence,
    Status,
    Token,
    Tokens,
    Usage,
    Wait,
)
from support.drivers import ASYNC, Driver
from support.expect import Histogram, in_time
from support.stage import Stage, play
from support.telemetry import Captured

if TYPE_CHECKING:
    from routing.conftest import Scene

SILENT = [Headers(), Silence()]
GOOD = [Role(), Token("Hel"), Wait(0.1), Token("lo"), Finish(), Usage(completion_tokens=7), Done()]
HEDGE = HedgePolicy(delay=0.1, max_share=1.0)


async def whole(scene: Scene, stage: Stage, router: Any, **request: Any) -> None:
    await stage.all(await scene.ask(stage, router, **request))


ROUTED: list[tuple[str, Any, dict[str, Any], list[str]]] = [
    ("answered at once", GOOD, {}, ["first"]),
    ("after a stall", SILENT, {}, ["first", "fallback"]),
    ("after a 503", [Status(503)], {}, ["first", "fallback"]),
    ("after a reset", [Reset()], {}, ["first", "fallback"]),
    ("after a hedge", SILENT, {"hedge": HEDGE}, ["first", "hedge"]),
]


@pytest.mark.parametrize(
    ("first", "settings", "roles"), [row[1:] for row in ROUTED], ids=[row[0] for row in ROUTED]
)
def test_a_routed_call_is_one_call(
    scene: Scene,
    driver: Driver,
    captured: Captured,
    attempts: Any,
    first: Any,
    settings: Any,
    roles: list[str],
) -> None:
    scene.script(first, GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, **settings) as router:
            await whole(scene, stage, router)

    play(driver, story)
    span, attributes = captured.span, captured.attributes()
    assert span.name == "chat m1"
    assert span.status.status_code is StatusCode.UNSET
    assert attributes["stallwatch.outcome"] == "completed"
    assert attributes["stallwatch.attempts"] == len(roles)
    told = attempts(captured)
    assert [attempt["attempt.role"] for attempt in told] == roles
    assert [attempt["attempt.number"] for attempt in told] == list(range(1, len(roles) + 1))
    assert [attempt["gen_ai.request.model"] for attempt in told] == ["m1", "m2"][: len(roles)]
    ports = [scene.first.port, scene.second.port][: len(roles)]
    assert [attempt["server.port"] for attempt in told] == ports
    answered = (scene.first if len(roles) == 1 else scene.second).ledger().requests[0].request_id
    assert answered in attributes.values()
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.usage.output_tokens"] == 7

    assert Histogram(captured, "gen_ai.client.operation.duration").count == 1
    assert Histogram(captured, "gen_ai.client.operation.duration", error__type="x").count == 0
    assert Histogram(captured, "stallwatch.time_to_first_token").count == 1
    assert Histogram(captured, "gen_ai.client.operation.time_to_first_chunk").count == 1
    assert Histogram(captured, "gen_ai.client.token.usage", gen_ai__token__type="output").sum == 7
    assert captured.total("stallwatch.streams") == 1
    assert captured.total("stallwatch.streams", stallwatch__outcome="completed") == 1
    assert captured.total("stallwatch.streams.active") == 0
    assert captured.total("stallwatch.attempt.duration") == len(roles)
    assert captured.total("stallwatch.retries") == (roles[-1] == "fallback")
    assert captured.total("stallwatch.hedges") == (roles[-1] == "hedge")


def test_the_first_gap_of_the_answer_is_not_the_failed_routes_wait(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    """What was waited for in vain is time to first token, and no gap between chunks."""
    scene.script(SILENT, GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            await whole(scene, stage, router)

    play(driver, story)
    gaps = Histogram(captured, "gen_ai.client.operation.time_per_output_chunk")
    assert gaps.max < 0.25
    first_token = Histogram(captured, "stallwatch.time_to_first_token")
    in_time(first_token.sum, 0.35)


def test_the_fatal_gap_of_a_failed_route_is_in_the_picture(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script(SILENT, GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            await whole(scene, stage, router)

    play(driver, story)
    wait = Histogram(captured, "stallwatch.stall.wait", stallwatch__stall__phase="first_token")
    assert wait.count == 1
    in_time(wait.sum, 0.35)
    assert captured.attributes()["stallwatch.stall.phase"] == "first_token"
    longest = Histogram(captured, "stallwatch.stream.longest_gap")
    assert longest.count == 1
    assert longest.max >= 0.33


def test_a_call_on_which_all_routes_fail_is_one_failure(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    scene.script([Status(503)], [Status(529)])

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            with pytest.raises(openai.InternalServerError):
                await whole(scene, stage, router)

    play(driver, story)
    span, attributes = captured.span, captured.attributes()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes["error.type"] == "InternalServerError"
    assert attributes["http.response.status_code"] == 529
    assert attributes["stallwatch.retry.decision"] == "exhausted"
    one, two = attempts(captured)
    assert (one["http.response.status_code"], one["retry.decision"]) == (503, "fallback")
    assert (two["http.response.status_code"], two["retry.decision"]) == (529, "exhausted")
    assert captured.total("stallwatch.streams") == 1
    assert captured.total("stallwatch.streams", stallwatch__outcome="failed") == 1
    assert (
        Histogram(captured, "gen_ai.client.operation.duration", error__type="InternalServerError").count == 1
    )


def test_the_metrics_of_a_call_carry_the_model_that_answered(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script([Status(503)], GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            await whole(scene, stage, router)

    play(driver, story)
    assert captured.total("stallwatch.streams", gen_ai__request__model="m2") == 1
    assert captured.total("stallwatch.streams", gen_ai__request__model="m1") == 0
    assert captured.total("stallwatch.attempt.duration", gen_ai__request__model="m1") == 1
    assert captured.total("stallwatch.attempt.duration", gen_ai__request__model="m2") == 1
    assert captured.total("stallwatch.retries", gen_ai__request__model="m1") == 1


def test_a_named_route_is_called_by_its_name(scene: Scene, driver: Driver, captured: Captured) -> None:
    scene.script([Status(503)], GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, route=[{"name": "east"}, {"name": "west"}]) as router:
            await whole(scene, stage, router)

    play(driver, story)
    (event,) = captured.events("fallback")
    assert event.attributes["stallwatch.fallback.from"] == "east"
    assert event.attributes["stallwatch.fallback.to"] == "west"


def test_the_upstreams_own_error_stays_on_the_span(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    scene.script([Status(503)], GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            await whole(scene, stage, router)

    play(driver, story)
    one, _ = attempts(captured)
    assert one["http.response.status_code"] == 503
    assert one["retry.kind"] == "capacity"
    assert scene.first.ledger().requests[0].request_id in one.values()
    # How the call ended is another matter.
    assert "error.type" not in captured.attributes()
    assert captured.attributes().get("http.response.status_code") in (None, 200)


@pytest.mark.parametrize("left", ["closed", "read"])
def test_a_hedged_call_that_is_left_is_told_once(
    scene: Scene, driver: Driver, guarded: Any, left: str
) -> None:
    scene.script(SILENT, [Role(), Tokens(30, 0.02), Finish(), Done()])

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            stream = await scene.ask(stage, router)
            if left == "closed":
                await stage.take(stream, 3)
                await stage.close(stream)
            else:
                await stage.all(stream)
            for gateway in scene.gateways[: 1 if left == "read" else 2]:
                await scene.until(
                    stage, gateway, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst")
                )

    with guarded(first_token=8) as captured:
        play(driver, story)
        expected = "closed_early" if left == "closed" else "completed"
        assert captured.attributes()["stallwatch.outcome"] == expected
        assert captured.total("stallwatch.streams") == captured.total(
            "stallwatch.streams", stallwatch__outcome=expected
        )
        assert Histogram(captured, "gen_ai.client.operation.duration").count == 1


def test_open_streams_are_counted_once_while_they_are_read(
    scene: Scene, driver: Driver, guarded: Any
) -> None:
    scene.script(SILENT, [Role(), Tokens(30, 0.02), Finish(), Done()])

    async def story(stage: Stage, captured: Captured) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            stream = await scene.ask(stage, router)
            await scene.until(
                stage, scene.first, lambda ledger: ledger.requests[0].closed_how in ("fin", "rst")
            )
            deadline = time.monotonic() + 1
            while captured.total("stallwatch.streams.active") != 1 and time.monotonic() < deadline:
                await stage.sleep(0.01)
            assert captured.total("stallwatch.streams.active") == 1
            await stage.all(stream)
            assert captured.total("stallwatch.streams.active") == 0

    with guarded(first_token=8) as captured:
        play(driver, lambda stage: story(stage, captured))


def test_routed_calls_are_children_of_the_callers_span(scene: Scene, driver: Driver, guarded: Any) -> None:
    scene.script([Status(503)], GOOD)

    async def story(stage: Stage, captured: Captured) -> None:
        tracer = captured.tracer_provider.get_tracer("user")
        async with scene.router(stage) as router:
            with tracer.start_as_current_span("outer"):
                await whole(scene, stage, router)

    with guarded() as captured:
        play(driver, lambda stage: story(stage, captured))
        call, outer = captured.spans
        assert call.parent is not None
        assert call.parent.span_id == outer.context.span_id


def test_a_call_in_a_hook_of_the_second_route_is_a_call_of_its_own(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    """Its span is no part of the race, and is not waited for by anybody."""
    scene.script([Status(503)], GOOD)
    scene.first.script("side", GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router, stage.inside(stage.client(scene.first.base_url)) as side:

            def hook(_: Any) -> None:
                side.chat.completions.create(model="side", messages=[])

            async def hook_async(_: Any) -> None:
                await side.chat.completions.create(model="side", messages=[])

            router.routes[1].client._client.event_hooks = {
                "request": [hook_async if stage.is_async else hook]
            }
            await whole(scene, stage, router)

    play(driver, story)
    own, call = sorted(captured.spans, key=lambda span: span.name != "chat side")
    assert own.name == "chat side"
    assert own.attributes["stallwatch.outcome"] == "completed"
    assert call.attributes["stallwatch.attempts"] == 2


def test_nothing_of_a_loser_is_never_retrieved(scene: Scene, guarded: Any) -> None:
    """The loser fails by itself in the moment it is cancelled."""
    scene.script([Wait(0.12), Status(503)], [Wait(0.02), Role(), Token("a"), Finish(), Done()])
    told: list[dict[str, Any]] = []

    async def story(stage: Stage) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with scene.router(stage, hedge=HEDGE) as router:
            for _ in range(20):
                await whole(scene, stage, router)

    with guarded(first_token=8) as captured:
        play(ASYNC, story)
        assert not told
        assert len(captured.spans) == 20


def test_sharing_a_budget_in_a_run_is_told_by_its_name(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script([Status(503)], GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router, stage.inside(stallwatch.Run(total=30, name="answer")):
            await whole(scene, stage, router)

    play(driver, story)
    assert captured.attributes()["stallwatch.run.name"] == "answer"
