"""Threads that run one at a time, and change over where a schedule says: the same schedule, the same run.

Each line of the watched files is a place where the thread may be held and another let go, as the interpreter may do it
anywhere. Threads wait only through here (for a condition, a lock of the product's, a time of day that is a number), so
that a wait is seen and somebody else goes on. A schedule is a list of preemptions: at which step, and to whom. All
schedules with so many preemptions are made by trying: each run tells at which steps who else could have run.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from stallwatch.testing import FakeClock

__all__ = ["Actor", "Lock", "Preemption", "Stepper", "Stuck", "all_schedules"]

PATIENCE = 20.0
"""Seconds after which a thread that is neither at a step nor in a wait is given up: it blocks where none is seen."""


class Stuck(Exception):
    """Everybody waits, and nothing will ever come."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """At step number ``step`` of the run, ``to`` goes on in place of whoever runs, or of whose turn it would be."""

    step: int
    to: int


@dataclass(slots=True, eq=False)
class Actor:
    """One thread."""

    name: str
    play: Callable[[], object]
    number: int = 0
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ready: Callable[[], bool] | None = None
    """What it waits for, if it waits."""
    wakes_at: float | None = None
    done: bool = False
    error: BaseException | None = None

    @property
    def can_run(self) -> bool:
        return not self.done and (self.ready is None or self.ready())


class Stepper:
    """Plays actors by a schedule. The first one begins; where one waits or is done, the first who can goes on."""

    def __init__(self, clock: FakeClock, files: Collection[str]) -> None:
        self.clock = clock
        self.actors: list[Actor] = []
        self.running: Actor | None = None
        self.step = 0
        self.choices: list[tuple[int, list[int]]] = []
        """The steps of the run, and who else could have gone on there."""
        self._files = files
        self._schedule: dict[int, int] = {}
        self._over = threading.Semaphore(0)
        self._stuck = False

    def play(self, actors: list[Actor], schedule: list[Preemption]) -> None:
        """Play to the end; raises ``Stuck`` when it has none, and what an actor has raised."""
        self.actors = actors
        self._schedule = {each.step: each.to for each in schedule}
        threads = [threading.Thread(target=self._thread, args=(actor,), daemon=True) for actor in actors]
        for number, (actor, thread) in enumerate(zip(actors, threads, strict=True)):
            actor.number = number
            thread.start()
        self.running = actors[0]
        actors[0].go.release()
        came = self._over.acquire(timeout=PATIENCE)
        for thread in threads if came else ():
            thread.join(PATIENCE)
        if not came or self._stuck:
            raise Stuck(f"{[(actor.name, actor.done) for actor in actors]} at step {self.step}")
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    # In the actors' threads

    def wait(self, ready: Callable[[], bool], until: float | None = None) -> bool:
        """Wait for a condition, at most until an instant; False when that came first. Outside a play, must hold."""
        me = self._me()
        if me is None:
            assert ready()
            return True

        def on() -> bool:
            return ready() or (until is not None and self.clock.now >= until)

        if not on():
            me.ready, me.wakes_at = on, until
            self._hand_on(me)
            me.ready = me.wakes_at = None
        return ready()

    def _me(self) -> Actor | None:
        running = self.running
        return running if running is not None and threading.current_thread().name == _named(running) else None

    def _thread(self, actor: Actor) -> None:
        threading.current_thread().name = _named(actor)
        actor.go.acquire()
        sys.settrace(self._trace)
        try:
            actor.play()
        except BaseException as error:
            actor.error = error
        finally:
            sys.settrace(None)
            actor.done = True
            self._hand_on(actor)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        return self._trace_line if frame.f_code.co_filename in self._files else None

    def _trace_line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self._point()
        return self._trace_line

    def _point(self) -> None:
        me = self.running
        if me is None or self._stuck:
            return
        self.step += 1
        others = [actor.number for actor in self.actors if actor is not me and actor.can_run]
        if others:
            self.choices.append((self.step, others))
        to = self._schedule.get(self.step)
        if to is not None and to in others:
            self._switch(me, self.actors[to])

    def _hand_on(self, me: Actor) -> None:
        """Somebody else goes on, because this one waits or is done."""
        chosen = self._next()
        if chosen is not None and chosen is not me:
            chosen = self._by_schedule(me, chosen)
        if chosen is None:
            if all(actor.done for actor in self.actors):
                self.running = None
                self._over.release()
                return
            self._stuck = True
            self._over.release()
            if me.done:
                return
            raise Stuck(me.name)
        if chosen is not me:
            self._switch(me, chosen)

    def _by_schedule(self, me: Actor, chosen: Actor) -> Actor:
        """Who goes on where one waits or is done is a choice of the schedule's, too."""
        self.step += 1
        others = [each.number for each in self.actors if each not in (me, chosen) and each.can_run]
        if others:
            self.choices.append((self.step, others))
        to = self._schedule.get(self.step)
        return self.actors[to] if to is not None and to in others else chosen

    def _next(self) -> Actor | None:
        """Return the first who can go on; if all wait, time passes until one need not any more."""
        for _ in range(2):
            for actor in self.actors:
                if actor.can_run:
                    return actor
            times = [actor.wakes_at for actor in self.actors if not actor.done and actor.wakes_at is not None]
            if not times:
                return None
            self.clock.now = max(self.clock.now, min(times))
        return None

    def _switch(self, me: Actor, to: Actor) -> None:
        self.running = to
        to.go.release()
        if not me.done:
            # A run that is stuck leaves its threads behind: they are daemons.
            me.go.acquire()


def _named(actor: Actor) -> str:
    return f"stepped-{id(actor)}"


class Lock:
    """A lock, reentrant or not, whose waits the stepper sees."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, as ``threading.Lock`` has it."""
        me = threading.get_ident()
        if self._owner != me:
            self._stepper.wait(lambda: self._owner is None)
            self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back."""
        self._depth -= 1
        if not self._depth:
            self._owner = None


def all_schedules(
    play: Callable[[list[Preemption]], Stepper], preemptions: int, every: int = 1
) -> Iterator[list[Preemption]]:
    """Yield all schedules with at most so many preemptions, each after it has been played.

    With ``every``, of the steps of a run only each so-manieth is tried, and each place of each actor first.
    """
    pending: list[list[Preemption]] = [[]]
    while pending:
        schedule = pending.pop()
        played = play(schedule)
        yield schedule
        if len(schedule) == preemptions:
            continue
        last = schedule[-1].step if schedule else 0
        further = [(step, to) for step, others in played.choices if step > last for to in others]
        pending += [
            [*schedule, Preemption(step, to)] for step, to in itertools.islice(further, 0, None, every)
        ]
