"""Runs form a tree: a cancel reaches all that is inside, and the nearest deadline counts."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from typing import Any

import pytest

import stallwatch
from runs.standstills import GOOD, PATIENT
from stallwatch.run import Run, current_run
from stallwatch.testing import FaultGateway, Headers, RefuseHeaders, Role, Silence, Status, Token
from support.bounds import CLOSE_SEEN, LATE
from support.drivers import Driver
from support.expect import in_time, timeout_error
from support.leaks import wait_until
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

TOTAL = 0.4


@pytest.mark.parametrize(
    ("outer", "inner", "nearest"),
    [(None, None, None), (5, None, 5), (None, 3, 3), (5, 3, 3), (3, 5, 3), (4, 4, 4)],
)
def test_the_nearest_deadline_counts(
    outer: Any, inner: Any, nearest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallwatch.run.monotonic", lambda: 100.0)
    with Run(total=outer) as around:
        with Run(total=inner) as run:
            assert run.remaining() == nearest
        assert around.remaining() == outer


def test_a_cancel_goes_inwards_and_not_outwards() -> None:
    with Run() as outer, Run() as middle, Run() as inner:
        middle.cancel("middle")
        assert [run.cancelled for run in (outer, middle, inner)] == [False, True, True]
        assert inner.reason == "middle"
        with pytest.raises(stallwatch.RunCancelledError, match="middle"):
            inner.raise_if_cancelled()
        outer.raise_if_cancelled()


def test_the_outermost_cancelled_run_gives_the_reason() -> None:
    with Run() as outer, Run() as inner:
        inner.cancel("inner")
        assert inner.reason == "inner"
        outer.cancel("outer")
        assert inner.reason == "outer"


def test_siblings_are_left_alone() -> None:
    with Run() as outer:
        with Run() as first:
            first.cancel("first")
        with Run() as second:
            assert not second.cancelled
        assert not outer.cancelled


def test_an_outer_run_does_not_keep_its_inner_ones() -> None:
    with Run():
        with Run() as inner:
            gone = weakref.ref(inner)
        del inner
        gc.collect()
        assert gone() is None


def test_a_run_in_a_bound_thread_is_inside() -> None:
    seen: list[Any] = []

    def work() -> None:
        with Run() as inner:
            seen.append((inner.cancelled, inner.reason, current_run() is inner))

    with Run() as outer:
        outer.cancel("out")
        thread = threading.Thread(target=outer.bind(work))
        thread.start()
        thread.join()
    assert seen == [(True, "out", True)]


@pytest.mark.parametrize("which", ["outer", "inner"])
def test_a_call_is_cancelled_by_any_run_around_it(gateway: FaultGateway, driver: Driver, which: str) -> None:
    gateway.script("m", [RefuseHeaders()], GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            with Run(name="outer") as outer:
                with pytest.raises(stallwatch.RunCancelledError) as caught, Run(name="inner") as inner:
                    named = {"outer": outer, "inner": inner}
                    thread = threading.Thread(target=_cancel, args=(gateway, named[which]))
                    thread.start()
                    try:
                        await stage.chat(client, "m")
                    finally:
                        thread.join()
                assert caught.value.reason == "stop"
                if which == "inner":
                    assert len(await stage.all(await stage.chat(client, "m"))) == 4
                else:
                    with pytest.raises(stallwatch.RunCancelledError):
                        await stage.chat(client, "m")

    with instrumented(**PATIENT) as captured:
        play(driver, story)
    assert len(gateway.ledger().requests) == (2 if which == "inner" else 1)
    first, second = captured.spans
    assert (first.attributes or {})["stallwatch.run.name"] == "inner"
    assert (second.attributes or {})["stallwatch.run.name"] == "outer"


def _cancel(gateway: FaultGateway, run: Run) -> None:
    gateway.wait_for(lambda ledger: ledger.requests)
    run.cancel("stop")


PLAYED = [
    ("before headers", [RefuseHeaders()]),
    ("first token", [Headers(), Silence()]),
    ("mid-answer", [Role(), Token("a"), Silence()]),
    ("the SDK's back-off", [Status(503, retry_after="30")]),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("played", [row[1] for row in PLAYED], ids=[row[0] for row in PLAYED])
def test_the_total_of_a_run_is_wall_clock_and_names_itself(
    gateway: FaultGateway, driver: Driver, played: list[Any], stream: bool
) -> None:
    gateway.script("m", played)
    told: list[Any] = []

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            began = time.monotonic()
            with pytest.raises(Exception) as caught, Run(total=TOTAL):
                answer = await stage.chat(client, "m", stream=stream)
                if stream:
                    await stage.all(answer)
            told.extend((caught.value, time.monotonic() - began))

    with instrumented(**PATIENT) as captured:
        play(driver, story)
    error, took = told
    if isinstance(played[0], Status):
        # The server's wait would not end before the total: the error comes at once, as it is.
        assert type(error).__name__ == "InternalServerError"
        assert took < TOTAL
        assert captured.attributes()["stallwatch.retry.decision"] == "deadline"
        return
    assert isinstance(error, stallwatch.TotalTimeoutError), repr(error)
    assert (error.phase, error.limit, error.set_by) == ("total", TOTAL, "run")
    assert "stallwatch.Run(total=...)" in str(error)
    in_time(took, TOTAL)
    assert len(gateway.ledger().requests) == 1
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "stalled"
    assert attributes["stallwatch.stall.phase"] == "total"
    assert attributes["stallwatch.stall.limit"] == TOTAL


def test_the_shorter_total_of_two_ends_the_call(gateway: FaultGateway, driver: Driver) -> None:
    gateway.script("m", [Headers(), Silence()])
    errors: list[Any] = []

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            for outer, inner in ((0.3, 30), (30, 0.3)):
                with (
                    pytest.raises(stallwatch.TotalTimeoutError) as caught,
                    Run(total=outer),
                    Run(total=inner),
                ):
                    await stage.all(await stage.chat(client, "m"))
                errors.append(caught.value)

    with instrumented(**PATIENT):
        play(driver, story)
    assert [(error.limit, error.set_by) for error in errors] == [(0.3, "run"), (0.3, "run")]


def test_the_policys_own_total_counts_where_it_is_nearer(gateway: FaultGateway, driver: Driver) -> None:
    gateway.script("m", [Headers(), Silence()])
    errors: list[Any] = []

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            with pytest.raises(stallwatch.TotalTimeoutError) as caught, Run(total=30):
                await stage.all(await stage.chat(client, "m"))
            errors.append(caught.value)

    with instrumented(**{**PATIENT, "total": TOTAL}):
        play(driver, story)
    timeout_error(errors[0], phase="total", limit=TOTAL, wire=None)
    assert errors[0].set_by == "code"


def test_a_spent_total_starts_no_call_and_ends_the_ones_that_wait(
    gateway: FaultGateway, driver: Driver
) -> None:
    """The caller's own pause is charged, other than to the total of a policy."""
    gateway.script("m", [Role(), Token("a"), Silence()])

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            with Run(total=0.2) as run:
                stream = await stage.chat(client, "m")
                assert len(await stage.take(stream, 2)) == 2
                await stage.sleep(0.25)
                assert run.remaining() == 0.0
                began = time.monotonic()
                with pytest.raises(stallwatch.TotalTimeoutError):
                    await stage.step(stream)
                with pytest.raises(stallwatch.TotalTimeoutError):
                    await stage.chat(client, "m")
                assert time.monotonic() - began <= LATE
                await stage.closed(gateway, CLOSE_SEEN)

    with instrumented(**PATIENT):
        play(driver, story)
    assert len(gateway.ledger().requests) == 1


