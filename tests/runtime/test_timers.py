"""One timer for a whole loop: nobody is asked late, and timers do not pile up."""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallwatch.clock import monotonic
from stallwatch.runtime import timers
from stallwatch.runtime.timers import Watch, watch_of
from support.places import LOOPS, eventually_async, run_on

TOLERANCE = 0.001
"""Seconds by which a waiter may be asked early or late when the loop itself is exact."""


class FakeLoop:
    """Time that only moves when told; ``early`` is how much too early timers are called, as coarse loops do."""

    def __init__(self, early: float = 0.0) -> None:
        self.now = 1000.0
        self.early = early
        self.timers: list[tuple[float, int, Callable[[], object]]] = []
        self.ready: list[Callable[[], object]] = []
        self._sequence = itertools.count()

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any) -> None:
        entry = (self.now + delay, next(self._sequence), lambda: callback(*args))
        heapq.heappush(self.timers, entry)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any) -> None:
        self.ready.append(lambda: callback(*args))

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self.ready or (self.timers and self.timers[0][0] - self.early <= until):
            if self.ready:
                self.turn()
                continue
            at, _, callback = heapq.heappop(self.timers)
            self.now = max(self.now, at - self.early)
            callback()
            # A loop that calls timers early does not call one of no delay within the same instant for ever.
            self.now += 1e-5
        self.now = max(self.now, until)


@contextmanager
def fake_time(early: float = 0.0) -> Iterator[FakeLoop]:
    loop = FakeLoop(early)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timers, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
        patch.setattr(timers, "monotonic", lambda: loop.now)
        yield loop


class Waiter:
    """Waits until ``due``; ``turns`` times it wants to be looked at again in the loop's next turn."""

    def __init__(self, clock: Callable[[], float], *, turns: int = 0, step: float | None = None) -> None:
        self.armed: float | None = None
        self.due: float | None = None
        self.asked: list[float] = []
        self._clock = clock
        self._turns = turns
        self._step = step

    def on_due(self, now: float) -> float | None:
        if self.due is None:
            return None
        if now < self.due:
            return self.due
        if self._turns:
            self._turns -= 1
            return 0.0
        self.asked.append(self._clock() - self.due)
        self.due = None if self._step is None else self.due + self._step
        return self.due


ARM = st.tuples(
    st.just("arm"), st.integers(0, 5), st.sampled_from([0.0, 0.0001, 0.001, 1.0, 2.0, 5.0, 120.0])
)
DISARM = st.tuples(st.just("disarm"), st.integers(0, 5), st.just(0.0))
DROP = st.tuples(st.just("drop"), st.integers(0, 5), st.just(0.0))
CROWD = st.tuples(st.just("crowd"), st.just(0), st.sampled_from([0.5, 3.0, 200.0]))
ADVANCE = st.tuples(
    st.just("advance"), st.just(0), st.sampled_from([0.0, 0.0002, 0.999, 1.0, 1.5, 4.0, 119.0])
)
SCRIPT = st.lists(ARM | DISARM | DROP | CROWD | ADVANCE | ARM | ADVANCE, max_size=40)


@settings(deadline=None, max_examples=200)
@given(SCRIPT, st.sampled_from([0.0, 0.0003, 0.0009]), st.integers(0, 2))
def test_nobody_is_missed_whatever_is_armed_disarmed_and_dropped(
    script: list[tuple[str, int, float]], early: float, turns: int
) -> None:
    with fake_time(early) as loop:
        watch = Watch(loop)
        waiters = [Waiter(lambda: loop.now, turns=turns) for _ in range(6)]

        def none_is_overdue() -> None:
            assert [w.due for w in waiters if w.due is not None and w.due < loop.now - TOLERANCE] == []
            assert all(abs(late) <= TOLERANCE for w in waiters for late in w.asked)

        for what, who, amount in script:
            waiter = waiters[who]
            if what == "arm":
                waiter.due = loop.now + amount
                watch.arm(waiter, waiter.due)
            elif what == "disarm":
                waiter.due = None
                watch.disarm(waiter)
            elif what == "drop":
                waiters[who] = Waiter(lambda: loop.now, turns=turns)
            elif what == "crowd":
                crowd = [Waiter(lambda: loop.now) for _ in range(80)]
                for other in crowd:
                    watch.arm(other, loop.now + amount)
                for other in crowd:
                    watch.disarm(other)
            else:
                loop.advance(amount)
            # In case of a turn that has been asked for: the loop would give it before anything else.
            loop.advance(0.0)
            none_is_overdue()
        loop.advance(1000.0)
        none_is_overdue()
        assert all(waiter.due is None for waiter in waiters)
        assert (loop.timers, loop.ready, watch._heap) == ([], [], [])


