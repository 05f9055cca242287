"""Which route is asked next and whose answer counts: rows, and what no order of events may break."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stallwatch.core.hedging import (
    MIN_SAMPLES,
    SAMPLES,
    SAVED_HEDGES,
    Accept,
    Fail,
    HedgeShare,
    Launch,
    LearnedDelay,
    Race,
)
from stallwatch.core.words import AttemptRole, RetryDecision

D = RetryDecision
FIRST, FALLBACK, HEDGE = AttemptRole.FIRST, AttemptRole.FALLBACK, AttemptRole.HEDGE


def launch(leg: int, route: int, role: AttemptRole) -> Launch:
    return Launch(leg=leg, route=route, role=role)


def fails(leg: int, decision: RetryDecision = D.FALLBACK) -> Callable[[Race], object]:
    return lambda race: race.on_failure(leg, decision)


def answers(leg: int) -> Callable[[Race], object]:
    return lambda race: race.on_progress(leg)


def due(race: Race) -> object:
    return race.on_due(allowed=True)


def refused(race: Race) -> object:
    return race.on_due(allowed=False)


Steps = list[tuple[Callable[[Race], object], object]]

STORIES: dict[str, tuple[int, Steps]] = {
    "the first answers": (2, [(answers(0), Accept(leg=0, losers=()))]),
    "the first fails and the second answers": (
        2,
        [(fails(0), launch(1, 1, FALLBACK)), (answers(1), Accept(leg=1, losers=()))],
    ),
    "each route is asked once": (
        3,
        [(fails(0), launch(1, 1, FALLBACK)), (fails(1), launch(2, 2, FALLBACK)), (fails(2), Fail(leg=2))],
    ),
    "what no route can mend ends it": (2, [(fails(0, D.FAIL_FAST), Fail(leg=0))]),
    "the only route fails": (1, [(fails(0), Fail(leg=0))]),
    "the hedge answers first": (
        2,
        [(due, launch(1, 1, HEDGE)), (answers(1), Accept(leg=1, losers=(0,))), (answers(0), None)],
    ),
    "the hedge loses": (2, [(due, launch(1, 1, HEDGE)), (answers(0), Accept(leg=0, losers=(1,)))]),
    "a hedge of a single route asks it again": (1, [(due, launch(1, 0, HEDGE))]),
    "a hedge the share does not admit is not started": (
        2,
        [(refused, None), (fails(0), launch(1, 1, FALLBACK))],
    ),
    "the first fails while the hedge runs": (
        2,
        [(due, launch(1, 1, HEDGE)), (fails(0), None), (answers(1), Accept(leg=1, losers=()))],
    ),
    "the first fails for good while the hedge runs": (
        2,
        [(due, launch(1, 1, HEDGE)), (fails(0, D.FAIL_FAST), None), (fails(1), Fail(leg=1))],
    ),
    "the hedge fails while the first runs": (
        2,
        [(due, launch(1, 1, HEDGE)), (fails(1), None), (fails(0, D.EXHAUSTED), Fail(leg=0))],
    ),
    "both fail and a third route is left": (
        3,
        [(due, launch(1, 1, HEDGE)), (fails(0), None), (fails(1), launch(2, 2, FALLBACK))],
    ),
    "the user's cancel ends it although another runs": (
        2,
        [(due, launch(1, 1, HEDGE)), (fails(0, D.CANCELLED), Fail(leg=0))],
    ),
    "a loser's failure decides nothing": (
        2,
        [(due, launch(1, 1, HEDGE)), (answers(1), Accept(leg=1, losers=(0,))), (fails(0), None)],
    ),
}


@pytest.mark.parametrize(("routes", "steps"), STORIES.values(), ids=STORIES.keys())
def test_story(routes: int, steps: Steps) -> None:
    race = Race(routes=routes, delay=1.0)
    assert race.begin(10.0) == launch(0, 0, FIRST)
    for act, expected in steps:
        assert act(race) == expected


DUE: dict[str, tuple[float | None, list[Callable[[Race], object]], float | None]] = {
    "at the delay after the beginning": (1.5, [], 11.5),
    "never without a delay": (None, [], None),
    "once": (1.5, [due], None),
    "once, even if refused": (1.5, [refused], None),
    "not after an answer": (1.5, [answers(0)], None),
    "not beside a fallback": (1.5, [fails(0)], None),
}


@pytest.mark.parametrize(("delay", "before", "expected"), DUE.values(), ids=DUE.keys())
def test_a_hedge_is_due(
    delay: float | None, before: list[Callable[[Race], object]], expected: float | None
) -> None:
    race = Race(routes=2, delay=delay)
    race.begin(10.0)
    for act in before:
        act(race)
    assert race.due() == expected


@pytest.mark.parametrize(
    ("routes", "before", "leg", "left"),
    [
        (1, [], 0, 0),
        (3, [], 0, 2),
        (2, [fails(0)], 1, 0),
        (2, [due], 0, 1),
        (1, [due], 1, 1),
        (2, [due, fails(1)], 0, 0),
        (3, [due], 0, 2),
    ],
)
def test_what_is_left_to_rely_on(
    routes: int, before: list[Callable[[Race], object]], leg: int, left: int
) -> None:
    race = Race(routes=routes, delay=1.0)
    race.begin(0.0)
    for act in before:
        act(race)
    assert race.routes_left(leg) == left


@pytest.mark.parametrize(("allowed", "hedged"), [(True, True), (False, False)])
def test_a_race_knows_whether_it_was_hedged(allowed: bool, hedged: bool) -> None:
    race = Race(routes=2, delay=1.0)
    race.begin(0.0)
    assert not race.hedged
    race.on_due(allowed=allowed)
    assert race.hedged is hedged


class Races(RuleBasedStateMachine):
    """Whatever happens in whatever order, every leg is accounted for and one at most wins."""

    @initialize(routes=st.integers(1, 4), delay=st.none() | st.floats(0.01, 10))
    def begin(self, routes: int, delay: float | None) -> None:
        self.routes, self.delay = routes, delay
        self.race = Race(routes=routes, delay=delay)
        self.launches = [self.race.begin(0.0)]
        self.live = {0}
        self.winner: int | None = None
        self.failed: Fail | None = None

    def take(self, verdict: Any) -> None:
        if isinstance(verdict, Launch):
            assert verdict.leg == len(self.launches)
            assert 0 <= verdict.route < self.routes
            assert self.winner is None
            self.launches.append(verdict)
            self.live.add(verdict.leg)
        elif isinstance(verdict, Accept):
            assert self.winner is None
            assert set(verdict.losers) == self.live - {verdict.leg}
            self.winner = verdict.leg
        elif isinstance(verdict, Fail):
            assert self.failed is None
            assert self.winner is None
            self.failed = verdict

    @precondition(lambda self: self.race.due() is not None and self.failed is None)
    @rule(allowed=st.booleans())
    def a_hedge_is_due(self, allowed: bool) -> None:
        assert self.race.due() == self.delay
        verdict = self.race.on_due(allowed=allowed)
        assert (verdict is not None) is allowed
        self.take(verdict)
        assert self.race.due() is None

    @precondition(lambda self: self.live and self.failed is None)
    @rule(data=st.data())
    def a_leg_answers(self, data: st.DataObject) -> None:
        leg = data.draw(st.sampled_from(sorted(self.live)))
        verdict = self.race.on_progress(leg)
        assert isinstance(verdict, Accept) is (self.winner is None)
        self.take(verdict)
        self.live.discard(leg)

    @precondition(lambda self: self.live and self.failed is None)
    @rule(data=st.data(), decision=st.sampled_from([D.FALLBACK, D.FAIL_FAST, D.EXHAUSTED, D.DEADLINE]))
    def a_leg_fails(self, data: st.DataObject, decision: RetryDecision) -> None:
        leg = data.draw(st.sampled_from(sorted(self.live)))
        self.live.discard(leg)
        others = bool(self.live)
        verdict = self.race.on_failure(leg, decision)
        if self.winner is not None or others:
            assert verdict is None
        else:
            # Nobody runs any more: the call goes on or ends now, or it would hang.
            assert isinstance(verdict, Launch | Fail)
            assert isinstance(verdict, Launch) <= (decision is D.FALLBACK)
        self.take(verdict)

    @precondition(lambda self: self.live and self.failed is None and self.winner is None)
    @rule(data=st.data())
    def the_user_cancels(self, data: st.DataObject) -> None:
        leg = data.draw(st.sampled_from(sorted(self.live)))
        self.live.discard(leg)
        assert self.race.on_failure(leg, D.CANCELLED) == Fail(leg=leg)
        self.failed = Fail(leg=leg)

    @precondition(lambda self: not self.live or self.failed is not None)
    @rule()
    def the_call_is_over(self) -> None:
        assert self.failed is not None or self.winner is not None
        assert self.race.due() is None or self.failed is not None

    @invariant()
    def one_hedge_at_most(self) -> None:
        if hasattr(self, "race"):
            roles = [each.role for each in self.launches]
            assert roles == self.race.roles
            assert roles.count(HEDGE) <= (self.delay is not None)
            assert roles[0] is FIRST
            assert roles.count(FIRST) == 1

    @invariant()
    def no_route_is_asked_twice_but_a_single_one(self) -> None:
        if hasattr(self, "race"):
            routes = [each.route for each in self.launches]
            if self.routes > 1:
                assert routes == list(range(len(routes)))
            assert len(routes) <= max(self.routes, 1 + (self.delay is not None and self.routes == 1))

    @invariant()
    def a_decided_race_stays_decided(self) -> None:
        if hasattr(self, "race"):
            assert self.race.decided is (self.winner is not None)

    @invariant()
    def somebody_runs_or_it_has_ended(self) -> None:
        if hasattr(self, "race"):
            assert self.live or self.failed is not None or self.winner is not None


TestRaces = Races.TestCase
TestRaces.settings = settings(max_examples=300, stateful_step_count=12, deadline=None)


@settings(deadline=None)
@given(
    share=st.floats(0.001, 1.0),
    wanted=st.lists(st.booleans(), max_size=400),
)
def test_hedges_never_exceed_their_share(share: float, wanted: list[bool]) -> None:
    """Earned before it is spent: over the calls so far, at every moment."""
    budget, spent = HedgeShare(share), 0
    for calls, wants in enumerate(wanted, 1):
        budget.on_call()
        spent += wants and budget.take()
        assert spent <= calls * share + 1e-6


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.25, 0.3, 0.5, 1.0, 1])
def test_of_calls_that_all_want_a_hedge_exactly_the_share_gets_one(share: float) -> None:
    budget = HedgeShare(share)
    got = 0
    for _ in range(200):
        budget.on_call()
        got += budget.take()
    assert got == pytest.approx(200 * share, abs=1e-6)


def test_what_a_quiet_hour_saves_is_bounded() -> None:
    budget = HedgeShare(0.5)
    for _ in range(1000):
        budget.on_call()
    assert sum(budget.take() for _ in range(1000)) == SAVED_HEDGES


def test_a_percentile_of_too_few_samples_is_none() -> None:
    learned = LearnedDelay(50.0)
    for _ in range(MIN_SAMPLES - 1):
        learned.learn(1.0)
        assert learned.delay() is None
    learned.learn(1.0)
    assert learned.delay() == 1.0


@settings(deadline=None)
@given(
    percentile=st.floats(0.0, 99.9),
    samples=st.lists(st.floats(0.001, 100), min_size=MIN_SAMPLES, max_size=SAMPLES + 60),
)
def test_the_delay_is_a_percentile_of_the_newest_samples(percentile: float, samples: list[float]) -> None:
    learned = LearnedDelay(percentile)
    for sample in samples:
        learned.learn(sample)
    kept, delay = samples[-SAMPLES:], learned.delay()
    assert delay is not None
    wanted = len(kept) * percentile / 100
    # The definition of a percentile, whatever the convention between two samples.
    assert sum(sample < delay for sample in kept) <= wanted + 1e-6
    assert sum(sample <= delay for sample in kept) >= wanted - 1e-6
    assert delay in kept


@pytest.mark.parametrize(
    ("percentile", "expected"), [(0.0, 1), (50.0, 100), (90.0, 180), (95.0, 190), (99.0, 198), (99.9, 200)]
)
def test_percentiles_of_one_to_two_hundred(percentile: float, expected: int) -> None:
    learned = LearnedDelay(percentile)
    for sample in range(1, 201):
        learned.learn(float(sample))
    delay = learned.delay()
    assert delay is not None
    # Nearest rank, from either side of the rank.
    assert math.floor(delay) in (expected, expected + 1)


def test_a_hedge_that_could_not_be_started_leaves_its_route_to_a_fallback() -> None:
    race = Race(routes=2, delay=1.0)
    race.begin(0.0)
    hedge = race.on_due(allowed=True)
    assert hedge is not None
    race.withdraw(hedge.leg)
    assert not race.hedged
    following = race.on_failure(0, RetryDecision.FALLBACK)
    assert following == Launch(leg=1, route=1, role=AttemptRole.FALLBACK)
