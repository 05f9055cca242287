"""What a ``Run`` is, without any call: entering, ending, cancelling, time, and who is told."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

import stallwatch
from stallwatch.run import Run, current_run
from stallwatch.runtime import waker
from support.leaks import wait_until


class FakeCall:
    """A call inside a run, as far as a run knows one."""

    def __init__(self, run: Run) -> None:
        self.woken: list[str | None] = []
        self.threads: set[str] = set()
        self._run = run
        run.join(self)

    def wake(self) -> None:
        self.woken.append(self._run.reason)
        self.threads.add(threading.current_thread().name)


@pytest.fixture(autouse=True)
def helper_thread() -> None:
    """A call starts it; there is none here."""
    waker.ensure_running()


def woken(*calls: FakeCall) -> None:
    wait_until(lambda: all(call.woken for call in calls), lambda: "somebody was not woken")


@contextmanager
def at(monkeypatch: pytest.MonkeyPatch, *instants: float) -> Iterator[Any]:
    """Let the run's clock show the first instant; ``move`` goes on to the next."""
    left = list(instants)
    now = [left.pop(0)]
    monkeypatch.setattr("stallwatch.run.monotonic", lambda: now[0])
    yield lambda: now.__setitem__(0, left.pop(0))


def test_a_run_is_current_inside_its_block_only() -> None:
    assert current_run() is None
    with Run() as run:
        assert current_run() is run
    assert current_run() is None


def test_an_asynchronous_block_is_the_same() -> None:
    async def story() -> None:
        async with Run(name="a") as run:
            assert current_run() is run
            assert await asyncio.create_task(_here()) is run
        assert current_run() is None
        assert await asyncio.create_task(_here()) is None

    asyncio.run(story())


async def _here() -> Run | None:
    await asyncio.sleep(0)
    return current_run()


def test_a_run_can_be_entered_once() -> None:
    run = Run()
    with run:
        with pytest.raises(RuntimeError, match="entered once"):
            run.__enter__()
        assert current_run() is run
    with pytest.raises(RuntimeError, match="entered once"), run:
        pass


def test_a_block_lets_every_exception_through() -> None:
    for error in (ValueError("mine"), KeyboardInterrupt(), stallwatch.RunCancelledError("other")):
        with pytest.raises(type(error)) as caught, Run():
            raise error
        assert caught.value is error
        assert current_run() is None


def test_a_cancel_ends_no_code_of_the_users_own() -> None:
    with Run() as run:
        run.cancel("stop")
        assert run.cancelled
    assert run.cancelled


@pytest.mark.parametrize("reason", ["user stop", "", "ünïcode\n"])
def test_the_first_reason_counts(reason: str) -> None:
    with Run() as run:
        run.cancel(reason)
        run.cancel("later")
        assert (run.cancelled, run.reason) == (True, reason)
        with pytest.raises(stallwatch.RunCancelledError) as caught:
            run.raise_if_cancelled()
    assert caught.value.reason == reason
    assert str(caught.value) == f"run cancelled: {reason}"


def test_without_a_cancel_there_is_no_reason() -> None:
    with Run() as run:
        assert (run.cancelled, run.reason) == (False, None)
        run.raise_if_cancelled()


def test_the_error_survives_copy_and_pickle() -> None:
    error = stallwatch.RunCancelledError("user stop")
    for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error)), error.again()):
        assert type(again) is stallwatch.RunCancelledError
        assert (again.reason, str(again)) == ("user stop", str(error))
    assert not isinstance(error, TimeoutError)


@pytest.mark.parametrize("moment", ["before the block", "inside", "after the block"])
def test_a_cancel_counts_whenever_it_comes(moment: str) -> None:
    run = Run()
    if moment == "before the block":
        run.cancel("early")
    with run:
        call = FakeCall(run)
        if moment == "inside":
            run.cancel("inside")
    if moment == "after the block":
        run.cancel("late")
    assert run.cancelled
    if moment != "before the block":
        woken(call)


def test_calls_are_woken_in_the_helper_thread_with_the_reason_set() -> None:
    with Run() as run:
        calls = [FakeCall(run) for _ in range(3)]
        run.cancel("stop")
        woken(*calls)
    assert {call.woken[0] for call in calls} == {"stop"}
    assert {name for call in calls for name in call.threads} == {"stallwatch-waker"}


def test_a_call_that_has_left_is_woken_no_more() -> None:
    with Run() as run:
        stays, leaves = FakeCall(run), FakeCall(run)
        run.leave(leaves)
        run.leave(leaves)
        run.cancel()
        woken(stays)
    assert leaves.woken == []