def test_a_wait_that_moves_later_is_asked_at_its_new_instant_only() -> None:
    with fake_time() as loop:
        watch, waiter = Watch(loop), Waiter(lambda: loop.now)
        for _ in range(50):
            waiter.due = loop.now + 2.0
            watch.arm(waiter, waiter.due)
            loop.advance(1.0)
        assert waiter.asked == []
        loop.advance(1.1)
        assert waiter.asked == [pytest.approx(0.0, abs=TOLERANCE)]


def test_timers_do_not_breed_beside_a_long_wait() -> None:
    with fake_time() as loop:
        watch = Watch(loop)
        long = Waiter(lambda: loop.now)
        long.due = loop.now + 100_000.0
        watch.arm(long, long.due)
        most = 0
        for _ in range(2000):
            short = Waiter(lambda: loop.now)
            short.due = loop.now + 5.0
            watch.arm(short, short.due)
            loop.advance(3.0)
            watch.disarm(short)
            loop.advance(4.0)
            most = max(most, len(loop.timers))
        assert most <= 2
        loop.advance(100_000.0)
        assert long.asked == [pytest.approx(0.0, abs=TOLERANCE)]
        assert loop.timers == []


def test_timers_are_no_more_than_the_different_timeouts() -> None:
    with fake_time() as loop:
        watch = Watch(loop)
        kept = [Waiter(lambda: loop.now) for _ in range(3000)]
        most = 0
        for number, waiter in enumerate(kept):
            waiter.due = loop.now + (300.0, 120.0, 60.0, 5.0)[number % 4]
            watch.arm(waiter, waiter.due)
            loop.advance(0.37)
            most = max(most, len(loop.timers))
        assert most <= 4
        loop.advance(400.0)
        assert all(len(waiter.asked) == 1 for waiter in kept)


@pytest.mark.parametrize("kind", list(LOOPS))
def test_a_real_loop_has_few_timers_after_many_short_waits(kind: str) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        watch = watch_of(loop)
        long = Waiter(monotonic)
        long.due = monotonic() + 1000.0
        watch.arm(long, long.due)
        for _ in range(100):
            short = Waiter(monotonic)
            short.due = monotonic() + 0.001
            watch.arm(short, short.due)
            await eventually_async(lambda short=short: short.asked)
        assert len(watch._timers) == 1
        if kind == "asyncio":
            ours = [handle for handle in loop._scheduled if "_fire" in repr(handle)]  # type: ignore[attr-defined]
            assert len(ours) == 1
        assert long.asked == []

    run_on(kind, story())


@pytest.mark.parametrize("kind", list(LOOPS))
def test_a_periodic_wait_is_asked_on_a_real_loop_again_and_again(kind: str) -> None:
    async def story() -> None:
        waiter = Waiter(monotonic, turns=3, step=0.004)
        waiter.due = monotonic() + 0.004
        watch_of(asyncio.get_running_loop()).arm(waiter, waiter.due)
        await eventually_async(lambda: len(waiter.asked) >= 10)
        assert all(late >= 0.0 for late in waiter.asked)

    run_on(kind, story())


def test_entries_of_waits_that_ended_do_not_pile_up() -> None:
    with fake_time() as loop:
        watch = Watch(loop)
        kept = Waiter(lambda: loop.now)
        kept.due = loop.now + 3000.0
        watch.arm(kept, kept.due)
        for _ in range(1000):
            ended = Waiter(lambda: loop.now)
            watch.arm(ended, loop.now + 3600.0)
            watch.disarm(ended)
        assert len(watch._heap) < 150
        loop.advance(3000.1)
        assert len(kept.asked) == 1


@pytest.mark.parametrize("seed", range(5))
def test_waits_that_stay_when_others_are_dropped_are_asked_in_time(seed: int) -> None:
    chance = random.Random(seed)
    with fake_time() as loop:
        watch = Watch(loop)
        waiters = [Waiter(lambda: loop.now) for _ in range(200)]
        for waiter in waiters:
            waiter.due = loop.now + chance.uniform(1.0, 100.0)
            watch.arm(waiter, waiter.due)
        for waiter in chance.sample(waiters, 140):
            watch.disarm(waiter)
        staying = [waiter for waiter in waiters if waiter.armed is not None]
        assert len(watch._heap) < 140
        loop.advance(101.0)
        assert all(len(waiter.asked) == 1 and abs(waiter.asked[0]) <= TOLERANCE for waiter in staying)


@pytest.mark.parametrize("kind", list(LOOPS))
def test_the_watch_does_not_keep_its_loop(kind: str) -> None:
    loop = LOOPS[kind]()
    waiter = Waiter(monotonic)

    async def story() -> None:
        watch_of(asyncio.get_running_loop()).arm(waiter, monotonic() + 1000.0)

    loop.run_until_complete(story())
    watch = watch_of(loop)
    gone = weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert gone() is None
    assert watch._timers
