"""The end mark is found however it comes, and a body that lingers after it is waited for only so long."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stallwatch.testing import Eof, Event, Raw, Silence, Wait
from support import expect
from support.bounds import LATE
from support.connects import quick_client
from support.drivers import DRIVERS, Driver, Told
from support.places import Place
from support.stage import Stage, play
from support.telemetry import instrumented

# Vendors that never send a finish reason: the mark is all that tells of the end.
TOKEN = Event(
    {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}],
    }
)
MARK = b"data: [DONE]\n\n"

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


def _tell(driver: Driver, place: Place) -> Told:
    client = quick_client(is_async=driver.is_async)
    return driver.tell(place.base_url, "m", options={"http_client": client})


def _cut_at(position: int) -> list[Any]:
    return [Raw(MARK[:position]), Wait(0.03), Raw(MARK[position:])]


ENDS: dict[str, list[Any]] = {
    "whole": [Raw(MARK)],
    "split behind the field's name": _cut_at(4),
    "split in its name": _cut_at(9),
    "split before the blank line": _cut_at(12),
    "split within the blank line": _cut_at(13),
    "byte by byte": [step for byte in MARK for step in (Raw(bytes([byte])), Wait(0.005))],
    "with the last token": [Raw(b'data: {"choices":[]}\n\n' + MARK)],
    "followed by a comment": [Raw(MARK), Wait(0.03), Raw(b": bye\n\n")],
    "followed by blank lines": [Raw(MARK), Wait(0.03), Raw(b"\r\n\r\n")],
    "split, then a comment": [*_cut_at(9), Wait(0.03), Raw(b": bye\n\n")],
    "without a space": [Raw(b"data:[DONE]\n\n")],
}


@drivers
@pytest.mark.parametrize("end", ENDS)
def test_a_marked_answer_is_completed(plain: Place, driver: Driver, end: str) -> None:
    plain.gateway.script("m", [TOKEN, Wait(0.03), *ENDS[end], Eof()])
    with instrumented(first_token=5, thinking=5, idle=5) as captured:
        told = _tell(driver, plain)
    assert told.error is None
    assert told.text == "a"
    expect.ended(captured, "completed")


@drivers
@pytest.mark.parametrize(
    "end", ["whole", "split in its name", "followed by a comment", "split, then a comment"]
)
def test_a_body_that_lingers_after_the_mark_ends_quietly(plain: Place, driver: Driver, end: str) -> None:
    plain.gateway.script("m", [TOKEN, Wait(0.03), TOKEN, *ENDS[end], Silence()])
    with instrumented(first_token=9, thinking=9, idle=0.3) as captured:
        told = _tell(driver, plain)
    assert told.error is None
    assert told.text == "aa"
    # Some releases of the SDK stop reading at the mark; the others wait for the end of the body.
    assert told.after_last <= 0.3 + LATE
    expect.ended(captured, "completed")
    expect.released(plain.gateway)


@drivers
def test_a_long_idle_limit_does_not_make_a_marked_answer_wait(
    plain: Place, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In place of its seconds.
    monkeypatch.setattr("stallwatch.core.phases.WHOLE_ANSWER_WAIT", 0.3)
    plain.gateway.script("m", [TOKEN, Wait(0.03), TOKEN, Raw(MARK), Silence()])
    with instrumented(connect=0, first_token=9, thinking=9, idle=9) as captured:
        told = _tell(driver, plain)
    assert told.error is None
    assert told.text == "aa"
    assert told.after_last <= 0.3 + LATE
    expect.ended(captured, "completed")


@drivers
def test_a_reader_of_lines_waits_no_longer_after_the_mark(
    plain: Place, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallwatch.core.phases.WHOLE_ANSWER_WAIT", 0.3)
    plain.gateway.script("m", [TOKEN, Wait(0.03), TOKEN, Wait(0.03), Raw(MARK), Silence()])

    async def story(stage: Stage) -> None:
        client = stage.client(plain.base_url, http_client=quick_client(is_async=driver.is_async))
        async with stage.inside(client):
            response = (await stage.chat(client, "m")).response
            lines = response.aiter_lines() if stage.is_async else response.iter_lines()
            began = time.monotonic()
            assert (await stage.all(lines))[-2:] == ["data: [DONE]", ""]
            assert time.monotonic() - began <= 0.06 + 0.3 + LATE

    with instrumented(first_token=9, thinking=9, idle=9) as captured:
        play(driver, story)
    expect.ended(captured, "completed")


@drivers
def test_silence_after_a_mark_inside_content_is_a_stall(plain: Place, driver: Driver) -> None:
    """The network may cut a line right behind what the model says of the protocol."""
    said = b'data: {"choices":[{"index":0,"delta":{"content":"It ends with data: [DONE]'
    plain.gateway.script("m", [TOKEN, Wait(0.03), TOKEN, Wait(0.03), Raw(said), Silence()])
    with instrumented(first_token=9, thinking=9, idle=0.3) as captured:
        told = _tell(driver, plain)
    assert told.text == "aa"
    expect.stalled(captured, told.error, phase="idle", limit=0.3, wire="keepalive_only", chunks=2)


@drivers
def test_a_mark_inside_content_ends_nothing(plain: Place, driver: Driver) -> None:
    plain.gateway.script("m", [TOKEN, Raw(b": data: [DONE]\n\n"), Wait(0.03), TOKEN, Eof()])
    with instrumented(first_token=5, thinking=5, idle=5) as captured:
        told = _tell(driver, plain)
    assert told.error is None
    assert told.text == "aa"
    expect.ended(captured, "truncated", error_type="truncated")
