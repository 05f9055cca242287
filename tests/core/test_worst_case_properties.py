"""Whatever servers do, no caller waits longer than the worst case says: runs of random failures, by a clock of numbers.

A small driver plays what a server does into the real core, attempt after attempt: the clocks, the decision, back-off,
the route's queue and its budget. Other runs of the process meddle with the route.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallwatch.core.attempts import Next, Standing, after_attempt
from stallwatch.core.budget import LONGEST_SERVER_WAIT, RetryBudget, back_off
from stallwatch.core.chunks import FINISH, HEARTBEAT, PREAMBLE, REASONING, USAGE, VISIBLE, ChunkFacts
from stallwatch.core.classify import Verdict
from stallwatch.core.pacing import Pacing
from stallwatch.core.phases import Limits, Tracker, Whole
from stallwatch.core.words import Diagnosis, FailureKind, FailureReason, Outcome, RetryDecision
from stallwatch.core.worst_case import worst_case

ROUNDING = 1e-6
PATIENCE = 400
"""Steps after which a stream that nothing bounds is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt ends in an error."""

    diagnosis: Diagnosis = Diagnosis.RETRYABLE
    server_wait: float | None = None

    @property
    def verdict(self) -> Verdict:
        return Verdict(
            kind=FailureKind.SERVER,
            diagnosis=self.diagnosis,
            reason=FailureReason.SERVER_ERROR,
            transport_code=None,
        )


RESET = Failure()
STALLED = Failure()
REFUSED = Failure(diagnosis=Diagnosis.FAIL_FAST)
END, BYTES = "end", "bytes"

Event = str | ChunkFacts | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What a server does in one attempt: events after so many seconds each, then ``drip`` for ever, or silence."""

    events: Sequence[tuple[float, Event]] = ()
    drip: tuple[float, Event] | None = None

    def step(self, number: int) -> tuple[float, Event] | None:
        return self.events[number] if number < len(self.events) else self.drip


SILENT = Play()


@dataclass(slots=True, kw_only=True)
class Ran:
    """What a run's caller went through, in seconds of waiting."""

    first: float | None = None
    """Until the first progress, or the error."""
    silences: list[float] = field(default_factory=list)
    total: float = 0.0
    attempts: int = 0
    sleeps: list[float] = field(default_factory=list)
    last: RetryDecision | None = None


