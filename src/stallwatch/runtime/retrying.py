"""After an attempt has failed: the facts are gathered, the core decides, and the attempt is told of.

There are three makers of retries. The SDK makes its own before there is an answer; they are let be, only that none
outlives the total, ignores the server's wish or jumps the queue of a route that has asked for less. stallwatch makes
those after the headers, as long as nothing has been delivered. A router goes on to another route. All are counted
together, and each is told with the verdict that led to it.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from stallwatch.clock import monotonic
from stallwatch.core.attempts import Standing, after_attempt, may_fall_back
from stallwatch.core.budget import LONGEST_SERVER_WAIT, back_off
from stallwatch.core.classify import Failure, verdict_of
from stallwatch.core.phases import Stall
from stallwatch.core.words import AttemptRole, Diagnosis, Mode, Outcome, RetryDecision
from stallwatch.logs import log
from stallwatch.runtime.attempt import Attempt, Following
from stallwatch.runtime.failures import failure_of
from stallwatch.runtime.retry_after import Headers, server_wait
from stallwatch.runtime.routes import Proposal, Route, route_of

if TYPE_CHECKING:
    from stallwatch.runtime.inflight import InFlight

__all__ = [
    "after_failure",
    "before_sdk_retry",
    "close_attempt",
    "failure_behind",
    "give_back",
    "may_sdk_retry",
    "open_attempt",
]

_FAILURES = frozenset({Outcome.FAILED, Outcome.STALLED, Outcome.TRUNCATED, Outcome.CANCELLED})


_dice = random.Random()
"""Its own, so that back-offs neither follow nor disturb the numbers of a program that seeds the common one."""

_NOTHING = Proposal(delay=0.0, server_wait=None, paced=False, budget_left=True)


def open_attempt(run: InFlight) -> None:
    """A request of ``run`` is about to be sent; the clocks know of it already."""
    call, tracker, response = run.call, run.tracker, run.response
    if run.route is None:
        run.route = route_of((call.origin, call.model))
        run.route.on_call(tracker.attempt_started)
    run.decided = run.refusal = run.proposal = None
    run.status_code = run.request_id = run.answerless = None
    run.tail = b""
    run.attempt = Attempt(
        number=tracker.attempts if run.leg is None else run.leg.journey.number(),
        started=tracker.attempt_started,
        role=run.role if tracker.attempts == 1 else AttemptRole.RETRY,
        model=call.model,
        server_address=call.server_address,
        server_port=call.server_port,
        chunks_before=tracker.chunks,
        characters_before=0 if response is None else response.characters,
    )


def close_attempt(run: InFlight, outcome: Outcome, error: BaseException | None, now: float) -> None:
    """Tell of the present attempt, if there is one, with the outcome it has had; ``now`` is the monotonic instant."""
    attempt, run.attempt = run.attempt, None
    if outcome in _FAILURES:
        run.following = _decided(run, outcome, error, attempt)
    if attempt is None or not attempt.claim():
        return
    response = run.response
    attempt.outcome, attempt.race = outcome, run.race
    attempt.duration = now - attempt.started
    attempt.status_code, attempt.request_id = run.status_code, run.request_id
    attempt.chunks = run.tracker.chunks - attempt.chunks_before
    if response is not None:
        attempt.characters = response.characters - attempt.characters_before
        attempt.usage_known = response.usage.known
    if outcome in _FAILURES:
        attempt.following = run.following
        run.failed = attempt
    elif outcome is Outcome.COMPLETED:
        _route(run).on_success(now)
    if run.held and outcome is Outcome.COMPLETED:
        # Whether it has won is not known yet; told when the run is released.
        run.answered = attempt
    else:
        run.recorders.attempt(run, attempt)


def _decided(
    run: InFlight, outcome: Outcome, error: BaseException | None, attempt: Attempt | None
) -> Following | None:
    following = run.decided
    if outcome is Outcome.CANCELLED or (following is None and (attempt is not None or run.held)):
        following = _refused(run, failure_behind(run, outcome, error))
    if following is not None and following.decision is RetryDecision.RETRY and attempt is None:
        # It ended in the wait for the next attempt, which was never made.
        following = replace(following, decision=RetryDecision.DEADLINE)
    if not run.held or run.leg is None or following is None or following.decision is RetryDecision.RETRY:
        return following
    # Nothing that a router still holds back has been delivered, whatever has passed the seams below it.
    leg = run.leg
    elsewhere = may_fall_back(
        verdict=following.verdict,
        delivered=False,
        cancelled=run.cancelled or outcome is Outcome.CANCELLED,
        total_left=run.total_left(),
        routes_left=leg.journey.routes_left(leg.number),
        eligible=leg.journey.eligible,
    )
    if elsewhere is RetryDecision.FALLBACK:
        return replace(following, decision=elsewhere)
    if following.decision is RetryDecision.PARTIAL_OUTPUT:
        # The role has passed the seam, so this route's body cannot be replaced; but nobody has got it.
        spent = run.tracker.attempts > run.retries.allowed
        return replace(following, decision=elsewhere if spent else RetryDecision.NOT_REPLAYABLE)
    return (
        replace(following, decision=elsewhere)
        if following.decision is RetryDecision.RETRIES_OFF
        else following
    )


def failure_behind(run: InFlight, outcome: Outcome, error: BaseException | None) -> Failure:
    """Return the facts of how ``run`` failed: by the record first, by what surfaced only then."""
    if outcome is Outcome.CANCELLED:
        return Failure(cancelled=True)
    if outcome is Outcome.STALLED:
        return Failure(stalled=True)
    if outcome is Outcome.TRUNCATED:
        bodies = {"empty_stream": "empty", "not_event_stream": "not_event_stream"}
        return Failure(body=bodies.get(run.answerless or "", "truncated"))
    if error is not None:
        return failure_of(error, in_stream=run.headers_in)
    return Failure(code=run.error_type, in_stream=True, request_id=run.request_id)


# Retries that stallwatch makes: the headers were good, the body was not


def after_failure(run: InFlight, failure: Failure, *, replayable: bool) -> Following:
    """Decide what follows an attempt that failed after its headers. RETRY means: wait, then send the request again.

    The attempt is told of at once when another follows, and otherwise when the run ends.
    """
    now, route = monotonic(), _route(run)
    standing = _standing(run, failure, replayable=replayable)
    proposal = _NOTHING
    if after_attempt(standing).decision is RetryDecision.RETRY:
        proposal = route.propose(
            retry=standing.retries_made, server_wait=None, now=now, random=_dice.random()
        )
        standing = _standing(run, failure, replayable=replayable, proposal=proposal)
    decided = after_attempt(standing)
    run.decided = Following(
        verdict=standing.verdict,
        decision=decided.decision,
        delay=decided.delay,
        paced=proposal.paced,
    )
    if decided.decision is RetryDecision.RETRY:
        log.info(
            "attempt %i failed (%s: %s), trying again in %.2f s",
            run.attempts,
            standing.verdict.kind.value,
            standing.verdict.reason.value,
            decided.delay,
        )
        run.proposal = proposal
        _close_failed(run, Outcome.STALLED if failure.stalled else Outcome.FAILED, now)
    else:
        route.give_back(proposal, now)
    return run.decided


def give_back(run: InFlight) -> None:
    """The run has ended: what it had reserved for a further attempt is free again."""
    proposal, run.proposal = run.proposal, None
    if proposal is not None:
        _route(run).give_back(proposal, monotonic())


def _standing(
    run: InFlight, failure: Failure, *, replayable: bool = True, proposal: Proposal = _NOTHING
) -> Standing:
    return Standing(
        verdict=verdict_of(failure),
        delivered=run.delivered
        or (run.attempt is not None and run.tracker.chunks > run.attempt.chunks_before),
        cancelled=run.over,
        retries_made=max(run.tracker.attempts - 1, 0),
        retries_allowed=run.retries.allowed,
        replayable=replayable,
        total_left=run.total_left(),
        delay=proposal.delay,
        server_wait=proposal.server_wait,
        budget_left=proposal.budget_left,
    )


def _refused(run: InFlight, failure: Failure) -> Following:
    """Say why nothing follows an attempt that failed where nobody asked for another."""
    standing = _standing(run, failure)
    if run.refusal is not None:
        refused, wait = run.refusal
        return Following(verdict=standing.verdict, decision=refused, server_wait=wait)
    decision = after_attempt(standing).decision
    if decision is RetryDecision.RETRY:
        # It might have been tried again, but the SDK was not going to: its own retries are spent.
        decision = RetryDecision.EXHAUSTED if run.retries.by_sdk else RetryDecision.RETRIES_OFF
    return Following(verdict=standing.verdict, decision=decision)


# Retries that the SDK makes: there was no good answer yet


def may_sdk_retry(run: InFlight, headers: Headers, status: int) -> bool:
    """Tell whether the wait before the next attempt can be slept at all; else the SDK is to raise its error at once.

    It cannot when it is longer than is ever slept, or would not end before the total; the queue in front of the route
    is part of it. Some releases refuse a long server's wait by themselves: the reason is remembered for them as well.
    """
    if verdict_of(Failure(status=status)).diagnosis is not Diagnosis.RETRYABLE:
        return True
    wait, left = server_wait(headers, time.time()), run.total_left()
    least = back_off(max(run.tracker.attempts - 1, 0), 1.0)
    needed = _route(run).wait(monotonic(), delay=least if wait is None else wait)
    refusal = None
    if needed > LONGEST_SERVER_WAIT:
        refusal = RetryDecision.SERVER_WAIT
    elif left is not None and needed >= left:
        refusal = RetryDecision.DEADLINE
    if refusal is not None:
        run.refusal = (refusal, wait)
    return refusal is None


def before_sdk_retry(
    run: InFlight, error: BaseException | None, headers: Headers | None, delay: float
) -> float:
    """The SDK is about to wait ``delay`` seconds and try again: tell of the failure; return how long it shall wait."""
    now, route = monotonic(), _route(run)
    outcome = Outcome.STALLED if isinstance(run.pending, Stall) else Outcome.FAILED
    failure = Failure(stalled=True) if outcome is Outcome.STALLED or error is None else failure_of(error)
    verdict, wait = verdict_of(failure), server_wait(headers, time.time())
    wanted, left = delay, run.total_left()
    if run.policy.mode is Mode.ENFORCE:
        if wait is not None and wait <= LONGEST_SERVER_WAIT:
            wanted = max(delay, wait)
        run.proposal = route.count(now, delay=wanted, server_wait=wait)
        wanted = run.proposal.delay if left is None else min(run.proposal.delay, left)
    # A transport's timeout has no error of the server's to be raised now: the call waits its total out.
    in_vain = left is not None and wanted >= left
    following = run.decided = Following(
        verdict=verdict,
        decision=RetryDecision.DEADLINE if in_vain else RetryDecision.RETRY,
        delay=wanted,
        server_wait=wait,
        paced=run.proposal is not None and run.proposal.paced,
    )
    run.status_code, run.request_id = failure.status, failure.request_id
    _close_failed(run, outcome, now)
    return following.delay


def _close_failed(run: InFlight, outcome: Outcome, now: float) -> None:
    close_attempt(run, outcome, None, now)
    run.on_back_off()


def _route(run: InFlight) -> Route:
    # A run may fail before its first request is built.
    return run.route or route_of((run.call.origin, run.call.model))
