"""Whether a guarded run did what its scene says it must; each difference as one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from stallwatch.catalogue import Attr
from stallwatch.cli.demo.attempts import AttemptRecord, attempts_of, hedge_result
from stallwatch.cli.demo.record import End, Exchange, RunRecord
from stallwatch.cli.demo.scenes import Scene
from stallwatch.core.words import AttemptRole, HedgeResult, Outcome, RaceResult, RetryDecision
from stallwatch.testing.ledger import SentKind

__all__ = ["differences"]

EARLY = 0.1
LATE = 1.0
"""Seconds an abort may be off. Late is generous: twenty programs share the machine."""

CLOSE_SEEN = 0.5


def differences(scene: Scene, bare: RunRecord, guarded: RunRecord) -> tuple[str, ...]:
    """Return what is wrong with the guarded run; empty if nothing is."""
    if scene.must_be_cut:
        found = list(_cut(scene, guarded))
    elif scene.must_recover:
        found = [*_completed(guarded), *_recovered(scene, guarded)]
    else:
        found = [*_completed(guarded), *_same_text(bare, guarded)]
    found += _telemetry(scene, guarded)
    if guarded.stderr:
        found.append(f"it wrote to stderr: {guarded.stderr.splitlines()[-1]}")
    return tuple(found)


def _cut(scene: Scene, run: RunRecord) -> Iterator[str]:
    if run.end is not End.TIMEOUT or run.failure is None:
        yield f"it should have ended in a timeout, but: {run.end} after {run.ended_at:.2f} s"
        return
    if run.failure.code != "ETIMEDOUT":
        yield f"the error's code is {run.failure.code!r}, not 'ETIMEDOUT'"
    waited = run.ended_at - run.last_progress()
    if not scene.allowed - EARLY <= waited <= scene.allowed + LATE:
        yield f"it was cut after a wait of {waited:.2f} s, not {scene.allowed:g} s"
    yield from _closed(run.last_exchange, run.ended_at, "the program had its error")


def _closed(exchange: Exchange | None, ended_at: float, what: str) -> Iterator[str]:
    if exchange is None or exchange.closed_at is None or exchange.closed_how == "server":
        yield "the server never saw the connection close"
    elif exchange.closed_at - ended_at > CLOSE_SEEN:
        yield f"the server saw the close {exchange.closed_at - ended_at:.2f} s after {what}"


def _completed(run: RunRecord) -> Iterator[str]:
    if run.end is not End.COMPLETED:
        reason = "" if run.failure is None else f": {run.failure.message}"
        yield f"it should have completed, but: {run.end} after {run.ended_at:.2f} s{reason}"


def _same_text(bare: RunRecord, guarded: RunRecord) -> Iterator[str]:
    if bare.end is guarded.end is End.COMPLETED and guarded.text != bare.text:
        yield "the guarded program read another text than the bare one"


def _recovered(scene: Scene, run: RunRecord) -> Iterator[str]:
    """Yield what is wrong with the way from the first attempt to the one that answered."""
    attempts = attempts_of(run)
    roles = [attempt.role for attempt in attempts]
    if roles != [AttemptRole.FIRST, scene.answered_by]:
        yield f"its attempts were {', '.join(roles) or 'not told'}, not first, {scene.answered_by}"
        return
    first, second = attempts
    if len(run.exchanges) != len(attempts) or first.exchange is None or second.exchange is None:
        yield f"the server got {len(run.exchanges)} requests for {len(attempts)} attempts"
        return
    yield from _raced(scene, run) if scene.hedge is not None else _gave_up(scene, first)
    yield from _closed(first.exchange, first.ended, "attempt 1 had ended")
    if second.outcome != Outcome.COMPLETED:
        yield f"attempt 2 was {second.outcome}, not completed"
    sent = sum(piece.kind == SentKind.TOKEN for piece in second.exchange.sent)
    read = sum(bool(got.text) for got in run.got)
    if sent != read:
        yield f"the server sent {sent} tokens in attempt 2, and the program read {read}"


def _gave_up(scene: Scene, first: AttemptRecord) -> Iterator[str]:
    wanted = _DECISIONS[scene.answered_by]
    if (first.outcome, first.decision) != (Outcome.STALLED, wanted):
        yield f"attempt 1 was {first.outcome} and {first.decision} followed, not stalled and {wanted}"
    if not scene.allowed - EARLY <= first.duration <= scene.allowed + LATE:
        yield f"attempt 1 was cut after {first.duration:.2f} s, not {scene.allowed:g} s"
    if wanted is RetryDecision.FALLBACK and first.fallback_to is None:
        yield "no event tells the route it fell back to"


def _raced(scene: Scene, run: RunRecord) -> Iterator[str]:
    first, second = attempts_of(run)
    result = hedge_result(run)
    if (first.race, second.race, result) != (RaceResult.LOSER, RaceResult.WINNER, HedgeResult.WON):
        yield f"the race was told as {first.race}, {second.race}, {result}, not loser, winner, won"
    # Not since the first request arrived: on a busy machine that may be late, and the hedge does not wait for it.
    waited = run.exchanges[1].at - (0.0 if run.span is None else run.span.began)
    due = scene.hedge or 0.0
    if not due - EARLY <= waited <= due + LATE:
        yield f"the hedge began after {waited:.2f} s, not {due:g} s"


_DECISIONS = {
    AttemptRole.RETRY: RetryDecision.RETRY,
    AttemptRole.FALLBACK: RetryDecision.FALLBACK,
}


def _telemetry(scene: Scene, run: RunRecord) -> Iterator[str]:
    if run.span is None or run.spans != 1:
        yield f"{run.spans} spans arrived, not one"
    if run.span is None:
        return
    wanted = {Attr.OUTCOME: Outcome.STALLED if scene.must_be_cut else Outcome.COMPLETED}
    if scene.phase is not None and scene.wire is not None:
        wanted |= {Attr.STALL_PHASE: scene.phase, Attr.STALL_WIRE: scene.wire}  # type: ignore[dict-item]
    for name, value in wanted.items():
        told = run.span.get(name)
        if told != value:
            yield f"the span's {name} is {told!r}, not {str(value)!r}"