@dataclass(slots=True, kw_only=True)
class Driver:
    """Sends attempts, waits, and asks the core what is next. Whatever must never happen is asserted on the way."""

    limits: Limits
    retries: int
    plays: Sequence[Play]
    pauses: float = 0.0
    """Seconds the caller spends on each chunk."""
    strict: bool = True
    """Whether any chunk counts as delivered, or only one with progress."""
    random: float = 0.0
    others: Sequence[float] = ()
    """Waits that the server has asked other runs for: each of them fails and reserves before each of our attempts."""
    now: float = 0.0
    ran: Ran = field(default_factory=Ran)
    silence: float = 0.0
    delivered: bool = False
    pacing: Pacing = field(default_factory=Pacing)
    budget: RetryBudget = field(default_factory=RetryBudget)

    def run(self) -> Ran:
        tracker = Tracker(self.limits, self.now)
        self.budget.on_call(self.now)
        while True:
            assert not self.delivered, "tried again after delivery"
            self.ran.attempts += 1
            tracker.on_attempt(self.now)
            found = self.attempt(tracker, self.plays[(self.ran.attempts - 1) % len(self.plays)])
            if not isinstance(found, Failure):
                break
            decided = self.decide(tracker, found)
            self.ran.last = decided.decision
            if decided.decision is not RetryDecision.RETRY:
                break
            self.sleep(tracker, decided.delay)
        tracker.finish(Outcome.FAILED, self.now)
        assert tracker.waited(self.now) == pytest.approx(self.ran.total, abs=ROUNDING)
        if self.ran.first is None:
            self.ran.first = self.ran.total
        return self.ran

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.ran.total += seconds
        self.silence += seconds

    def attempt(self, tracker: Tracker, play: Play) -> Failure | Whole | None:
        """Play one attempt to its end; None when the answer ended or nothing ever will."""
        for number in range(PATIENCE):
            step = play.step(number)
            tracker.on_wait(self.now)
            due = tracker.due()
            if step is None and due is None:
                return None
            arrival = None if step is None else self.now + step[0]
            if due is not None and (arrival is None or due.at <= arrival):
                self.wait(max(due.at - self.now, 0.0))
                return self.judge(tracker)
            assert step is not None
            self.wait(step[0])
            end = self.take(tracker, step[1])
            if end is not None:
                return None if end is END else end
        return None

    def judge(self, tracker: Tracker) -> Failure | Whole:
        found = tracker.judge(self.now + ROUNDING)
        assert found is not None
        tracker.on_stall(found)
        if isinstance(found, Whole):
            return found
        if self.ran.first is not None:
            self.ran.silences.append(self.silence)
        return STALLED

    def take(self, tracker: Tracker, event: Event) -> Failure | str | None:
        """Take what has arrived; return what ends the attempt, if it does."""
        if isinstance(event, Failure) or event is END:
            return event  # type: ignore[return-value]
        if isinstance(event, str):
            getattr(tracker, f"on_{event}")(self.now)
            return None
        tracker.on_bytes(self.now)
        tracker.on_chunk(event, self.now)
        progress = event.progress or self.limits.any_chunk_is_progress
        self.delivered |= self.strict or progress
        if progress:
            if self.ran.first is None:
                self.ran.first = self.ran.total
            else:
                self.ran.silences.append(self.silence)
            self.silence = 0.0
        self.now += self.pauses
        return None

    def decide(self, tracker: Tracker, failure: Failure) -> Next:
        for wait in self.others:
            self.pacing.on_failure(self.now, wait)
            self.pacing.reserve(self.now, wait)
        made = self.ran.attempts - 1
        own = back_off(made, self.random) if failure.server_wait is None else failure.server_wait
        self.pacing.on_failure(self.now, failure.server_wait)
        slot = self.pacing.reserve(self.now, own)
        total = self.limits.total
        decided = after_attempt(
            Standing(
                verdict=failure.verdict,
                delivered=self.delivered,
                cancelled=False,
                retries_made=made,
                retries_allowed=self.retries,
                replayable=True,
                total_left=None if total is None else total - tracker.waited(self.now),
                delay=slot.delay,
                server_wait=failure.server_wait,
                budget_left=self.budget.take(self.now),
            )
        )
        if decided.decision is RetryDecision.RETRY:
            assert decided.delay >= own, "came back before it was asked to"
        else:
            self.pacing.release(slot)
        return decided

    def sleep(self, tracker: Tracker, delay: float) -> None:
        tracker.on_back_off(self.now)
        assert delay <= LONGEST_SERVER_WAIT
        total = self.limits.total
        assert total is None or tracker.waited(self.now) + delay <= total + ROUNDING, "slept past the total"
        self.ran.sleeps.append(delay)
        self.wait(delay)


# Any run

STEP = st.floats(0, 200)
LIMIT = st.none() | st.floats(0.01, 400)
LIMITS = st.builds(
    Limits,
    connect=LIMIT,
    first_token=LIMIT,
    thinking=LIMIT,
    idle=LIMIT,
    total=st.none() | st.floats(0.1, 5000),
    keepalive_factor=st.floats(1, 10),
    any_chunk_is_progress=st.booleans(),
)
WATCHED = LIMITS.filter(lambda limits: None not in (limits.first_token, limits.thinking, limits.idle))
SERVER_WAIT = st.floats(0.001, 200)
FAILURES = st.one_of(
    st.just(RESET),
    st.builds(Failure, server_wait=SERVER_WAIT),
    st.just(REFUSED),
    st.just(Failure(diagnosis=Diagnosis.UNKNOWN)),
)
QUIET = st.sampled_from(["connecting", "connected", BYTES, HEARTBEAT, PREAMBLE])
LOUD = st.sampled_from([REASONING, USAGE, VISIBLE, FINISH, replace(FINISH, finishes=1), END])
DRIP = st.tuples(st.floats(0.5, 100), st.sampled_from([BYTES, HEARTBEAT]))

