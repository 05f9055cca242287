"""Clock, streams and bodies for unit tests without sockets; and the steps as data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from stallwatch import testing
from stallwatch.testing import (
    Comment,
    Comments,
    Delta,
    DripHeaders,
    EmptyDelta,
    Event,
    FakeClock,
    Finish,
    Heartbeats,
    Pause,
    Raw,
    Reset,
    Role,
    ScriptedStream,
    Status,
    Token,
    Tokens,
    Usage,
    Wait,
    scenario_table,
    sse_events,
)
from stallwatch.testing.scenarios import SCENARIOS
from stallwatch.testing.wire import UnplayableStep


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(5)
    assert (clock(), clock.advance(2.5), clock()) == (5, 7.5, 7.5)
    with pytest.raises(ValueError, match="seconds: -1 is not allowed"):
        clock.advance(-1)


def test_a_scripted_stream_yields_waits_and_raises_in_order() -> None:
    stream = ScriptedStream("a", Pause(3.0), "b", KeyError("lost"), "never")
    start = stream.clock()
    assert next(stream) == "a"
    assert next(stream) == "b"
    assert stream.clock() - start == 3.0
    with pytest.raises(KeyError):
        next(stream)
    stream.close()
    assert list(stream) == []
    assert (stream.closed, stream.reads) == (True, 4)


def test_a_scripted_stream_is_async_too() -> None:
    async def run() -> list[str]:
        stream = ScriptedStream("a", Pause(1), "b")
        got = [item async for item in stream]
        await stream.aclose()
        assert stream.closed
        return got

    assert asyncio.run(run()) == ["a", "b"]


def test_events_of_a_script_without_a_socket() -> None:
    script = [Role(), Wait(2), Tokens(2, 0.5), Comment("hm"), Raw(b"raw"), Event({"a": 1}, "e"), Finish()]
    events = list(sse_events(*script, model="m"))
    assert events[1] == Pause(2)
    assert events[3] == Pause(0.5)
    assert events[5:8] == [b": hm\n\n", b"raw", b'event: e\ndata: {"a":1}\n\n']
    first = events[0]
    assert isinstance(first, bytes)
    assert json.loads(first.removeprefix(b"data: "))["choices"][0]["delta"] == {
        "role": "assistant",
        "content": "",
    }
    with pytest.raises(UnplayableStep, match="Reset has no chat form"):
        list(sse_events(Reset()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Status(99), "Status.code: 99 is not allowed; allowed: 200 to 599"),
        (lambda: Status(429, retry_after="date+soon"), "Status.retry_after: 'date+soon'"),
        (lambda: Wait(-1), "Wait.seconds: -1 is not allowed; allowed: a number >= 0"),
        (lambda: Tokens(-1), "Tokens.count: -1"),
        (lambda: Tokens(1, -0.1), "Tokens.gap: -0.1"),
        (lambda: Comments(0), "Comments.every: 0 is not allowed; allowed: a number > 0"),
        (lambda: Heartbeats(0.1, -1), "Heartbeats.for_seconds: -1"),
        (lambda: DripHeaders(0), "DripHeaders.every: 0"),
        (lambda: Usage(prompt_tokens=-1), "Usage.prompt_tokens: -1"),
        (lambda: EmptyDelta("half"), "EmptyDelta.kind: 'half' is not allowed; allowed: no_choices"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_step_names_field_value_and_range(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert message in str(caught.value)


def test_steps_are_frozen() -> None:
    token: Any = Token("a")
    with pytest.raises(FrozenInstanceError):
        token.text = "b"


def test_a_delta_carries_any_field() -> None:
    (event,) = sse_events(Delta({"audio": {"id": "a"}}))
    assert isinstance(event, bytes)
    assert b'"delta":{"audio":{"id":"a"}}' in event


def test_several_choices_each_have_their_own_text() -> None:
    script = [Role(choice=1), Token("b", choice=1), Finish(choice=1)]
    indexes = [
        json.loads(e.removeprefix(b"data: "))["choices"][0]["index"]
        for e in sse_events(*script)
        if isinstance(e, bytes)
    ]
    assert indexes == [1, 1, 1]


def test_every_public_name_loads() -> None:
    assert sorted(testing.__all__) == dir(testing)
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = testing.nothing  # type: ignore[attr-defined]


def test_the_table_lists_every_scenario_and_parameter() -> None:
    table = scenario_table()
    for scenario in SCENARIOS.values():
        assert f"| `{scenario.name}` | {scenario.summary} |" in table
        for parameter in scenario.parameters:
            assert f"`{parameter.name}` (" in table
            assert parameter.accepts(parameter.default) or parameter.default == ""
    assert next(iter(SCENARIOS)) == "healthy"
