"""``Run.cancel`` ends a call wherever it stands, within moments, as nothing but a cancel."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import openai
import pytest
from opentelemetry.trace import StatusCode

import stallwatch
from runs.standstills import PATIENT, STANDSTILLS, Standstill, blow, standing
from stallwatch.testing import CloseDelimited, FaultGateway, Role, Silence, Token, Tokens
from support.bounds import CLOSE_SEEN, LATE
from support.drivers import ASYNC, MESSAGES, SYNC, Driver
from support.expect import Histogram
from support.stage import Stage, play
from support.telemetry import Captured, instrumented


def _param(place: Standstill) -> Any:
    # When a handshake is cancelled the HTTP library leaves its socket to the garbage collector, with us and without.
    lost = place.name in ("tls", "connect")
    marks = [pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")] if lost else []
    return pytest.param(place, marks=marks, id=place.name)


places = pytest.mark.parametrize("place", [_param(place) for place in STANDSTILLS])
ways = pytest.mark.parametrize(
    ("driver", "how"),
    [(SYNC, "thread"), (SYNC, "signal"), (ASYNC, "thread"), (ASYNC, "task")],
    ids=lambda value: getattr(value, "kind", value),
)


def told_as_cancelled(captured: Captured, place: Standstill, reason: str | None = None) -> dict[str, Any]:
    """One span, no error, the outcome and every count of a cancel."""
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "cancelled"
    assert captured.span.status.status_code is StatusCode.UNSET
    assert captured.span.status.description is None
    assert "error.type" not in attributes
    assert attributes["stallwatch.stalled"] is False
    assert "stallwatch.stalls" not in attributes
    assert attributes.get("stallwatch.cancel.reason") == reason
    assert attributes["stallwatch.retry.decision"] == "cancelled"
    assert attributes["stallwatch.retry.kind"] == "cancel"
    if place.stream:
        assert attributes["stallwatch.chunks"] == place.chunks
        assert captured.total("stallwatch.streams", stallwatch__outcome="cancelled") == 1
        assert captured.total("stallwatch.streams") == 1
    assert captured.total("stallwatch.streams.active") == 0
    assert captured.total("stallwatch.stalls") == 0
    assert Histogram(captured, "gen_ai.client.operation.duration").count == 1
    events = [event for event in captured.span.events if event.name == "stallwatch.attempt"]
    assert len(events) == attributes["stallwatch.attempts"] == max(place.requests, 1)
    return attributes


@places
@ways
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_run_is_cancelled_wherever_its_call_stands(
    gateway: FaultGateway, place: Standstill, driver: Driver, how: str, mode: str
) -> None:
    if mode == "observe" and (how != "thread" or "another" in place.name or "splice" in place.name):
        pytest.skip("observing has no attempts of its own; one way of cancelling is enough there")

    async def story(stage: Stage) -> None:
        async with standing(stage, gateway, place) as call:
            run = stallwatch.Run(name="answer")
            with blow(how, lambda: run.cancel("user stop"), gateway, place) as struck:
                with pytest.raises(stallwatch.RunCancelledError) as caught, run:
                    await call()
                ended = time.monotonic()
            assert type(caught.value) is stallwatch.RunCancelledError
            assert isinstance(caught.value, openai.OpenAIError)
            assert caught.value.reason == "user stop"
            assert ended - struck.at <= LATE
            if place.live:
                await stage.closed(gateway, CLOSE_SEEN, request=place.requests - 1)
            if stage.is_async:
                task = asyncio.current_task()
                assert task is not None
                assert task.cancelling() == 0

    with instrumented(**{**PATIENT, "mode": mode}) as captured:
        play(driver, story)
    if place.tls and driver.is_async:
        gc.collect()
    assert len(gateway.ledger().for_model("m")) == place.requests
    assert told_as_cancelled(captured, place, "user stop")["stallwatch.run.name"] == "answer"


@places
def test_a_cancelled_task_is_cancelled_wherever_it_stands(gateway: FaultGateway, place: Standstill) -> None:
    async def story(stage: Stage) -> None:
        async with standing(stage, gateway, place) as call, stallwatch.Run():
            task = asyncio.ensure_future(call())
            with blow("task", task.cancel, gateway, place) as struck:
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert time.monotonic() - struck.at <= LATE
            assert task.cancelled()

    with instrumented(**PATIENT) as captured:
        play(ASYNC, story)
    if place.tls:
        gc.collect()
    assert len(gateway.ledger().for_model("m")) == place.requests
    told_as_cancelled(captured, place)


@pytest.mark.parametrize("inside", [False, True], ids=["no run", "in a run"])
@places
def test_ctrl_c_is_a_cancel_wherever_the_call_stands(
    gateway: FaultGateway, place: Standstill, inside: bool
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def story(stage: Stage) -> None:
        async with standing(stage, gateway, place) as call:
            with blow("signal", interrupt, gateway, place) as struck:
                run = stallwatch.Run() if inside else stallwatch.policy()
                with pytest.raises(KeyboardInterrupt), run:
                    await call()
                assert time.monotonic() - struck.at <= LATE

    with instrumented(**PATIENT) as captured:
        play(SYNC, story)
    if place.tls or place.name == "connect":
        gc.collect()
    assert len(gateway.ledger().for_model("m")) == place.requests
    told_as_cancelled(captured, place)


def test_between_two_reads_the_connection_goes_at_once_and_the_next_step_tells(
    gateway: FaultGateway, driver: Driver
) -> None:
    gateway.script("m", [Role(), Tokens(2), Silence()])

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            with stallwatch.Run() as run:
                stream = await stage.chat(client, "m")
                await stage.take(stream, 2)
                run.cancel("enough")
                await stage.closed(gateway, CLOSE_SEEN)
                for _ in range(2):
                    with pytest.raises(stallwatch.RunCancelledError, match="enough"):
                        await stage.step(stream)
            await stage.close(stream)
            with pytest.raises(stallwatch.RunCancelledError, match="enough"):
                await stage.step(stream)

    with instrumented(**PATIENT) as captured:
        play(driver, story)
    attributes = captured.attributes()
    assert (attributes["stallwatch.outcome"], attributes["stallwatch.chunks"]) == ("cancelled", 2)


@pytest.mark.parametrize("closes", [False, True], ids=["chunked", "close-delimited"])
@pytest.mark.parametrize("reads", ["blocked", "between"])
@pytest.mark.parametrize("api", ["stream", "lines"])
def test_a_cancelled_answer_never_looks_whole(
    gateway: FaultGateway, driver: Driver, closes: bool, reads: str, api: str
) -> None:
    """Shut down, a body without a length ends cleanly: only the record tells that it was cut."""
    place = Standstill("m", there=lambda ledger: ledger.requests[0].count("token"))
    gateway.script("m", [*([CloseDelimited()] if closes else []), Role(), Token("a"), Silence()])

    async def read(stage: Stage, source: Any, run: stallwatch.Run) -> None:
        await anext(source)
        if reads == "between":
            run.cancel("stop")
            await stage.closed(gateway, CLOSE_SEEN)
        async for _ in source:
            pass

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            how = "task" if stage.is_async else "thread"
            run = stallwatch.Run()
            with (
                blow(how, lambda: reads == "blocked" and run.cancel("stop"), gateway, place),
                pytest.raises(stallwatch.RunCancelledError),
                run,
            ):
                if api == "stream":
                    async with stage.inside(await stage.chat(client, "m")) as stream:
                        await read(stage, stage.over(stream), run)
                else:
                    opened = client.chat.completions.with_streaming_response.create(
                        model="m", messages=MESSAGES, stream=True
                    )
                    async with stage.inside(opened) as response:
                        await read(stage, stage.over(response.iter_lines()), run)

    with instrumented(**PATIENT) as captured:
        play(driver, story)
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"


@pytest.mark.parametrize("stream", [True, False])
def test_a_cancelled_run_sends_nothing(gateway: FaultGateway, driver: Driver, stream: bool) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            with stallwatch.Run() as run:
                run.cancel("before")
                for _ in range(2):
                    with pytest.raises(stallwatch.RunCancelledError, match="before"):
                        await stage.chat(client, "healthy", stream=stream)
            # The run is over, and with it the cancel.
            assert await stage.chat(client, "healthy:gap=0", stream=False)

    with instrumented(**PATIENT) as captured:
        play(driver, story)
    assert len(gateway.ledger().requests) == 1
    outcomes = [span.attributes["stallwatch.outcome"] for span in captured.spans]  # type: ignore[index]
    assert outcomes == ["cancelled", "cancelled", "completed"]
    assert [span.attributes["stallwatch.attempts"] for span in captured.spans] == [0, 0, 1]  # type: ignore[index]
    assert all(span.status.status_code is StatusCode.UNSET for span in captured.spans)
