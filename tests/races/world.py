"""One governed stream and those who may end it, in threads that a schedule moves."""

from __future__ import annotations

import functools
import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import openai
from benchmarks.feed import MESSAGES

import stallwatch
from races.lines import ANSWER_ENDS, Line, SyncBackend, core, http
from races.stepping import Actor, Lock, Preemption, Stepper
from stallwatch.core.words import Outcome
from stallwatch.runtime import interrupt, registry, sweeper, sync_guard, waker
from stallwatch.runtime.inflight import InFlight
from stallwatch.telemetry import spans
from stallwatch.telemetry.recorder import Recorders
from stallwatch.testing import FakeClock
from support.records import Records
from support.telemetry import Captured, instrumented

__all__ = ["BACKSTOP", "ENDS", "IDLE", "Play", "Stage", "Told", "World", "stage", "watched_world"]

Play = Callable[[list[str], list[Preemption]], "World"]

IDLE, BACKSTOP = 60.0, 300.0

_PARTS = (
    "inflight",
    "bytestream",
    "interrupt",
    "own_deadline",
    "settling",
    "sync_guard",
    "waking",
    "sweeper",
)
_OTHERS = (
    "core.phases",
    "telemetry.spans",
    "runtime.splicing",
    "runtime.replaceable",
    "runtime.retrying",
    "sdk.calls",
    "run",
)


def files(*names: str) -> frozenset[str]:
    """Return the source files of modules of stallwatch."""
    found = [sys.modules[f"stallwatch.{name}"].__file__ for name in names]
    return frozenset(file for file in found if file is not None)


def watched_files() -> frozenset[str]:
    """Return the files in whose lines threads may be held: those of the finish protocol."""
    return files(*(f"runtime.{name}" for name in _PARTS), *_OTHERS)


@functools.cache
def _transport() -> Any:
    """Made once, for its TLS is costly; each world gives it a pool of its own."""
    return http.HTTPTransport()


@dataclass
class Told:
    """What a run of the world has come to."""

    outcomes: list[str] = field(default_factory=list)
    """Of each time that the run's end was told."""
    error: BaseException | None = None
    """What the reader was raised."""
    chunks: int = 0
    late_cancels: list[str] = field(default_factory=list)
    """Outcomes that were given although the user had cancelled before."""


class World:
    """One stream, opened and read once; its connection is ``line``, its run ``run``."""

    def __init__(self, captured: Captured, clock: FakeClock, watched: frozenset[str]) -> None:
        self.captured = captured
        self.clock = clock
        self.stepper = Stepper(clock, watched)
        self.told = Told()
        self.jobs: list[Callable[[], object]] = []
        """Left for the helper threads."""
        self.scope = stallwatch.Run(name="race")
        self.scope._lock = Lock(self.stepper)  # type: ignore[assignment]
        self.backend = SyncBackend(self.stepper.wait, clock)
        self.held: list[Any] = []
        """What the user holds: the stream."""

    def open(self) -> None:
        """Make the call and read its first chunk."""
        transport = _transport()
        transport._pool = core.ConnectionPool(network_backend=self.backend)
        self.client = openai.OpenAI(
            base_url="http://127.0.0.1:1/v1",
            api_key="none",
            max_retries=0,
            http_client=http.Client(transport=transport),
        )
        with self.scope:
            stream = self.client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        next(stream)
        self.response = stream.response
        self.held.append(stream)
        (self.run,) = registry.live()
        assert isinstance(self.run, InFlight)

    @property
    def line(self) -> Line:
        """The stream's connection."""
        return self.backend.lines[0]

    # Who acts

    def reader(self) -> None:
        """Read to the end, and let the stream go."""
        stream = self.held.pop()
        try:
            for _ in stream:
                self.told.chunks += 1
        except Exception as error:
            self.told.error = error.with_traceback(None)
            error.__cause__ = error.__context__ = None

    def helper(self) -> None:
        """The helper threads: do what has been left, as long as there are calls."""
        while True:
            self.stepper.wait(lambda: bool(self.jobs) or self._nobody_else())
            if not self.jobs:
                return
            self.jobs.pop(0)()

    def _nobody_else(self) -> bool:
        return all(actor.done or actor.name == "helper" for actor in self.stepper.actors)

    def insist(self, wake: Callable[[], bool]) -> None:
        """As the waker does: again and again, with time passing."""
        while wake():
            self.stepper.wait(lambda: False, self.clock.now + 0.01)

    def cancel(self) -> None:
        """The user cancels the run."""
        self.scope.cancel("user")

    def deadline(self) -> None:
        """The time of the deadline comes; the reader looks a second time, and more time passes."""
        self.clock.advance(IDLE)
        waits = self.line.waits
        self.stepper.wait(lambda: self.run.ended or self.line.waits > waits)
        self.clock.advance(1)

    def end(self) -> None:
        """The server sends the rest of the answer."""
        try:
            self.line.server.sendall(ANSWER_ENDS)
        except OSError:
            # The client has closed before.
            pass

    def lost(self) -> None:
        """The connection breaks."""
        self.line.server.close()

    def close(self) -> None:
        """The user closes the response from another thread."""
        if self.response is not None:
            self.response.close()

    def backstop(self) -> None:
        """The sweeper looks for spans without activity, and finds this one."""
        self.clock.advance(BACKSTOP + 1)
        sweeper._look(self.clock())

    def drop(self) -> None:
        """The user lets the stream go unread."""
        self.held.clear()
        self.response = None
        gc.collect()

    def play(self, names: list[str], schedule: list[Preemption]) -> None:
        """Open the stream and have them act."""
        self.open()
        if "reader" not in names and "drop" not in names:
            raise ValueError("somebody must hold the stream")
        actors = [Actor(name, getattr(self, name)) for name in [names[0], "helper", *names[1:]]]
        self.stepper.play(actors, schedule)

    def leave(self) -> None:
        """Close the client."""
        self.client.close()
        for line in self.backend.lines:
            line.server.close()


