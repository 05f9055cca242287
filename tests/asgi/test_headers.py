"""The deadline a client gives, and what tells proxies not to buffer."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from asgi.fakes import END, START, FakeServer, here, played, scope
from stallwatch import asgi
from stallwatch.asgi import StallwatchMiddleware


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, which has not complained yet."""
    monkeypatch.setattr(asgi, "_told", threading.Event())


def total(*values: bytes, name: str = "x-request-deadline", **options: Any) -> float | None:
    """The total of the run of a request with these headers."""
    found: list[float | None] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        found.append(here().total)

    server = FakeServer()
    request = scope(*((name.title().encode(), value) for value in values))
    middleware = StallwatchMiddleware(app, **{"deadline_header": name, **options})
    played(lambda: middleware(request, server.receive, server.send))
    return found[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"2.5", 2.5),
        (b"2.5s", 2.5),
        (b" 500ms ", 0.5),
        (b"1m", 60),
        (b"60", 60),
        (b"61", 60),
        (b"2m", 60),
        (b"1000000", 60),
        (b"0", 0.001),
        (b"0.0", 0.001),
        (b".00", 0.001),
        (b"+0ms", 0.001),
    ],
)
def test_a_deadline_header_shortens_the_total_and_never_lengthens_it(value: bytes, expected: float) -> None:
    assert total(value, total=60) == expected


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        ((b"2.5",), {"total": 60}, "header"),
        ((b"90",), {"total": 60}, "middleware"),
        ((), {"total": 60}, "middleware"),
        ((b"2.5",), {}, "header"),
    ],
)
def test_who_has_set_the_total_is_known(
    values: tuple[bytes, ...], options: dict[str, Any], expected: str
) -> None:
    found: list[str] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        until = here().until
        assert until is not None
        found.append(until.set_by)

    server = FakeServer()
    request = scope(*((b"X-Request-Deadline", value) for value in values))
    middleware = StallwatchMiddleware(app, deadline_header="x-request-deadline", **options)
    played(lambda: middleware(request, server.receive, server.send))
    assert found == [expected]


BAD = [
    b"",
    b"-1",
    b"-0",
    b"soon",
    b"off",
    b"none",
    b"inf",
    b"nan",
    b"1e3",
    b"2,3",
    b"1000001",
    b"9" * 60_000,
    b"0" * 60_000,
    b"0" * 33 + b"x",
    b"\xff\x00",
    b"\xb2",
]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("configured", [None, 60])
def test_what_is_no_duration_changes_nothing(value: bytes, configured: int | None) -> None:
    assert total(value, total=configured) == configured


def test_it_is_said_once_for_a_process_and_without_the_value(caplog: pytest.LogCaptureFixture) -> None:
    for value in BAD:
        total(value)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("stallwatch", logging.WARNING)
    assert record.getMessage().startswith("stallwatch: header x-request-deadline is no duration")


def test_without_a_total_the_header_alone_counts() -> None:
    assert total(b"2.5") == 2.5
    assert total() is None


def test_the_shortest_of_several_counts() -> None:
    assert total(b"9", b"nonsense", b"3", b"5", total=60) == 3


@pytest.mark.parametrize(("value", "expected"), [(b"2500", 2.5), (b"2500.", 2.5), (b"2s", 2), (b"0", 0.001)])
def test_plain_numbers_are_milliseconds_where_the_name_says_so(value: bytes, expected: float) -> None:
    assert total(value, name="x-envoy-expected-rq-timeout-ms") == expected


def test_a_header_nobody_named_is_not_looked_at() -> None:
    assert total(b"2.5", deadline_header=None) is None
    assert total(b"2.5", deadline_header="x-other") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"total": "soon"}, "total='soon' is not allowed"),
        ({"deadline_header": ""}, "deadline_header='' is not allowed"),
        ({"deadline_header": "x deadline"}, "deadline_header='x deadline' is not allowed"),
        ({"deadline_header": "x-deadline\n"}, "is not allowed"),
        ({"deadline_header": "größe"}, "deadline_header='größe' is not allowed"),
        ({"deadline_header": b"x-deadline"}, "deadline_header=b'x-deadline' is not allowed"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StallwatchMiddleware(pytest.fail, **options)


def sent(
    *headers: tuple[bytes, bytes], start: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """The beginning of an answer as the server gets it."""
    given = {**START, "headers": headers} if start is None else start

    async def app(_: Any, receive: Any, send: Any) -> None:
        await send(given)
        await send(END)

    server = FakeServer()
    before = repr(given)
    played(lambda: server.serve(app, **options))
    assert repr(given) == before, "the app's own message was changed"
    first: dict[str, Any] = server.sent[0]
    return first


NO = (b"x-accel-buffering", b"no")
FRESH = (b"cache-control", b"no-cache, no-transform")


@pytest.mark.parametrize(
    "kind",
    [
        b"text/event-stream",
        b"Text/Event-Stream; charset=utf-8",
        b"application/x-ndjson",
        b"application/jsonl",
    ],
)
@pytest.mark.parametrize("name", [b"content-type", b"Content-Type"])
def test_streamed_answers_are_not_to_be_buffered(kind: bytes, name: bytes) -> None:
    assert sent((name, kind))["headers"] == [(name, kind), NO, FRESH]


def test_what_the_app_has_set_stays() -> None:
    kind, own = (b"content-type", b"text/event-stream"), (b"Cache-Control", b"max-age=1")
    assert sent(kind, own)["headers"] == [kind, own, NO]
    asks = (b"X-Accel-Buffering", b"yes")
    assert sent(kind, asks)["headers"] == [kind, asks, FRESH]


def test_the_rest_of_the_message_stays() -> None:
    start = {**START, "headers": [[b"content-type", b"text/event-stream"]], "status": 206, "trailers": True}
    changed = sent(start=start)
    assert changed.keys() == start.keys()
    assert (changed["status"], changed["trailers"]) == (206, True)


@pytest.mark.parametrize("kind", [b"text/plain", b"application/json", b"text/event-streams", b""])
def test_other_answers_are_not_touched(kind: bytes) -> None:
    start = {**START, "headers": ((b"content-type", kind),)}
    assert sent(start=start) is start
    bare = {"type": "http.response.start", "status": 204}
    assert sent(start=bare) is bare


def test_it_can_be_switched_off() -> None:
    start = {**START, "headers": [(b"content-type", b"text/event-stream")]}
    assert sent(start=start, no_buffering=False) is start
