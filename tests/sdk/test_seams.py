"""The list of seams is the one that is patched, and a seam that a release lacks is told with what it carried."""

from __future__ import annotations

import openai._base_client as base
import openai._streaming as streaming
import pytest

from stallwatch.governing import patched
from stallwatch.sdk.patches import Patches
from stallwatch.sdk.seams import survey
from support.telemetry import instrumented


def test_the_list_is_what_is_patched() -> None:
    listed = [(seam.owner, seam.name) for seam in survey([])]
    assert sorted(listed, key=repr) == sorted(
        ((owner, name) for owner, name, _ in Patches()._seams()), key=repr
    )


def test_every_seam_of_this_release_is_there_and_patched_while_instrumented() -> None:
    assert all(seam.present and not seam.patched for seam in survey(patched()))
    with instrumented():
        assert all(seam.present and seam.patched for seam in survey(patched()))


@pytest.mark.parametrize(
    ("owner", "name", "lost"),
    [(base.BaseClient, "_should_retry", "verdicts"), (streaming.AsyncStream, "__init__", "chunks, async")],
    ids=["of a client", "of a stream"],
)
def test_a_missing_seam_is_told_with_what_it_carried(
    owner: type, name: str, lost: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(owner, name)
    with instrumented():
        states = {(seam.owner, seam.name): seam for seam in survey(patched())}
    assert not states[owner, name].present
    assert not states[owner, name].patched
    assert sum(seam.patched for seam in states.values()) == len(states) - 1
    (message,) = caplog.messages
    caplog.clear()
    assert message.startswith(
        f"{owner.__name__}.{name} is missing in this openai release, so this is off: {lost}"
    )
