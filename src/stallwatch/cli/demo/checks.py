"""Whether a guarded run did what its scene says it must; each difference as one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from stallwatch.catalogue import Attr
from stallwatch.cli.demo.record import End, RunRecord
from stallwatch.cli.demo.scenes import Scene
from stallwatch.core.words import Outcome

__all__ = ["differences"]

EARLY = 0.1
LATE = 1.0
"""Seconds an abort may be off. Late is generous: fourteen programs share the machine."""

CLOSE_SEEN = 0.5


def differences(scene: Scene, bare: RunRecord, guarded: RunRecord) -> tuple[str, ...]:
    """Return what is wrong with the guarded run; empty if nothing is."""
    found = list(_cut(scene, guarded) if scene.must_be_cut else _left_alone(bare, guarded))
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
    if run.server_closed_at is None or run.server_closed_how == "server":
        yield "the server never saw the connection close"
    elif run.server_closed_at - run.ended_at > CLOSE_SEEN:
        yield f"the server saw the close {run.server_closed_at - run.ended_at:.2f} s after the program had its error"


def _left_alone(bare: RunRecord, guarded: RunRecord) -> Iterator[str]:
    if guarded.end is not End.COMPLETED:
        reason = "" if guarded.failure is None else f": {guarded.failure.message}"
        yield f"it should have completed, but: {guarded.end} after {guarded.ended_at:.2f} s{reason}"
    elif bare.end is End.COMPLETED and guarded.text != bare.text:
        yield "the guarded program read another text than the bare one"


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
