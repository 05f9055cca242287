"""What counts as a guarded run that did not do what it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cli.recorded import scene_record
from stallwatch.catalogue import Attr, Event
from stallwatch.cli.demo.checks import differences
from stallwatch.cli.demo.record import End, EventRecord, Exchange, Failure, RunRecord
from stallwatch.cli.demo.scenes import SCENES, Scene

DEAD = next(scene for scene in SCENES if scene.name == "keepalive-comments")
ALIVE = next(scene for scene in SCENES if scene.name == "slow-reader")
RETRIED = next(scene for scene in SCENES if scene.name == "retry")
FALLEN_BACK = next(scene for scene in SCENES if scene.name == "fallback")
HEDGED = next(scene for scene in SCENES if scene.name == "hedge")


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_run_at_its_right_values_has_no_difference(scene: Scene) -> None:
    record = scene_record(scene)
    assert differences(scene, record.bare, record.guarded) == ()


def _with(**attributes: object) -> Callable[[RunRecord], RunRecord]:
    def change(run: RunRecord) -> RunRecord:
        assert run.span is not None
        return replace(run, span=replace(run.span, attributes={**run.span.attributes, **attributes}))

    return change


def _exchange(number: int, **changes: Any) -> Callable[[RunRecord], RunRecord]:
    def change(run: RunRecord) -> RunRecord:
        exchanges: list[Exchange] = list(run.exchanges)
        exchanges[number - 1] = replace(exchanges[number - 1], **changes)
        return replace(run, exchanges=tuple(exchanges))

    return change


def _event(name: str, number: int | None = None, **attributes: object) -> Callable[[RunRecord], RunRecord]:
    """Change the attributes of an event; without any, drop it."""

    def changed(event: EventRecord) -> EventRecord | None:
        if event.name != name or event.get(Attr.ATTEMPT_NUMBER) != number:
            return event
        return replace(event, attributes={**event.attributes, **attributes}) if attributes else None

    def change(run: RunRecord) -> RunRecord:
        assert run.span is not None
        events = [changed(event) for event in run.span.events]
        return replace(
            run, span=replace(run.span, events=tuple(event for event in events if event is not None))
        )

    return change


@pytest.mark.parametrize(
    ("scene", "change", "told"),
    [
        (
            DEAD,
            lambda run: replace(run, end=End.STILL_WAITING, failure=None),
            "should have ended in a timeout",
        ),
        (DEAD, lambda run: replace(run, failure=Failure(type="t", message="m")), "code is None"),
        (DEAD, lambda run: replace(run, ended_at=run.ended_at + 3), "after a wait of 4.21 s, not 1.2 s"),
        (DEAD, lambda run: replace(run, ended_at=run.ended_at - 0.4), "after a wait of 0.81 s, not 1.2 s"),
        (DEAD, lambda run: replace(run, exchanges=()), "never saw the connection close"),
        (DEAD, _exchange(1, closed_at=None), "never saw the connection close"),
        (DEAD, _exchange(1, closed_how="server"), "never saw the connection close"),
        (DEAD, _exchange(1, closed_at=3.466), "saw the close 2.00 s after the program had its error"),
        (
            DEAD,
            _with(**{Attr.STALL_WIRE: "dead_wire"}),
            "stallwatch.stall.wire is 'dead_wire', not 'keepalive_only'",
        ),
        (DEAD, _with(**{Attr.STALL_PHASE: "thinking"}), "stallwatch.stall.phase is 'thinking', not 'idle'"),
        (DEAD, _with(**{Attr.OUTCOME: "failed"}), "stallwatch.outcome is 'failed', not 'stalled'"),
        (DEAD, lambda run: replace(run, span=None, spans=0), "0 spans arrived, not one"),
        (DEAD, lambda run: replace(run, spans=2), "2 spans arrived, not one"),
        (
            DEAD,
            lambda run: replace(run, stderr="Traceback\nValueError: no"),
            "wrote to stderr: ValueError: no",
        ),
        (ALIVE, lambda run: replace(run, end=End.TIMEOUT), "should have completed, but: timeout"),
        (ALIVE, lambda run: replace(run, got=run.got[1:-4]), "another text than the bare one"),
        (ALIVE, _with(**{Attr.OUTCOME: "stalled"}), "stallwatch.outcome is 'stalled', not 'completed'"),
        (RETRIED, lambda run: replace(run, end=End.TIMEOUT), "should have completed, but: timeout"),
        (RETRIED, _event(Event.ATTEMPT, 2), "its attempts were first, not first, retry"),
        (
            RETRIED,
            _event(Event.ATTEMPT, 2, **{Attr.ATTEMPT_ROLE: "fallback"}),
            "its attempts were first, fallback, not first, retry",
        ),
        (
            RETRIED,
            lambda run: replace(run, exchanges=run.exchanges[1:]),
            "the server got 1 requests for 2 attempts",
        ),
        (
            RETRIED,
            _event(Event.ATTEMPT, 1, **{Attr.OUTCOME: "failed"}),
            "attempt 1 was failed and retry followed, not stalled and retry",
        ),
        (
            RETRIED,
            _event(Event.ATTEMPT, 1, **{Attr.ATTEMPT_DURATION: 2.9}),
            "attempt 1 was cut after 2.90 s, not 1.2 s",
        ),
        (RETRIED, _exchange(1, closed_at=3.206), "saw the close 2.00 s after attempt 1 had ended"),
        (
            RETRIED,
            _event(Event.ATTEMPT, 2, **{Attr.OUTCOME: "truncated"}),
            "attempt 2 was truncated, not completed",
        ),
        (
            RETRIED,
            lambda run: replace(run, got=(*run.got[:5], *run.got[2:])),
            "sent 12 tokens in attempt 2, and the program read 15",
        ),
        (RETRIED, _with(**{Attr.STALL_WIRE: None}), "stallwatch.stall.wire is None, not 'dead_wire'"),
        (FALLEN_BACK, _event(Event.FALLBACK), "no event tells the route it fell back to"),
        (HEDGED, _exchange(1, closed_at=None), "never saw the connection close"),
        (
            HEDGED,
            _event(Event.HEDGE, **{Attr.HEDGE_RESULT: "lost"}),
            "the race was told as loser, winner, lost, not loser, winner, won",
        ),
        (HEDGED, _exchange(2, at=1.91), "the hedge began after 1.91 s, not 0.4 s"),
    ],
)
def test_each_deviation_is_told(scene: Scene, change: Callable[[RunRecord], RunRecord], told: str) -> None:
    record = scene_record(scene)
    found = differences(scene, record.bare, change(record.guarded))
    assert len(found) == 1
    assert told in found[0]
