"""A loop that calls no timers is found out by the sweep, once, and the silence of thousands of runs costs one look."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from stallwatch.runtime import registry, sweeper, timers


class Waiting:
    """Whoever waits; told that it is due, it waits for nothing more."""

    def __init__(self) -> None:
        self.armed: float | None = None
        self.asked = 0

    def on_due(self, now: float) -> float | None:
        self.asked += 1
        return None


class Silent:
    """An open run that counts how often its silence is looked at."""

    def __init__(self, backstop: float) -> None:
        self.policy = self
        self.backstop = backstop
        self.last_activity = time.monotonic()
        self.looked_at = 0
        self.ended = False

    def end_span_if_silent(self, now: float) -> float:
        self.looked_at += 1
        left = self.last_activity + self.backstop - now
        self.ended = self.ended or left <= 0
        return float("inf") if self.ended else left


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Silent]:
    monkeypatch.setattr(registry, "_live", {})
    monkeypatch.setattr(registry, "_backstops", set())
    monkeypatch.setattr(registry, "_looked", {"at": -float("inf"), "due": float("inf")})
    return []


def test_a_watch_whose_timer_is_overdue_looks_in_its_loop_and_is_told_once() -> None:
    who = Waiting()

    async def main() -> int:
        watch = timers.watch_of(asyncio.get_running_loop())
        now = time.monotonic()
        watch.arm(who, now + 60)
        # As long as its timer is not late nothing is done.
        watch.nudge(now + 60)
        assert who.asked == 0
        watch._heap = [(now, *watch._heap[0][1:])]
        who.armed = now
        posted = len(asyncio.get_running_loop()._ready)  # type: ignore[attr-defined]
        for _ in range(5):
            watch.nudge(now + 61)
        assert len(asyncio.get_running_loop()._ready) == posted + 1  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert who.asked == 1
        # And the next time again.
        watch.nudge(now + 61)
        return len(asyncio.get_running_loop()._ready) - posted  # type: ignore[attr-defined]

    assert asyncio.run(main()) == 1


def test_a_watch_of_a_closed_loop_is_left_alone_and_goes_with_it() -> None:
    loop = asyncio.new_event_loop()
    watch = timers.watch_of(loop)
    watch._timers.append(0.0)
    loop.close()
    watch.nudge(time.monotonic())
    assert watch in timers.watches()
    del loop, watch
    gc.collect()
    assert all(one._loop() is not None for one in timers.watches())


def test_thousands_of_open_runs_are_looked_at_when_one_may_be_due_and_not_before(
    listed: list[Silent],
) -> None:
    for _ in range(1000):
        run = Silent(300)
        listed.append(run)
        registry.add(run)  # type: ignore[arg-type]
    now = listed[0].last_activity
    for second in range(299):
        due = sweeper._look(now + second)
        assert (due or 0) > 0
    # Once, because nothing was known before.
    assert {run.looked_at for run in listed} == {1}
    sweeper._look(now + 301)
    assert all(run.ended for run in listed)


def test_a_run_listed_later_with_a_shorter_backstop_is_looked_at_in_time(listed: list[Silent]) -> None:
    long = Silent(300)
    registry.add(long)  # type: ignore[arg-type]
    now = long.last_activity
    sweeper._look(now)
    short = Silent(5)
    short.last_activity = now + 20
    registry.add(short)  # type: ignore[arg-type]
    due = sweeper._look(now + 20)
    assert 0 < (due or 0) <= 5
    sweeper._look(now + 25.01)
    assert (short.ended, long.ended) == (True, False)


def test_activity_puts_the_end_of_a_span_off(listed: list[Silent]) -> None:
    run = Silent(5)
    registry.add(run)  # type: ignore[arg-type]
    now = run.last_activity
    sweeper._look(now)
    run.last_activity = now + 4
    assert sweeper._look(now + 5.01) == pytest.approx(3.99, abs=0.01)
    assert not run.ended


def test_a_look_by_another_clock_does_not_put_the_next_one_off(listed: list[Silent]) -> None:
    run = Silent(5)
    registry.add(run)  # type: ignore[arg-type]
    now = run.last_activity
    sweeper._look(now + 1e6)
    run.ended = False
    sweeper._look(now + 5.01)
    assert run.ended


def test_runs_that_fall_silent_one_after_the_other_are_not_a_look_each(listed: list[Silent]) -> None:
    began = time.monotonic()
    for number in range(200):
        run = Silent(5)
        run.last_activity = began + number / 100
        listed.append(run)
        registry.add(run)  # type: ignore[arg-type]
    for hundredth in range(800):
        sweeper._look(began + hundredth / 100)
    assert all(run.ended for run in listed)
    assert max(run.looked_at for run in listed) <= 9
