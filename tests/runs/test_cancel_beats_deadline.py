"""A cancel in the very moment of a deadline, retries allowed: the cancel wins, and no other attempt is made."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

import stallwatch
from runs.standstills import long_back_off
from stallwatch.runtime import registry
from stallwatch.testing import Done, FaultGateway, Finish, Headers, RefuseHeaders, Role, Silence, Token
from support.drivers import ASYNC, SYNC
from support.leaks import wait_until
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

pytestmark = [
    pytest.mark.slow,
    # An interrupt may come while the HTTP library opens or closes a socket, with us and without.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

LIMIT = 0.06
OFFSETS = [step / 4000 for step in range(-12, 13)] * 4 + [step / 2000 for step in range(7, 21)]
"""Seconds from the deadline: a hundred from three milliseconds before it to three after, in each of the two places that
are played, so two hundred for each kind of cancel; and some up to where the last judge has come to its finding."""

GOOD = [Role(), Token("a"), Finish(), Done()]
PLAYED = {"headers": [RefuseHeaders()], "first_token": [Headers(), Silence()]}


@pytest.fixture(autouse=True)
def back_off_that_is_seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Long enough that a second request, which would come after it, can only be one that must not be."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 4.0)
    with long_back_off():
        yield


@pytest.fixture(params=list(PLAYED))
def played(request: pytest.FixtureRequest, gateway: FaultGateway) -> str:
    # Every call gets a model of its own, hence the first attempt's silence.
    gateway.script("m", PLAYED[request.param])
    return str(request.param)


def deadline() -> float:
    """The instant at which the one open call is due; now, if this thread has come too late to look."""
    wait_until(lambda: _due() is not None, lambda: "no call waits")
    due = _due()
    return time.monotonic() if due is None or due.allowed != LIMIT else float(due.at)


def _due() -> Any:
    return next((run.due() for run in registry.live()), None)  # type: ignore[attr-defined]


def judged(captured: Captured, gateway: FaultGateway, count: int) -> None:
    """Each call ended once, as a cancel, after one request."""
    assert len(captured.spans) == count
    # The cancels really came on both sides of the deadline.
    assert count < len(OFFSETS) or 0 < captured.total("stallwatch.stalls") < count
    outcomes = [(span.attributes or {})["stallwatch.outcome"] for span in captured.spans]
    assert outcomes == ["cancelled"] * count
    assert {span.status.status_code for span in captured.spans} == {StatusCode.UNSET}
    assert {(span.attributes or {})["stallwatch.attempts"] for span in captured.spans} <= {0, 1}
    # On a busy machine a request may be given up before the gateway has read it.
    requests = gateway.ledger().requests
    assert len(requests) <= count
    assert {request.retry_count for request in requests} == {0}
    assert captured.total("stallwatch.streams", stallwatch__outcome="cancelled") == count
    assert captured.total("stallwatch.streams") == count


async def read(stage: Stage, client: Any) -> None:
    stream = await stage.chat(client, "m")
    try:
        await stage.all(stream)
    finally:
        await stage.close(stream)


async def _cancelled_at(
    stage: Stage, client: Any, offset: float, cancel: Callable[[asyncio.Task[None]], object]
) -> asyncio.Task[None]:
    task = asyncio.ensure_future(read(stage, client))
    while _due() is None:
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    due = _due()
    assert due is not None
    loop.call_later(due.at + offset - time.monotonic(), cancel, task)
    await asyncio.wait([task], timeout=2)
    return task


def test_a_cancelled_task(gateway: FaultGateway, played: str) -> None:
    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url, max_retries=2) as client:
            for offset in OFFSETS:
                task = await _cancelled_at(stage, client, offset, lambda task: task.cancel("mine"))
                assert task.cancelled(), (played, offset, task)

    with instrumented(first_token=LIMIT) as captured:
        play(ASYNC, story)
    judged(captured, gateway, len(OFFSETS))


@pytest.mark.parametrize("from_thread", [False, True])
def test_a_cancelled_run_of_a_task(gateway: FaultGateway, played: str, from_thread: bool) -> None:
    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url, max_retries=2) as client:
            for offset in OFFSETS:
                with stallwatch.Run() as run:

                    def cancel(_: asyncio.Task[None], run: stallwatch.Run = run) -> None:
                        if from_thread:
                            threading.Thread(target=run.cancel, args=("mine",)).start()
                        else:
                            run.cancel("mine")

                    task = await _cancelled_at(stage, client, offset, cancel)
                assert task.done()
                assert isinstance(task.exception(), stallwatch.RunCancelledError), (offset, task)
                assert task.cancelling() == 0

    with instrumented(first_token=LIMIT) as captured:
        play(ASYNC, story)
    judged(captured, gateway, len(OFFSETS))


def test_a_cancelled_run_of_a_thread(gateway: FaultGateway, played: str) -> None:
    async def story(stage: Stage) -> None:
        with stage.client(gateway.base_url, max_retries=2) as client:
            for offset in OFFSETS:
                with stallwatch.Run() as run:
                    thread = threading.Thread(target=_cancel_at, args=(run, offset))
                    thread.start()
                    with pytest.raises(stallwatch.RunCancelledError, match="mine"):
                        await read(stage, client)
                    thread.join()

    with instrumented(first_token=LIMIT) as captured:
        play(SYNC, story)
    judged(captured, gateway, len(OFFSETS))


def _cancel_at(run: stallwatch.Run, offset: float) -> None:
    at = deadline() + offset
    time.sleep(max(at - time.monotonic() - 0.002, 0))
    while time.monotonic() < at:
        pass
    run.cancel("mine")


def test_ctrl_c(gateway: FaultGateway, played: str) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("mine")

    async def story(stage: Stage) -> None:
        with stage.client(gateway.base_url, max_retries=2) as client:
            for offset in OFFSETS:
                # No thread arms it, for the same reason: their end is told in such a callback.
                signal.setitimer(signal.ITIMER_REAL, LIMIT + offset)
                with pytest.raises(KeyboardInterrupt, match="mine"):
                    await read(stage, client)

    before = signal.signal(signal.SIGALRM, interrupt)
    # What is raised inside a callback of the collector, Python reports and forgets.
    gc.collect()
    gc.disable()
    try:
        with instrumented(first_token=LIMIT) as captured:
            play(SYNC, story)
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    judged(captured, gateway, len(OFFSETS))


@pytest.mark.parametrize("order", ["cancel first", "deadline first"])
@pytest.mark.parametrize("how", ["task", "run"])
def test_both_in_one_turn_of_the_loop(gateway: FaultGateway, played: str, how: str, order: str) -> None:
    """The loop is blocked over the deadline, so that the watch's own shot is due in the turn of the cancel."""

    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url, max_retries=2) as client:
            for _ in range(5):
                with stallwatch.Run() as run:

                    def cancel(task: asyncio.Task[None], run: stallwatch.Run = run) -> None:
                        if order == "deadline first":
                            time.sleep(0.06)
                        if how == "task":
                            task.cancel()
                        else:
                            run.cancel("mine")
                        if order == "cancel first":
                            time.sleep(0.06)

                    task = await _cancelled_at(stage, client, -0.01, cancel)
                if how == "task":
                    assert task.cancelled(), task
                else:
                    assert isinstance(task.exception(), stallwatch.RunCancelledError), task

    with instrumented(first_token=LIMIT) as captured:
        play(ASYNC, story)
    judged(captured, gateway, 5)
