"""Races that the user ends, that the total ends, or that could not begin: no route is blamed, and none is dropped."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import stallwatch
from routing.conftest import Scene
from stallwatch.testing.steps import Headers, Role, Silence, Token, Wait
from support.drivers import SYNC, Driver
from support.stage import Stage, play
from support.telemetry import Captured

HEDGE = stallwatch.HedgePolicy(delay=0.05, max_share=1.0)
SILENT = [Headers(), Silence()]


def _hedges(captured: Captured) -> float:
    return sum(
        captured.total("stallwatch.hedges", stallwatch__hedge__result=result)
        for result in ("won", "lost", "failed", "refused")
    )


def _ended(scene: Scene, driver: Driver, guarded: Any, run: stallwatch.Run | None, **limits: Any) -> Any:
    scene.script(SILENT, SILENT)

    async def story(stage: Stage) -> BaseException:
        async with scene.router(stage, hedge=HEDGE) as router:
            if run is None:
                with pytest.raises(stallwatch.TotalTimeoutError) as caught:
                    await scene.ask(stage, router)
                return caught.value
            with pytest.raises(stallwatch.RunCancelledError) as cancelled:
                async with stage.inside(run):
                    await scene.ask(stage, router)
            return cancelled.value

    with guarded(first_token=20, **limits) as captured:
        if run is not None:
            threading.Timer(0.3, run.cancel).start()
        error = play(driver, story)
        assert scene.asked == (1, 1)
        return error, captured


def test_a_race_that_the_user_ends_is_no_failure_of_the_hedge(
    scene: Scene, driver: Driver, guarded: Any
) -> None:
    error, captured = _ended(scene, driver, guarded, stallwatch.Run())
    assert not isinstance(error.__cause__, stallwatch.EarlierRouteError)
    assert _hedges(captured) == 0
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"
    assert [event.attributes["stallwatch.attempt.number"] for event in captured.events("attempt")] in (
        [1, 2],
        [2, 1],
    )


def test_a_race_that_the_total_ends_blames_no_route(scene: Scene, driver: Driver, guarded: Any) -> None:
    error, captured = _ended(scene, driver, guarded, None, total=0.4)
    assert not isinstance(error.__cause__, stallwatch.EarlierRouteError)
    assert captured.total("stallwatch.stalls", stallwatch__stall__phase="total") == 1
    assert captured.attributes()["stallwatch.stalls"] == 1
    assert _hedges(captured) == 0


@pytest.mark.parametrize("leg", [0, 1])
def test_a_thread_that_cannot_be_had_costs_the_hedge_and_not_the_call(
    scene: Scene, captured: Captured, monkeypatch: pytest.MonkeyPatch, leg: int
) -> None:
    scene.script([Role(), Wait(0.2), Token("Hello")], [Token("other")])
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == f"stallwatch-leg-{leg}":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def story(stage: Stage) -> str:
        async with scene.router(stage, hedge=HEDGE) as router:
            chunks = await stage.all(await scene.ask(stage, router))
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    assert play(SYNC, story) == "Hello"
    assert scene.asked == (1, 0)


def test_a_share_of_one_hedges_every_call_of_a_burst() -> None:
    from stallwatch.core.hedging import HedgeShare

    share = HedgeShare(1.0)
    for _ in range(50):
        share.on_call()
    assert sum(share.take() for _ in range(50)) == 50