def test_calls_made_after_the_block_do_not_belong_and_streams_read_after_it_do(
    gateway: FaultGateway, driver: Driver
) -> None:
    gateway.script("m", [Role(), Token("a"), Silence()])

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            with Run() as run:
                inside = await stage.chat(client, "m")
            after = await stage.chat(client, "healthy:gap=0")
            assert len(await stage.take(inside, 2)) == 2
            run.cancel("late")
            await stage.closed(gateway, CLOSE_SEEN)
            assert len(await stage.all(after)) == 7
            with pytest.raises(stallwatch.RunCancelledError, match="late"):
                await stage.step(inside)
            assert await stage.chat(client, "healthy:gap=0", stream=False)

    with instrumented(**PATIENT) as captured:
        play(driver, story)
    outcomes = sorted(str((span.attributes or {})["stallwatch.outcome"]) for span in captured.spans)
    assert outcomes == ["cancelled", "completed", "completed"]


def test_tasks_started_inside_belong(gateway: FaultGateway) -> None:
    gateway.script("m", [Headers(), Silence()])

    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url) as client, Run() as run:
            tasks = [asyncio.create_task(_read(stage, client)) for _ in range(4)]
            await gateway.wait_for_async(lambda ledger: len(ledger.requests) == 4)
            run.cancel("all")
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [stallwatch.RunCancelledError] * 4

    from support.drivers import ASYNC

    with instrumented(**PATIENT) as captured:
        play(ASYNC, story)
    assert len(captured.spans) == 4
    wait_until(lambda: gateway.open_connections == 0, gateway.ledger)


async def _read(stage: Stage, client: Any) -> None:
    await stage.all(await stage.chat(client, "m"))


def test_beside_an_sdk_that_is_not_instrumented_a_run_does_nothing(
    gateway: FaultGateway, driver: Driver
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            with Run(total=0.001) as run:
                run.cancel("nobody hears")
                assert len(await stage.all(await stage.chat(client, "healthy:gap=0"))) == 7

    play(driver, story)


def test_the_span_of_a_call_outside_every_run_has_no_name(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    driver.tell(gateway.base_url, "healthy:gap=0")
    assert "stallwatch.run.name" not in captured.attributes()
