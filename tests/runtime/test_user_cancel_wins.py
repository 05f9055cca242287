"""The user's cancel always wins over ours, and after ours the task's count of cancels is what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

import stallwatch
from stallwatch.runtime.task_waiter import TaskWaiter
from support.places import MESSAGES, Place, run_on
from support.telemetry import Captured, instrumented

IDLE = 0.1
STALLS = "stall-after:tokens=1,gap=0"


@dataclass
class Read:
    """What a reader of a stream that stalls has come to."""

    error: BaseException | None = None
    cancelling: int = -1


async def _read(client: Any, read: Read, started: asyncio.Event | None = None) -> None:
    """Read into a stall; ``started`` is set when the last chunk has come."""
    try:
        stream = await client.chat.completions.create(model=STALLS, messages=MESSAGES, stream=True)
        async for chunk in stream:
            if started is not None and chunk.choices[0].delta.content:
                started.set()
    except BaseException as error:
        task = asyncio.current_task()
        read.error, read.cancelling = error, -1 if task is None else task.cancelling()
        raise


def _outcomes(captured: Captured) -> list[Any]:
    return [span.attributes["stallwatch.outcome"] for span in captured.spans]


def _story(place: Place, loop: str, story: Callable[[Any], Awaitable[None]]) -> Captured:
    async def run() -> None:
        async with place.async_client() as client:
            await story(client)

    with instrumented(idle=IDLE, first_token=5, thinking=5) as captured:
        run_on(loop, run())
    return captured


@pytest.mark.slow
def test_a_cancel_about_the_deadline_is_the_users_or_comes_too_late(plain: Place, loop: str) -> None:
    offsets = [step / 5 / 1000 for step in range(-15, 16)]
    accepted: list[bool] = []

    async def story(client: Any) -> None:
        for offset in offsets:
            read, started = Read(), asyncio.Event()
            task = asyncio.create_task(_read(client, read, started))
            await started.wait()
            asyncio.get_running_loop().call_later(
                IDLE + offset, lambda task=task: accepted.append(task.cancel())
            )
            await asyncio.wait([task])
            while len(accepted) < len(offsets) and len(accepted) <= offsets.index(offset):
                await asyncio.sleep(0.001)
            # A cancel that was taken must be seen, and one that was not must not have been invented.
            assert task.cancelled() == accepted[-1]
            if not task.cancelled():
                assert isinstance(task.exception(), stallwatch.StreamInactivityTimeoutError)
                assert read.cancelling == 0

    captured = _story(plain, loop, story)
    assert _outcomes(captured) == ["cancelled" if taken else "stalled" for taken in accepted]
    assert len(accepted) == len(offsets)


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_cancel_in_the_same_callback_is_the_users(
    place: Place, loop: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, fire = TaskWaiter.on_due, TaskWaiter._fire
    shots = []

    def judging(waiter: TaskWaiter, now: float) -> float | None:
        due = waiter._run.due()
        if order == "before" and waiter.task is not None and due is not None and now >= due.at and not shots:
            shots.append(waiter.task.cancel())
        return judge(waiter, now)

    def firing(waiter: TaskWaiter, task: Any, now: float) -> float | None:
        again = fire(waiter, task, now)
        if order == "after":
            shots.append(task.cancel())
        return again

    monkeypatch.setattr(TaskWaiter, "on_due", judging)
    monkeypatch.setattr(TaskWaiter, "_fire", firing)

    async def story(client: Any) -> None:
        for _ in range(5):
            shots.clear()
            task = asyncio.create_task(_read(client, Read()))
            await asyncio.wait([task])
            assert shots == [True]
            assert task.cancelled()

    assert _outcomes(_story(place, loop, story)) == ["cancelled"] * 5


async def _with_timeout(seconds: float, step: Awaitable[None]) -> None:
    async with asyncio.timeout(seconds):
        await step


@pytest.mark.parametrize("bound", [_with_timeout, lambda seconds, step: asyncio.wait_for(step, seconds)])
@pytest.mark.parametrize(("outer", "outcome"), [(0.05, "cancelled"), (0.4, "stalled")])
def test_an_outer_timeout_wins_when_it_is_shorter(
    plain: Place, loop: str, bound: Any, outer: float, outcome: str
) -> None:
    async def story(client: Any) -> None:
        started = asyncio.Event()
        reader = _read(client, read := Read(), started)
        with pytest.raises(TimeoutError) as caught:
            await bound(outer, reader)
        ours = isinstance(caught.value, stallwatch.StreamInactivityTimeoutError)
        assert ours == (outcome == "stalled")
        assert isinstance(read.error, asyncio.CancelledError) != ours
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    assert _outcomes(_story(plain, loop, story)) == [outcome]


@pytest.mark.parametrize("bound", [_with_timeout, lambda seconds, step: asyncio.wait_for(step, seconds)])
def test_an_outer_timeout_of_equal_length_ends_in_one_of_the_two(plain: Place, loop: str, bound: Any) -> None:
    expected = []

    async def story(client: Any) -> None:
        for _ in range(8):
            stream = await client.chat.completions.create(model=STALLS, messages=MESSAGES, stream=True)
            await anext(stream)
            await anext(stream)
            with pytest.raises(TimeoutError) as caught:
                await bound(IDLE, stream.__anext__())
            ours = isinstance(caught.value, stallwatch.StreamInactivityTimeoutError)
            expected.append("stalled" if ours else "cancelled")
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    assert _outcomes(_story(plain, loop, story)) == expected


@pytest.mark.parametrize("after", [0.02, IDLE, 0.25])
def test_a_failing_sibling_cancels_the_reader_or_finds_it_stalled(
    plain: Place, loop: str, after: float
) -> None:
    seen: list[BaseException | None] = []

    async def fail(started: asyncio.Event) -> None:
        await started.wait()
        await asyncio.sleep(after)
        raise LookupError("sibling")

    async def story(client: Any) -> None:
        read, started = Read(), asyncio.Event()
        with pytest.raises(BaseExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(_read(client, read, started))
                group.create_task(fail(started))
        seen.append(read.error)
        kinds = {type(error) for error in caught.value.exceptions}
        assert (LookupError in kinds) or after > IDLE
        if not isinstance(read.error, asyncio.CancelledError):
            assert stallwatch.StreamInactivityTimeoutError in kinds
            assert read.cancelling == 0

    outcomes = _outcomes(_story(plain, loop, story))
    cancelled = isinstance(seen[0], asyncio.CancelledError)
    assert outcomes == ["cancelled" if cancelled else "stalled"]
    assert cancelled if after < IDLE else (not cancelled or after == IDLE)


def test_an_outer_anyio_deadline_wins_when_it_is_shorter(plain: Place, loop: str) -> None:
    async def story(client: Any) -> None:
        with anyio.move_on_after(0.04) as scope:
            await _read(client, Read())
        assert scope.cancelled_caught

    assert _outcomes(_story(plain, loop, story)) == ["cancelled"]


@pytest.mark.parametrize("order", ["before", "after", "one later"])
def test_an_outer_anyio_scope_cancelled_in_the_same_callback_wins(
    plain: Place, loop: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fire, judge = TaskWaiter._fire, TaskWaiter.on_due
    scopes: list[anyio.CancelScope] = []

    def judging(waiter: TaskWaiter, now: float) -> float | None:
        due = waiter._run.due()
        if order == "before" and waiter.task is not None and due is not None and now >= due.at:
            scopes[-1].cancel()
        return judge(waiter, now)

    def firing(waiter: TaskWaiter, task: Any, now: float) -> float | None:
        again = fire(waiter, task, now)
        if order == "after":
            scopes[-1].cancel()
        elif order == "one later":
            task.get_loop().call_soon(scopes[-1].cancel)
        return again

    monkeypatch.setattr(TaskWaiter, "on_due", judging)
    monkeypatch.setattr(TaskWaiter, "_fire", firing)

    async def story(client: Any) -> None:
        for _ in range(5):
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                with suppress(stallwatch.StreamTimeoutError):
                    await _read(client, Read())
            assert scope.cancelled_caught
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    assert _outcomes(_story(plain, loop, story)) == ["cancelled"] * 5


def test_a_consumer_that_once_swallowed_a_cancel_keeps_its_count(plain: Place, loop: str) -> None:
    read = Read()

    async def consume(client: Any) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        await _read(client, read)

    async def story(client: Any) -> None:
        task = asyncio.create_task(consume(client))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(stallwatch.StreamInactivityTimeoutError):
            await task
        assert read.cancelling == 1

    assert _outcomes(_story(plain, loop, story)) == ["stalled"]


def test_a_cancel_before_the_headers_is_the_users(plain: Place, loop: str) -> None:
    async def story(client: Any) -> None:
        call = client.chat.completions.create(model="never-responds", messages=MESSAGES, stream=True)
        task = asyncio.ensure_future(call)
        await plain.gateway.wait_for_async(lambda ledger: ledger.requests)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    assert _outcomes(_story(plain, loop, story)) == ["cancelled"]