BEFORE = st.lists(st.tuples(STEP, QUIET), max_size=5)
FAILING = st.builds(
    lambda before, failure: Play(events=[*before, failure]), BEFORE, st.tuples(STEP, FAILURES)
)
DRIPPING = st.builds(lambda before, drip: Play(events=before, drip=drip), BEFORE, st.none() | DRIP)
TALKING = st.builds(
    lambda events, drip: Play(events=events, drip=drip),
    st.lists(st.tuples(STEP, st.one_of(QUIET, LOUD, LOUD, FAILURES)), max_size=20),
    st.none() | DRIP,
)
PLAYS = st.lists(st.one_of(FAILING, FAILING, DRIPPING, TALKING), min_size=1, max_size=5)
RUNS = {
    "retries": st.integers(0, 5),
    "plays": PLAYS,
    "pauses": st.sampled_from([0.0, 0.0, 7.0, 500.0]),
    "strict": st.booleans(),
    "random": st.floats(0, 1, exclude_max=True),
    "others": st.lists(st.floats(0.1, 130), max_size=6),
    "now": st.sampled_from([0.0, 1e5 / 3]),
}

many = settings(deadline=None, max_examples=400)


@many
@given(st.builds(Driver, limits=st.one_of(WATCHED, LIMITS), **RUNS))  # type: ignore[arg-type]
def test_no_caller_waits_longer_than_the_worst_case(driver: Driver) -> None:
    worst = worst_case(driver.limits, driver.retries)
    ran = driver.run()
    assert ran.first is not None
    assert worst.first_token is None or ran.first <= worst.first_token + ROUNDING
    assert worst.silence is None or all(silence <= worst.silence + ROUNDING for silence in ran.silences)
    assert worst.total is None or ran.total <= worst.total + ROUNDING
    assert ran.attempts <= 1 + driver.retries
    assert len(ran.sleeps) == ran.attempts - 1


@many
@given(st.builds(Driver, limits=LIMITS, **RUNS | {"retries": st.just(0)}))  # type: ignore[arg-type]
def test_without_retries_there_is_one_attempt(driver: Driver) -> None:
    assert driver.run().attempts == 1


# The worst case is not only a bound, but the least one

LIMITED = Limits(connect=1, first_token=10, thinking=30, idle=20, total=10_000)
DRIPPED = [(0.99, BYTES)] * 20
ALMOST = Play(events=[*DRIPPED, (0.19, Failure(server_wait=120.0))])
"""Keepalives as long as they are allowed, and then a word to come back in two minutes."""

ATTAINED: dict[str, tuple[Driver, float]] = {
    "signs of life, then the longest wait, twice": (
        Driver(limits=LIMITED, retries=2, plays=[ALMOST, ALMOST, Play(drip=(1.0, BYTES))]),
        300,
    ),
    "a total in the midst of an attempt": (
        Driver(limits=replace(LIMITED, total=150.0), retries=2, plays=[ALMOST, Play(drip=(1.0, BYTES))]),
        150,
    ),
    "a dead wire, when nothing may be stretched": (
        Driver(limits=replace(LIMITED, keepalive_factor=1.0), retries=0, plays=[SILENT]),
        10,
    ),
}


@pytest.mark.parametrize(("driver", "longest"), ATTAINED.values(), ids=ATTAINED.keys())
def test_the_worst_case_happens(driver: Driver, longest: float) -> None:
    driver = replace(driver, ran=Ran(), pacing=Pacing(), budget=RetryBudget())
    worst = worst_case(driver.limits, driver.retries)
    assert worst.first_token == longest
    assert driver.run().first == pytest.approx(longest, abs=0.1)


