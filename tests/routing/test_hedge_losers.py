"""Only the loser is interrupted, wherever it stands; a user's cancel ends both legs."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import openai
import pytest

import stallwatch
from stallwatch import HedgePolicy
from stallwatch.testing import (
    Comments,
    Done,
    Finish,
    Headers,
    RefuseHeaders,
    Role,
    Silence,
    Status,
    Token,
    Usage,
    Wait,
    mute_server,
    unaccepting_server,
)
from support import leaks
from support.bounds import CLOSE_SEEN, LATE
from support.connects import http
from support.drivers import ASYNC, SYNC, Driver
from support.stage import Stage, play

if TYPE_CHECKING:
    from routing.conftest import Scene

SILENT = [Headers(), Silence()]
WINNER = [Role(), Token("Hel"), Wait(0.15), Token("lo"), Finish(), Usage(), Done()]
HEDGE = HedgePolicy(delay=0.1, max_share=1.0)
LONG: dict[str, Any] = {"connect": 8, "first_token": 8, "idle": 8, "total": 8}
"""Limits that end nothing here: what ends a loser is the race."""


def gone(ledger: Any) -> bool:
    return ledger.requests[0].closed_how in ("fin", "rst")


def text_of(chunks: list[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


STANDING: list[tuple[str, list[Any]]] = [
    ("before the headers", [RefuseHeaders()]),
    ("before the first token", SILENT),
    ("after the role", [Role(), Silence()]),
    ("while comments arrive", [Role(), Comments(0.02)]),
]


@pytest.mark.parametrize("first", [row[1] for row in STANDING], ids=[row[0] for row in STANDING])
def test_the_losers_connection_is_closed_at_once(
    scene: Scene, driver: Driver, guarded: Any, attempts: Any, first: list[Any]
) -> None:
    scene.script(first, WINNER)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            stream = await scene.ask(stage, router)
            won = time.monotonic()
            await scene.until(stage, scene.first, gone)
            assert time.monotonic() - won < CLOSE_SEEN
            assert scene.second.ledger().requests[0].closed_how is None
            assert text_of(await stage.all(stream)) == "Hello"

    with guarded(**LONG) as captured:
        play(driver, story)
        loser, winner = attempts(captured)
        assert (loser["attempt.race"], loser["outcome"], loser["usage_known"]) == (
            "loser",
            "cancelled",
            False,
        )
        assert (winner["attempt.race"], winner["outcome"], winner["usage_known"]) == (
            "winner",
            "completed",
            True,
        )
        assert captured.attributes()["stallwatch.outcome"] == "completed"
        assert captured.attributes()["stallwatch.usage_known"] is True
        assert "error.type" not in captured.attributes()
        assert "stallwatch.cancel.reason" not in captured.attributes()
        assert not captured.events("stall", "fallback")
        assert captured.total("stallwatch.stalls") == 0


def test_a_loser_of_a_whole_answer_is_interrupted_although_nothing_is_streamed(
    scene: Scene, driver: Driver, guarded: Any
) -> None:
    """The helper thread need not have been started by a stream before."""
    leaks.sweeper_has_ended()
    scene.script([RefuseHeaders()], WINNER)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            answer = await scene.ask(stage, router, stream=False)
            assert answer.choices[0].message.content == "Hello"
            won = time.monotonic()
            await scene.until(stage, scene.first, gone)
            assert time.monotonic() - won < CLOSE_SEEN

    with guarded(**{**LONG, "total": 4}) as captured:
        play(driver, story)
        assert captured.attributes()["stallwatch.outcome"] == "completed"


@pytest.mark.parametrize("where", ["in a connect", "in TLS", "in the pool"])
def test_a_loser_without_a_connection_is_let_go(
    scene: Scene, driver: Driver, guarded: Any, where: str
) -> None:
    if where == "in TLS" and driver.is_async:
        pytest.skip("a handshake that is cancelled keeps its socket open also with the bare SDK")
    scene.script(SILENT, WINNER)

    async def story(stage: Stage) -> None:
        async with AsyncExitStack() as stack:
            urls, options, held = [scene.first.base_url, scene.second.base_url], {}, None
            if where == "in a connect":
                urls[0] = stack.enter_context(unaccepting_server()).base_url
            elif where == "in TLS":
                urls[0] = stack.enter_context(mute_server()).tls_base_url
            else:
                kind = http.AsyncClient if stage.is_async else http.Client
                options = {"http_client": kind(limits=http.Limits(max_connections=1), timeout=60)}
            router = await stack.enter_async_context(scene.router(stage, urls=urls, hedge=HEDGE))
            if options:
                narrow = await stack.enter_async_context(
                    stage.inside(stage.client(scene.first.base_url, **options))
                )
                held = await stage.chat(narrow, "m1")
                router = type(router)(
                    [stallwatch.Route(client=narrow, model="m1"), router.routes[1]], hedge=HEDGE
                )
            stream = await scene.ask(stage, router)
            won = time.monotonic()
            assert text_of(await stage.all(stream)) == "Hello"
            if held is not None:
                await stage.close(held)
            while _legs() and time.monotonic() - won < CLOSE_SEEN:
                await stage.sleep(0.01)
            assert not _legs()

    with guarded(**LONG) as captured:
        play(driver, story)
        span = next(span for span in captured.spans if span.attributes["stallwatch.attempts"] == 2)
        assert span.attributes["stallwatch.outcome"] == "completed"
        assert captured.total("stallwatch.stalls") == 0


def _legs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("stallwatch-leg")]


def test_a_loser_in_a_back_off_sends_no_further_request(scene: Scene, driver: Driver, guarded: Any) -> None:
    scene.first.script("m1", [Status(503, retry_after="3")], SILENT)
    scene.second.script("m2", WINNER)
    retry = stallwatch.RetryPolicy(max_retries=1)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE, retry=retry, options={"max_retries": 1}) as router:
            stream = await scene.ask(stage, router)
            won = time.monotonic()
            assert text_of(await stage.all(stream)) == "Hello"
            while _legs() and time.monotonic() - won < CLOSE_SEEN:
                await stage.sleep(0.01)
            assert not _legs()

    with guarded(**LONG) as captured:
        play(driver, story)
        assert scene.asked == (1, 1)
        assert captured.attributes()["stallwatch.outcome"] == "completed"


def test_a_hedge_that_loses_before_it_has_sent_anything_sends_nothing(
    scene: Scene, driver: Driver, guarded: Any, attempts: Any
) -> None:
    """Its own hook holds it up until the first route has answered."""
    scene.script([Wait(0.2), *WINNER], SILENT)

    def hold(_: Any) -> None:
        time.sleep(0.2)

    async def hold_async(_: Any) -> None:
        await asyncio.sleep(0.2)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            hooks = [hold_async if stage.is_async else hold]
            router.routes[1].client._client.event_hooks = {"request": hooks}
            stream = await scene.ask(stage, router)
            assert text_of(await stage.all(stream)) == "Hello"
            await stage.sleep(0.1)

    with guarded(**LONG) as captured:
        play(driver, story)
        assert captured.attributes()["stallwatch.outcome"] == "completed"
        if scene.asked[1]:
            scene.second.wait_for(gone, CLOSE_SEEN)


# The user's cancel ends both


def arrived(ledger: Any) -> Any:
    """Whether the second gateway has got the hedge, so that both legs wait."""
    return ledger.requests[0].received_at


BOTH: list[tuple[str, list[Any], list[Any]]] = [
    ("before the headers", [RefuseHeaders()], [RefuseHeaders()]),
    ("before the first token", SILENT, SILENT),
    ("after the role", [Role(), Silence()], [Role(), Silence()]),
]


async def _both_gone(scene: Scene, stage: Stage, since: float) -> None:
    for gateway in scene.gateways:
        await scene.until(stage, gateway, gone)
    assert time.monotonic() - since < CLOSE_SEEN


@pytest.mark.parametrize(("first", "second"), [row[1:] for row in BOTH], ids=[row[0] for row in BOTH])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_cancelled_run_ends_both_legs(
    scene: Scene, driver: Driver, guarded: Any, meanwhile: Any, first: Any, second: Any, stream: bool
) -> None:
    if not stream and first is not BOTH[0][1]:
        pytest.skip("a whole answer has no other place to stand in")
    if not stream:
        leaks.sweeper_has_ended()
    scene.script(first, second)
    run = stallwatch.Run()
    at: list[float] = []

    def cancel() -> None:
        time.sleep(0.02)
        at.append(time.monotonic())
        run.cancel("user stop")

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            async with meanwhile(stage, scene.second, arrived, cancel), stage.inside(run):
                with pytest.raises(stallwatch.RunCancelledError) as caught:
                    await scene.ask(stage, router, stream=stream)
                assert time.monotonic() - at[0] < LATE
                assert caught.value.reason == "user stop"
            await _both_gone(scene, stage, at[0])

    with guarded(**LONG) as captured:
        play(driver, story)
        attributes = captured.attributes()
        assert attributes["stallwatch.outcome"] == "cancelled"
        assert attributes["stallwatch.cancel.reason"] == "user stop"
        assert "error.type" not in attributes
        assert scene.asked == (1, 1)


@pytest.mark.parametrize(("first", "second"), [row[1:] for row in BOTH], ids=[row[0] for row in BOTH])
@pytest.mark.parametrize("how", ["task.cancel", "asyncio.timeout", "anyio scope", "cancelled twice"])
def test_a_cancelled_task_ends_both_legs(
    scene: Scene, guarded: Any, first: Any, second: Any, how: str
) -> None:
    scene.script(first, second)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            if how == "asyncio.timeout":
                with pytest.raises(TimeoutError) as timed:
                    async with asyncio.timeout(0.5):
                        await scene.ask(stage, router)
                assert not isinstance(timed.value, openai.OpenAIError)
            elif how == "anyio scope":
                # As web frameworks cancel: again in every turn of the loop, for as long as anybody waits inside.
                with anyio.move_on_after(0.5) as scope:
                    await scene.ask(stage, router)
                assert scope.cancelled_caught
            else:
                task = asyncio.create_task(scene.ask(stage, router))
                await scene.second.wait_for_async(arrived)
                await asyncio.sleep(0.02)
                task.cancel()
                if how == "cancelled twice":
                    await asyncio.sleep(0)
                    task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert task.cancelled()
            await _both_gone(scene, stage, time.monotonic())

    with guarded(**LONG) as captured:
        play(ASYNC, story)
        attributes = captured.attributes()
        assert attributes["stallwatch.outcome"] == "cancelled"
        assert "error.type" not in attributes
        assert captured.total("stallwatch.streams", stallwatch__outcome="cancelled") == 1


def test_a_cancel_while_the_hedge_runs_after_the_first_has_failed(scene: Scene, guarded: Any) -> None:
    scene.script([Wait(0.15), Status(503)], SILENT)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            task = asyncio.create_task(scene.ask(stage, router))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await stage.of(scene.second.wait_for_async(gone))

    with guarded(**LONG) as captured:
        play(ASYNC, story)
        assert captured.attributes()["stallwatch.outcome"] == "cancelled"
        assert "error.type" not in captured.attributes()


@pytest.mark.parametrize(("first", "second"), [row[1:] for row in BOTH], ids=[row[0] for row in BOTH])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_ctrl_c_ends_both_legs(
    scene: Scene, guarded: Any, meanwhile: Any, first: Any, second: Any, stream: bool
) -> None:
    if not stream and first is not BOTH[0][1]:
        pytest.skip("a whole answer has no other place to stand in")
    scene.script(first, second)
    main = threading.main_thread().ident
    assert main is not None
    at: list[float] = []

    def interrupt() -> None:
        time.sleep(0.05)
        at.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGINT)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            with pytest.raises(KeyboardInterrupt):
                async with meanwhile(stage, scene.second, arrived, interrupt):
                    await scene.ask(stage, router, stream=stream)
            await _both_gone(scene, stage, at[0])

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with guarded(**LONG) as captured:
            play(SYNC, story)
    finally:
        signal.signal(signal.SIGINT, before)
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "cancelled"
    assert "error.type" not in attributes
    leaks.wait_until(lambda: not _legs(), _legs)


def test_ctrl_c_while_the_hedge_runs_after_the_first_has_failed(
    scene: Scene, guarded: Any, meanwhile: Any
) -> None:
    scene.script([Wait(0.15), Status(503)], SILENT)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        time.sleep(0.2)
        signal.pthread_kill(main, signal.SIGINT)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HEDGE) as router:
            with pytest.raises(KeyboardInterrupt):
                async with meanwhile(stage, scene.second, arrived, interrupt):
                    await scene.ask(stage, router)
            await scene.until(stage, scene.second, gone)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with guarded(**LONG) as captured:
            play(SYNC, story)
    finally:
        signal.signal(signal.SIGINT, before)
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"


def test_losers_give_their_connections_back_to_nobody(scene: Scene, driver: Driver, guarded: Any) -> None:
    """Twenty races over pools of two connections: none is left taken by a loser."""
    scene.script([RefuseHeaders()], WINNER[:2] + WINNER[3:])

    async def story(stage: Stage) -> None:
        kind = http.AsyncClient if stage.is_async else http.Client
        async with AsyncExitStack() as stack:
            made = []
            for number, gateway in enumerate(scene.gateways, 1):
                narrow = kind(limits=http.Limits(max_connections=2), timeout=60)
                client = stage.client(gateway.base_url, http_client=narrow)
                await stack.enter_async_context(stage.inside(client))
                made.append(stallwatch.Route(client=client, model=f"m{number}"))
            router = (stallwatch.AsyncRouter if stage.is_async else stallwatch.Router)(
                made, hedge=HedgePolicy(delay=0.02, max_share=1.0)
            )
            for _ in range(20):
                assert text_of(await stage.all(await scene.ask(stage, router))) == "Hello"

    with guarded(**LONG) as captured:
        play(driver, story)
        assert scene.asked[1] == 20
        assert captured.total("stallwatch.hedges", stallwatch__hedge__result="won") == 20


def test_thirty_cancelled_races_keep_no_connection(scene: Scene, guarded: Any) -> None:
    """A leg that is woken by the cancel is not cancelled once more while its connection is being closed."""
    scene.script([RefuseHeaders()], [RefuseHeaders()])

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay=0.02, max_share=1.0)) as router:
            for number in range(30):
                run = stallwatch.Run()

                async def cancel(number: int = number, run: stallwatch.Run = run) -> None:
                    await scene.second.wait_for_async(lambda ledger: ledger.requests[number].received_at)
                    # The loop stands still meanwhile, so that both legs are woken in one turn of it.
                    time.sleep(0.02)
                    run.cancel("user stop")

                canceller = asyncio.create_task(cancel())
                async with run:
                    with pytest.raises(stallwatch.RunCancelledError):
                        await scene.ask(stage, router)
                await canceller
            for gateway in scene.gateways:
                await gateway.wait_for_async(
                    lambda ledger: all(request.closed_how for request in ledger.requests), CLOSE_SEEN
                )

    with guarded(**LONG) as captured:
        play(ASYNC, story)
        assert len(captured.spans) == 30