ENDS = ("cancel", "deadline", "end", "lost", "close", "backstop")
"""What may come while a reader waits."""


@dataclass
class Stage:
    """What the worlds of a test have in common, with time that stands still and helper threads that do not run."""

    captured: Captured
    clock: FakeClock
    records: Records
    world: Any = None
    """The one that plays: what is left for the helpers goes to its ``jobs``, and who is woken to its ``insist``."""

    def enter(self, world: Any) -> None:
        """Play this world from here on."""
        self.captured.forget()
        self.world = world

    def soon(self, job: Callable[[], object]) -> None:
        """In place of the waker's."""
        self.world.jobs.append(job)

    def insist(self, wake: Callable[[], bool]) -> None:
        """In place of the waker's."""
        self.world.insist(wake)

    def orphan(self, run: InFlight, close: Callable[[], object] | None) -> None:
        """In place of the sweeper's."""
        self.world.jobs.append(lambda: sweeper._sweep(run, close))

    def nothing_was_logged(self) -> None:
        """Fail on any warning."""
        assert not self.records.told, self.records.told


@contextmanager
def stage() -> Iterator[Stage]:
    """Instrument, stop the clock, and take the helper threads' place."""
    records = Records()
    real_end = Recorders.end
    with ExitStack() as stack:
        policy = stallwatch.Policy.of(idle=IDLE, total=None)
        captured = stack.enter_context(instrumented(policy=policy, span_backstop=BACKSTOP))
        made = Stage(captured, FakeClock(), records)

        def tell(recorders: Recorders, run: Any, now: float) -> None:
            made.world.told.outcomes.append(run.tracker.outcome.value)
            real_end(recorders, run, now)

        for name, module in list(sys.modules.items()):
            if name.startswith("stallwatch.") and hasattr(module, "monotonic"):
                stack.enter_context(patch.object(module, "monotonic", made.clock))
        for owner, name, instead in (
            (waker, "soon", made.soon),
            (waker, "insist", made.insist),
            (waker, "ensure_running", lambda: None),
            (sweeper, "ensure_running", lambda: None),
            (sweeper, "orphan", made.orphan),
            (Recorders, "end", tell),
        ):
            stack.enter_context(patch.object(owner, name, instead))
        logging.getLogger().addHandler(records)
        stack.callback(logging.getLogger().removeHandler, records)
        # What is there already need not be looked at in each collection.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        yield made


@contextmanager
def watched_world() -> Iterator[Play]:
    """Give what plays a world by a schedule and returns it."""
    with ExitStack() as stack:
        shared = stack.enter_context(stage())
        real_settle = sync_guard.settle

        def settle(run: InFlight, error: BaseException) -> BaseException | None:
            cancelled = run.cancelled and not run.closed and not run.ended
            raised = real_settle(run, error)
            if cancelled and run.tracker.outcome is Outcome.STALLED:
                shared.world.told.late_cancels.append("stalled")
            return raised

        def lock() -> Lock:
            return Lock(shared.world.stepper)

        locks = SimpleNamespace(**{**vars(threading), "Lock": lock, "RLock": lock})
        stack.enter_context(patch.object(interrupt, "threading", locks))
        stack.enter_context(patch.object(core._synchronization, "threading", locks))
        stack.enter_context(patch.object(sync_guard, "settle", settle))
        stack.enter_context(patch.dict(spans._state))
        watched = watched_files()

        def play(names: list[str], schedule: list[Preemption]) -> World:
            world = World(shared.captured, shared.clock, watched)
            shared.enter(world)
            spans._state["lock"] = lock()
            world.play(names, schedule)
            world.leave()
            shared.nothing_was_logged()
            return world

        yield play