def test_one_call_that_cannot_be_woken_does_not_keep_the_others_asleep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(FakeCall):
        def wake(self) -> None:
            raise LookupError("broken")

    with Run() as run:
        first, broken, last = FakeCall(run), Broken(run), FakeCall(run)
        run.cancel()
        try:
            woken(first, last)
        finally:
            run.leave(broken)
            # Whether it is told of is not the point here.
            caplog.clear()


def test_a_run_keeps_no_call_that_has_left_alive() -> None:
    with Run() as run:
        call = FakeCall(run)
        gone = weakref.ref(call)
        run.leave(call)
        del call
        gc.collect()
        assert gone() is None


def test_many_threads_may_cancel_at_once() -> None:
    with Run() as run:
        call = FakeCall(run)
        threads = [threading.Thread(target=run.cancel, args=(str(number),)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        woken(call)
        assert run.reason in {str(number) for number in range(16)}
        assert set(call.woken) == {run.reason}


# Time


@pytest.mark.parametrize(
    ("total", "seconds"),
    [(60, 60.0), (0.5, 0.5), ("2m", 120.0), ("500ms", 0.5), (timedelta(seconds=3), 3.0), (None, None)],
)
def test_the_total_is_a_duration(total: Any, seconds: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with at(monkeypatch, 100.0), Run(total=total) as run:
        assert run.total == seconds
        assert run.remaining() == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("off", [0, 0.0, -1, "0s", None])
def test_nothing_and_less_mean_no_limit(off: Any) -> None:
    with Run(total=off) as run:
        assert run.remaining() is None


@pytest.mark.parametrize("bad", ["soon", float("nan"), object(), True, "10 parsecs", 1e9])
def test_a_bad_total_is_named(bad: Any) -> None:
    with pytest.raises(ValueError, match="total="):
        Run(total=bad)


def test_what_remains_is_wall_clock_and_never_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(total=10)
    assert run.remaining() is None
    with at(monkeypatch, 100.0, 104.0, 110.0, 250.0) as move, run:
        assert run.remaining() == 10.0
        move()
        assert run.remaining() == 6.0
        move()
        assert run.remaining() == 0.0
        move()
        assert run.remaining() == 0.0


def test_a_spent_total_is_no_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    with at(monkeypatch, 100.0, 500.0) as move, Run(total=1) as run:
        move()
        assert not run.cancelled
        run.raise_if_cancelled()


# Threads and other contexts


def test_a_thread_is_outside_unless_bound() -> None:
    seen: dict[str, Run | None] = {}

    def look(name: str) -> str:
        seen[name] = current_run()
        return name

    with Run() as run:
        bound = run.bind(look)
        for target, name in ((look, "plain"), (bound, "bound")):
            thread = threading.Thread(target=target, args=(name,))
            thread.start()
            thread.join()
        assert bound("here") == "here"
        assert current_run() is run
    assert seen == {"plain": None, "bound": run, "here": run}


def test_a_bound_function_passes_everything_through() -> None:
    def function(one: int, /, two: int, *, three: int) -> tuple[int, int, int]:
        return one, two, three

    with Run() as run:
        assert run.bind(function)(1, 2, three=3) == (1, 2, 3)
        with pytest.raises(ZeroDivisionError):
            run.bind(lambda: 1 / 0)()
        assert current_run() is run


def test_a_bound_function_called_after_the_block_is_outside() -> None:
    with Run() as outer:
        with Run() as inner:
            look = inner.bind(current_run)
        assert look() is outer
    assert look() is None


def test_a_task_that_outlives_the_block_is_outside() -> None:
    async def story() -> None:
        ready, over = asyncio.Event(), asyncio.Event()

        async def late() -> Run | None:
            ready.set()
            await over.wait()
            return current_run()

        async with Run():
            task = asyncio.create_task(late())
            await ready.wait()
        over.set()
        assert await task is None

    asyncio.run(story())


def test_a_block_may_be_left_in_another_context_than_it_was_entered_in() -> None:
    async def story() -> None:
        run = Run()
        await asyncio.create_task(run.__aenter__())
        await asyncio.create_task(run.__aexit__(None, None, None))
        assert current_run() is None
        with Run() as other:
            assert current_run() is other

    asyncio.run(story())


def test_blocks_left_in_the_wrong_order_hurt_nobody() -> None:
    outer, inner = Run(name="outer"), Run(name="inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert current_run() is inner
    inner.__exit__(None, None, None)
    assert current_run() is None


def test_it_says_what_it_is() -> None:
    run = Run(name="answer")
    assert repr(run) == "<Run 'answer' not open>"
    with run:
        assert repr(run) == "<Run 'answer' open>"
        run.cancel("stop")
        assert repr(run) == "<Run 'answer' cancelled: stop>"
    assert "None" not in repr(Run())
