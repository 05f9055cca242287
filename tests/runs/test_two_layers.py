"""A run and its attempts are two layers: ending an attempt leaves the run alive, ending the run ends everything."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import stallwatch
from runs.standstills import GOOD, PATIENT, long_back_off
from stallwatch.testing import FaultGateway, Headers, RefuseHeaders, Silence, Status
from support.bounds import LATE, LIMITS
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import instrumented

SILENT = [Headers(), Silence()]


@pytest.mark.parametrize(
    "first", [SILENT, [RefuseHeaders()], [Status(503)]], ids=["silent", "before headers", "503"]
)
def test_interrupting_an_attempt_leaves_the_run_alive(
    gateway: FaultGateway, driver: Driver, guarded: Any, monkeypatch: pytest.MonkeyPatch, first: list[Any]
) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.02)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.02)
    gateway.script("m", first, GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=1)) as client:
            with stallwatch.Run(name="answer") as run:
                stream = await stage.chat(client, "m")
                assert len(await stage.all(stream)) == 4
                assert not run.cancelled
                # The run serves the next call as well, with clocks and attempts of its own.
                assert len(await stage.all(await stage.chat(client, "healthy:gap=0"))) == 7
                assert run.remaining() is None

    with guarded() as captured:
        play(driver, story)
    first_span, second_span = captured.spans
    assert (first_span.attributes or {})["stallwatch.attempts"] == 2
    assert (first_span.attributes or {})["stallwatch.outcome"] == "completed"
    assert (second_span.attributes or {})["stallwatch.attempts"] == 1


def test_every_attempt_has_clocks_of_its_own(
    gateway: FaultGateway, driver: Driver, guarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt may take as long as the first was allowed, though together it is more than one limit."""
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.02)
    from stallwatch.testing import Wait

    limit = LIMITS["first_token"]
    gateway.script("m", SILENT, SILENT, [Headers(), Wait(limit * 0.7), *GOOD])

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            with stallwatch.Run(total=30):
                assert len(await stage.all(await stage.chat(client, "m"))) == 4

    with guarded() as captured:
        play(driver, story)
    assert captured.attributes()["stallwatch.attempts"] == 3
    assert captured.attributes()["stallwatch.outcome"] == "completed"


@pytest.mark.parametrize("where", ["our back-off", "the SDK's back-off"])
def test_cancelling_the_run_stops_everything_before_a_request_is_sent(
    gateway: FaultGateway, driver: Driver, guarded: Any, where: str
) -> None:
    first = SILENT if where == "our back-off" else [Status(503, retry_after="4")]
    gateway.script("m", first, GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            with stallwatch.Run() as run:
                canceller = threading.Thread(target=_cancel_when_closed, args=(gateway, run, where))
                canceller.start()
                began = time.monotonic()
                with pytest.raises(stallwatch.RunCancelledError):
                    await stage.all(await stage.chat(client, "m"))
                canceller.join()
                assert time.monotonic() - began < 1.5
                for model in ("m", "healthy"):
                    with pytest.raises(stallwatch.RunCancelledError):
                        await stage.chat(client, model)

    with guarded() as captured, long_back_off():
        play(driver, story)
    assert len(gateway.ledger().requests) == 1
    outcomes = {(span.attributes or {})["stallwatch.outcome"] for span in captured.spans}
    assert outcomes == {"cancelled"}
    assert len(captured.spans) == 3


def _cancel_when_closed(gateway: FaultGateway, run: stallwatch.Run, where: str) -> None:
    if where == "our back-off":
        gateway.wait_for(lambda ledger: ledger.requests[0].closed_how)
    else:
        gateway.wait_for(lambda ledger: ledger.requests[0].completed_at)
    time.sleep(0.05)
    run.cancel("enough")


def test_a_stall_that_nothing_follows_does_not_cancel_the_run(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", SILENT)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            with stallwatch.Run() as run:
                with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                    await stage.all(await stage.chat(client, "m"))
                assert not run.cancelled
                assert await stage.chat(client, "healthy:gap=0", stream=False)

    with guarded() as captured:
        play(driver, story)
    outcomes = [(span.attributes or {})["stallwatch.outcome"] for span in captured.spans]
    assert outcomes == ["stalled", "completed"]


def test_a_cancel_after_the_answer_changes_nothing(gateway: FaultGateway, driver: Driver) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            with stallwatch.Run() as run:
                stream = await stage.chat(client, "healthy:gap=0")
                assert len(await stage.all(stream)) == 7
                run.cancel("late")
                # It is over: the SDK's own answer is right.
                assert await stage.all(stream) == []
                await stage.close(stream)

    with instrumented(**PATIENT) as captured:
        play(driver, story)
    assert captured.attributes()["stallwatch.outcome"] == "completed"


def test_a_cancel_costs_at_most_a_moment_with_many_calls_in_the_run(
    gateway: FaultGateway, guarded: Any
) -> None:
    import asyncio

    from support.drivers import ASYNC

    gateway.script("m", SILENT)

    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url, max_retries=2) as client, stallwatch.Run() as run:
            tasks = [asyncio.create_task(_read(stage, client)) for _ in range(50)]
            await gateway.wait_for_async(lambda ledger: len(ledger.requests) == 50, 10)
            began = time.monotonic()
            run.cancel("all")
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert time.monotonic() - began <= LATE
            assert {type(end) for end in ends} == {stallwatch.RunCancelledError}

    with instrumented(**PATIENT) as captured:
        play(ASYNC, story)
    assert len(captured.spans) == 50
    assert len(gateway.ledger().requests) == 50


async def _read(stage: Stage, client: Any) -> None:
    await stage.all(await stage.chat(client, "m"))
