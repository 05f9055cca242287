"""What counts as a guarded run that did not do what it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cli.recorded import scene_record
from stallwatch.catalogue import Attr
from stallwatch.cli.demo.checks import differences
from stallwatch.cli.demo.record import End, Failure, RunRecord
from stallwatch.cli.demo.scenes import SCENES, Scene

DEAD = next(scene for scene in SCENES if scene.name == "keepalive-comments")
ALIVE = next(scene for scene in SCENES if scene.name == "slow-reader")


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_run_at_its_right_values_has_no_difference(scene: Scene) -> None:
    record = scene_record(scene)
    assert differences(scene, record.bare, record.guarded) == ()


def _with(**attributes: object) -> Callable[[RunRecord], RunRecord]:
    def change(run: RunRecord) -> RunRecord:
        assert run.span is not None
        return replace(run, span=replace(run.span, attributes={**run.span.attributes, **attributes}))

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
        (DEAD, lambda run: replace(run, server_closed_at=None), "never saw the connection close"),
        (DEAD, lambda run: replace(run, server_closed_how="server"), "never saw the connection close"),
        (DEAD, lambda run: replace(run, server_closed_at=run.ended_at + 2), "saw the close 2.00 s after"),
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
    ],
)
def test_each_deviation_is_told(scene: Scene, change: Callable[[RunRecord], RunRecord], told: str) -> None:
    record = scene_record(scene)
    found = differences(scene, record.bare, change(record.guarded))
    assert len(found) == 1
    assert told in found[0]
