"""What follows a failed attempt: the reasons, their order, and what another route may be tried after."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallwatch.core.attempts import Next, Standing, after_attempt, may_fall_back
from stallwatch.core.budget import LONGEST_SERVER_WAIT
from stallwatch.core.classify import Verdict
from stallwatch.core.words import Diagnosis, FailureKind, FailureReason, RetryDecision

R = RetryDecision


def verdict(kind: FailureKind, diagnosis: Diagnosis, reason: FailureReason) -> Verdict:
    return Verdict(kind=kind, diagnosis=diagnosis, reason=reason, transport_code=None)


STALL = verdict(FailureKind.TRANSPORT, Diagnosis.RETRYABLE, FailureReason.STALL)
OVERLOADED = verdict(FailureKind.CAPACITY, Diagnosis.RETRYABLE, FailureReason.OVERLOADED)
BAD_REQUEST = verdict(FailureKind.CLIENT, Diagnosis.FAIL_FAST, FailureReason.BAD_REQUEST)
UNKNOWN = verdict(FailureKind.UNKNOWN, Diagnosis.UNKNOWN, FailureReason.UNCLASSIFIED)
CANCEL = verdict(FailureKind.CANCEL, Diagnosis.FAIL_FAST, FailureReason.CANCELLED)
QUOTA = verdict(FailureKind.PROVIDER, Diagnosis.FAIL_FAST, FailureReason.QUOTA)

GOOD = Standing(
    verdict=STALL,
    delivered=False,
    cancelled=False,
    retries_made=0,
    retries_allowed=2,
    replayable=True,
    total_left=60,
    delay=1,
    server_wait=None,
    budget_left=True,
)
"""Nothing stands in the way of a retry."""

OBSTACLES: list[tuple[str, dict[str, Any], RetryDecision]] = [
    ("the user has cancelled", {"cancelled": True}, R.CANCELLED),
    ("the attempt was cancelled", {"verdict": CANCEL}, R.CANCELLED),
    ("something was delivered", {"delivered": True}, R.PARTIAL_OUTPUT),
    ("the total is spent", {"total_left": 0.0}, R.DEADLINE),
    ("it would fail again", {"verdict": BAD_REQUEST}, R.FAIL_FAST),
    ("no retries are allowed", {"retries_allowed": 0}, R.RETRIES_OFF),
    ("all retries have been made", {"retries_made": 2}, R.EXHAUSTED),
    ("the request cannot be sent again", {"replayable": False}, R.NOT_REPLAYABLE),
    ("the server asks for too long", {"server_wait": 120.1}, R.SERVER_WAIT),
    ("the wait would pass the total", {"delay": 60.0}, R.DEADLINE),
    ("the budget is spent", {"budget_left": False}, R.BUDGET_EXHAUSTED),
]
"""What stands in the way of a retry, in the order of precedence, and the reason given."""


def with_obstacles(numbers: range | set[int]) -> Standing:
    """Several things in the way; where two are about one field the earlier stands."""
    changes: dict[str, Any] = {}
    for number in sorted(numbers, reverse=True):
        changes.update(OBSTACLES[number][1])
    return replace(GOOD, **changes)


def test_a_retry_waits_as_long_as_was_proposed() -> None:
    assert after_attempt(GOOD) == Next(decision=R.RETRY, delay=1)


@pytest.mark.parametrize(
    ("changes", "reason"), [row[1:] for row in OBSTACLES], ids=[row[0] for row in OBSTACLES]
)
def test_an_obstacle_is_named(changes: dict[str, Any], reason: RetryDecision) -> None:
    assert after_attempt(replace(GOOD, **changes)) == Next(decision=reason, delay=0)


@pytest.mark.parametrize("first", range(len(OBSTACLES)), ids=[row[0] for row in OBSTACLES])
def test_of_several_obstacles_the_first_is_named(first: int) -> None:
    assert after_attempt(with_obstacles(range(first, len(OBSTACLES)))).decision is OBSTACLES[first][2]


@settings(deadline=None)
@given(st.sets(st.integers(0, len(OBSTACLES) - 1)))
def test_of_any_obstacles_the_first_is_named_and_without_one_there_is_a_retry(numbers: set[int]) -> None:
    expected = OBSTACLES[min(numbers)][2] if numbers else R.RETRY
    assert after_attempt(with_obstacles(numbers)).decision is expected


EDGES: dict[str, tuple[dict[str, Any], RetryDecision]] = {
    "the longest wait a server may ask for is slept": (
        {"server_wait": 120.0, "delay": 120.0, "total_left": None},
        R.RETRY,
    ),
    "a queue as long as is never slept": ({"delay": 120.1, "total_left": None}, R.SERVER_WAIT),
    "a wait too long for anyone is not the total's fault": (
        {"server_wait": 600.0, "delay": 600.0},
        R.SERVER_WAIT,
    ),
    "a wait that ends just before the total": ({"delay": 59.999}, R.RETRY),
    "a wait that ends with the total": ({"delay": 60.0}, R.DEADLINE),
    "no wait, and hardly any total left": ({"delay": 0.0, "total_left": 0.001}, R.RETRY),
    "a total overdrawn": ({"total_left": -1.0, "delay": 0.0}, R.DEADLINE),
    "no total": ({"total_left": None}, R.RETRY),
    "the last of the retries": ({"retries_made": 1}, R.RETRY),
    "more made than allowed, by an SDK with its own count": ({"retries_made": 5}, R.EXHAUSTED),
    "what nobody can tell": ({"verdict": UNKNOWN}, R.FAIL_FAST),
    "overload": ({"verdict": OVERLOADED}, R.RETRY),
}


@pytest.mark.parametrize(("changes", "decision"), EDGES.values(), ids=EDGES.keys())
def test_edge(changes: dict[str, Any], decision: RetryDecision) -> None:
    assert after_attempt(replace(GOOD, **changes)).decision is decision


MAYBE = st.none() | st.floats(-10, 1000)
STANDINGS = st.builds(
    Standing,
    verdict=st.builds(
        Verdict,
        kind=st.sampled_from(FailureKind),
        diagnosis=st.sampled_from(Diagnosis),
        reason=st.sampled_from(FailureReason),
        transport_code=st.none(),
    ),
    delivered=st.booleans(),
    cancelled=st.booleans(),
    retries_made=st.integers(0, 4),
    retries_allowed=st.integers(0, 4),
    replayable=st.booleans(),
    total_left=MAYBE,
    delay=st.floats(0, 1000),
    server_wait=st.none() | st.floats(0.001, 1000),
    budget_left=st.booleans(),
)


@settings(deadline=None)
@given(STANDINGS)
def test_a_retry_keeps_every_promise(run: Standing) -> None:
    decided = after_attempt(run)
    if decided.decision is not R.RETRY:
        assert decided.delay == 0
        return
    assert not run.delivered
    assert not run.cancelled
    assert run.replayable
    assert run.budget_left
    assert run.verdict.diagnosis is Diagnosis.RETRYABLE
    assert run.retries_made < run.retries_allowed
    assert decided.delay == run.delay <= LONGEST_SERVER_WAIT
    assert run.total_left is None or run.delay < run.total_left


@settings(deadline=None)
@given(STANDINGS)
def test_another_route_is_never_the_answer_to_whether_to_try_again(run: Standing) -> None:
    assert after_attempt(run).decision is not R.FALLBACK


# Other routes

ROUTES: dict[str, tuple[dict[str, Any], RetryDecision]] = {
    "a stall": ({}, R.FALLBACK),
    "overload": ({"verdict": OVERLOADED}, R.FALLBACK),
    "a rate limit that says not to come back": (
        {"verdict": verdict(FailureKind.RATE_LIMIT, Diagnosis.FAIL_FAST, FailureReason.RATE_LIMIT)},
        R.FALLBACK,
    ),
    "overload that says not to come back": (
        {"verdict": replace(OVERLOADED, diagnosis=Diagnosis.FAIL_FAST)},
        R.FALLBACK,
    ),
    "a bad request": ({"verdict": BAD_REQUEST}, R.FAIL_FAST),
    "what nobody can tell": ({"verdict": UNKNOWN}, R.FAIL_FAST),
    "a spent quota": ({"verdict": QUOTA}, R.FAIL_FAST),
    "a spent quota, if the user wants it by reason": (
        {"verdict": QUOTA, "eligible": frozenset({FailureReason.QUOTA})},
        R.FALLBACK,
    ),
    "a spent quota, if the user wants it by kind": (
        {"verdict": QUOTA, "eligible": frozenset({FailureKind.PROVIDER})},
        R.FALLBACK,
    ),
    "a bad request, if the user wants something else": (
        {"verdict": BAD_REQUEST, "eligible": frozenset({FailureReason.QUOTA})},
        R.FAIL_FAST,
    ),
    "something was delivered": ({"delivered": True}, R.PARTIAL_OUTPUT),
    "the user has cancelled, after delivery": ({"cancelled": True, "delivered": True}, R.CANCELLED),
    "the total is spent": ({"total_left": 0.0}, R.DEADLINE),
    "no total": ({"total_left": None}, R.FALLBACK),
    "the attempt was cancelled, whatever the user wants": (
        {"verdict": CANCEL, "eligible": frozenset({FailureKind.CANCEL, FailureReason.CANCELLED})},
        R.CANCELLED,
    ),
    "no route is left": ({"routes_left": 0}, R.EXHAUSTED),
    "no route is left, and it would not help": ({"routes_left": 0, "verdict": BAD_REQUEST}, R.FAIL_FAST),
}


@pytest.mark.parametrize(("changes", "decision"), ROUTES.values(), ids=ROUTES.keys())
def test_another_route(changes: dict[str, Any], decision: RetryDecision) -> None:
    usual: dict[str, Any] = {
        "verdict": STALL,
        "delivered": False,
        "cancelled": False,
        "total_left": 60.0,
        "routes_left": 1,
    }
    assert may_fall_back(**usual | changes) is decision