@pytest.mark.parametrize(
    ("chunk", "drip", "longest"), [(REASONING, BYTES, 60), (VISIBLE, BYTES, 20)], ids=["thinking", "idle"]
)
def test_the_longest_silence_happens(chunk: ChunkFacts, drip: Event, longest: float) -> None:
    limits = replace(
        LIMITED, idle=20.0 if chunk is VISIBLE else 1.0, thinking=30.0 if chunk is REASONING else 1.0
    )
    driver = Driver(limits=limits, retries=2, plays=[Play(events=[(1.0, chunk)], drip=(1.0, drip))])
    worst = worst_case(limits, 2)
    assert worst.silence == longest
    ran = driver.run()
    assert ran.silences == [pytest.approx(longest)]
    assert ran.attempts == 1


# Stories

STORIES: dict[str, tuple[Driver, Ran]] = {
    "three silent attempts": (
        Driver(limits=LIMITED, retries=2, plays=[SILENT]),
        Ran(first=31.5, total=31.5, attempts=3, sleeps=[0.5, 1], last=RetryDecision.EXHAUSTED),
    ),
    "a total shorter than the attempts it would take": (
        Driver(limits=replace(LIMITED, total=14.0), retries=2, plays=[SILENT]),
        Ran(first=14, total=14, attempts=2, sleeps=[0.5], last=RetryDecision.DEADLINE),
    ),
    "the server asks for more than is left": (
        Driver(
            limits=replace(LIMITED, total=5.0),
            retries=2,
            plays=[Play(events=[(1.0, Failure(server_wait=4.0))])],
        ),
        Ran(first=1, total=1, attempts=1, last=RetryDecision.DEADLINE),
    ),
    "the server asks for ten minutes": (
        Driver(limits=LIMITED, retries=2, plays=[Play(events=[(1.0, Failure(server_wait=600.0))])]),
        Ran(first=1, total=1, attempts=1, last=RetryDecision.SERVER_WAIT),
    ),
    "other runs were told to stay away": (
        Driver(limits=LIMITED, retries=1, plays=[Play(events=[(1.0, RESET)])], others=[50.0]),
        Ran(first=52.1, total=52.1, attempts=2, sleeps=[50.1], last=RetryDecision.EXHAUSTED),
    ),
    "a cut after the first word": (
        Driver(limits=LIMITED, retries=2, plays=[Play(events=[(1.0, VISIBLE), (1.0, RESET)])]),
        Ran(first=1, total=2, attempts=1, last=RetryDecision.PARTIAL_OUTPUT),
    ),
    "a second attempt that answers": (
        Driver(limits=LIMITED, retries=2, plays=[SILENT, Play(events=[(2.0, VISIBLE), (3.0, END)])]),
        Ran(first=12.5, total=15.5, attempts=2, sleeps=[0.5], last=RetryDecision.RETRY),
    ),
}


@pytest.mark.parametrize(("driver", "expected"), STORIES.values(), ids=STORIES.keys())
def test_story(driver: Driver, expected: Ran) -> None:
    ran = replace(driver, ran=Ran(), pacing=Pacing(), budget=RetryBudget()).run()
    assert (ran.first, ran.total) == (pytest.approx(expected.first), pytest.approx(expected.total))
    assert ran.sleeps == pytest.approx(expected.sleeps)
    assert (ran.attempts, ran.last) == (expected.attempts, expected.last)


def test_a_route_whose_budget_is_spent_gets_no_more_retries() -> None:
    driver = Driver(limits=LIMITED, retries=5, plays=[Play(events=[(0.0, RESET)])])
    while driver.budget.take(0):
        pass
    ran = driver.run()
    assert (ran.attempts, ran.last) == (1, RetryDecision.BUDGET_EXHAUSTED)
