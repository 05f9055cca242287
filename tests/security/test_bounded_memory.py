"""Whatever a server sends, what is kept beside the bare SDK stays as small as for an answer of ordinary size.

Two measures. The peak of what the product's own code allocates while an answer of this kind is read, by tracemalloc;
and that what is read is what the bare SDK reads. Pieces are of 64 KiB, as the HTTP library reads them from a socket.
"""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from benchmarks.feed import http_library

import stallwatch
from stallwatch.core.opening import LONGEST
from support.bounds import LIMITS
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import instrumented
from support.wires import wired

_http = http_library()
PIECE = 1 << 16
LONG = "x" * 250
STREAM = {"content-type": "text/event-stream"}
Pieces = Callable[[], Iterator[bytes]]


def chunk(**delta: Any) -> bytes:
    choice = {"index": delta.pop("index", 0), "delta": delta, "finish_reason": delta.pop("finish", None)}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


END = b"data: [DONE]\n\n"


def cut(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


def warm() -> Iterator[bytes]:
    """What makes SDK and product load what they load on first use."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    yield (
        chunk(content="x")
        + chunk(tool_calls=[call])
        + chunk(reasoning_content="x")
        + chunk(finish="stop")
        + END
    )


def endless_line() -> Iterator[bytes]:
    """8 MB of one line that never ends."""
    yield b"data: "
    for _ in range(128):
        yield b"x" * PIECE


def endless_line_after_an_event() -> Iterator[bytes]:
    yield chunk(content="hi")
    yield from endless_line()


def one_huge_event() -> Iterator[bytes]:
    yield from cut(chunk(content="x" * (10 << 20)) + END)


def one_huge_event_later() -> Iterator[bytes]:
    yield chunk(content="hi")
    yield from one_huge_event()


def one_event_of_many_lines() -> Iterator[bytes]:
    """5 MB of lines of one event, whose blank line never comes."""
    line = b"data: " + b"x" * 500 + b"\n"
    for _ in range(80):
        yield line * (PIECE // len(line))


def comments() -> Iterator[bytes]:
    """5 MB of comments before the first event."""
    line = b": " + b"k" * 500 + b"\n\n"
    for _ in range(80):
        yield line * (PIECE // len(line))
    yield chunk(content="hi") + END


def one_endless_comment() -> Iterator[bytes]:
    yield b": "
    for _ in range(128):
        yield b"x" * PIECE


def heartbeats() -> Iterator[bytes]:
    empty = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[]}\n\n'
    for _ in range(12):
        yield empty * 50
    yield chunk(content="hi") + END


def reasoning() -> Iterator[bytes]:
    """1.5 MB of reasoning."""
    piece = chunk(reasoning_content="x" * 8000) * 8
    for _ in range(24):
        yield piece
    yield chunk(content="hi") + END


def tiny_events() -> Iterator[bytes]:
    for _ in range(15):
        yield chunk(content="x") * 50
    yield END


def choices_without_end() -> Iterator[bytes]:
    """Each with an end of its own, of a choice that nobody asked for."""
    for number in range(1000):
        yield chunk(index=number, content="x", finish=f"reason-{number}-{LONG}")
    yield END


def thousands_of_tool_calls() -> Iterator[bytes]:
    call = {
        "index": 0,
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra": 1,
    }
    yield chunk(content="hi")
    yield from cut(chunk(tool_calls=[call] * 5000) + END)


def deep_json() -> Iterator[bytes]:
    yield b'data: {"error":' + b"[" * 50000 + b"\n\n"
    yield END


def deep_json_in_reach() -> Iterator[bytes]:
    deep: Any = "x"
    for _ in range(200):
        deep = {"error": [deep]}
    yield b"data: " + json.dumps(deep).encode() + b"\n\n" + END


def no_event_stream() -> Iterator[bytes]:
    for _ in range(64):
        yield b"x" * PIECE


STREAMS: dict[str, Pieces] = {
    each.__name__.replace("_", " "): each
    for each in (
        endless_line,
        endless_line_after_an_event,
        one_huge_event,
        one_huge_event_later,
        one_event_of_many_lines,
        comments,
        one_endless_comment,
        heartbeats,
        reasoning,
        choices_without_end,
        thousands_of_tool_calls,
        deep_json,
        deep_json_in_reach,
    )
}

HEADERS = {
    "huge headers": {"x-request-id": "i" * 60000, **{f"x-{number}": "v" * 1000 for number in range(200)}},
    "an endless retry-after": {"retry-after": "9" * 60000, "retry-after-ms": "1" * 60000},
    "a retry-after that is no date": {"retry-after": "Mon, " * 10000},
}


class _Body(_http.SyncByteStream, _http.AsyncByteStream):
    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces()

    async def __aiter__(self) -> Any:
        for piece in self._pieces():
            yield piece


@dataclass(frozen=True)
class Wire:
    """What a server answers to each request."""

    pieces: Pieces
    status: int
    headers: dict[str, str]

    def respond(self, request: Any) -> Any:
        return _http.Response(self.status, headers=self.headers, stream=_Body(self.pieces), request=request)

    def client(self, stage: Stage) -> Any:
        return wired(stage, self.respond, max_retries=0)


def ours() -> list[Any]:
    return [
        tracemalloc.Filter(True, f"*/src/stallwatch/{part}/*")
        for part in ("core", "runtime", "sdk", "telemetry")
    ]


async def read(stage: Stage, wire: Wire, sizes: list[int], every: int) -> tuple[int, str]:
    """Read it all; return the number of chunks and what was raised, and measure now and then."""
    seen = 0
    try:
        async with stage.inside(wire.client(stage)) as client:
            stream = await stage.chat(client, "m")
            async for _ in stage.over(stream):
                seen += 1
                if every and seen % every == 0:
                    sizes.append(held())
            if every:
                sizes.append(held())
    except Exception as error:
        return seen, type(error).__name__
    return seen, ""


def held() -> int:
    """Bytes that the product's own code holds now."""
    gc.collect()
    snapshot = tracemalloc.take_snapshot().filter_traces(ours())
    return sum(each.size for each in snapshot.statistics("filename"))


def added(wire: Wire, driver: Driver) -> tuple[Any, Any, int, int]:
    """Read bare and guarded; return what each saw, and the peaks of all memory in each case."""
    seen: list[Any] = []
    peaks: list[int] = []
    for block in (nullcontext(), instrumented(idle=60, first_token=60, total=300)):
        with block:
            play(driver, lambda stage: read(stage, Wire(warm, 200, STREAM), [], 0))
            gc.collect()
            tracemalloc.start()
            try:
                seen.append(play(driver, lambda stage: read(stage, wire, [], 0)))
                peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
    return seen[0], seen[1], peaks[0], peaks[1]


HELD_BACK = 3 * LONGEST
"""The first event is held back, up to ``LONGEST``, as lines and as data, and handed on as one piece."""

SMALL = 1 << 18
"""Behind the first event nothing of the content is kept."""

HUGE_FIRST = (endless_line, one_huge_event, one_event_of_many_lines, one_endless_comment)


@pytest.mark.parametrize("pieces", STREAMS.values(), ids=list(STREAMS))
def test_what_a_body_makes_us_keep_is_bounded(pieces: Pieces, driver: Driver) -> None:
    bare, guarded, without, with_us = added(Wire(pieces, 200, STREAM), driver)
    assert guarded == bare
    assert with_us - without < (HELD_BACK if pieces in HUGE_FIRST else SMALL), (without, with_us)


@pytest.mark.parametrize("headers", HEADERS.values(), ids=list(HEADERS))
@pytest.mark.parametrize("status", [200, 429])
def test_what_headers_make_us_keep_is_bounded(headers: dict[str, str], status: int, driver: Driver) -> None:
    bare, guarded, without, with_us = added(Wire(warm, status, {**STREAM, **headers}), driver)
    assert guarded == bare
    assert with_us - without < SMALL, (without, with_us)


def test_what_the_body_of_an_error_makes_us_keep_is_bounded(driver: Driver) -> None:
    bare, guarded, without, with_us = added(Wire(no_event_stream, 500, {}), driver)
    assert guarded == bare
    assert with_us - without < SMALL, (without, with_us)


def test_what_a_long_stream_makes_us_hold_does_not_grow(driver: Driver) -> None:
    sizes: list[int] = []
    with instrumented(idle=60):
        tracemalloc.start()
        try:
            play(driver, lambda stage: read(stage, Wire(tiny_events, 200, STREAM), sizes, 250))
        finally:
            tracemalloc.stop()
    # Gaps are kept until there are 128, at 8 bytes each.
    assert max(sizes[1:]) - sizes[0] < 4096, sizes


FLOODS = {
    "comments": (b": keepalive\n\n" * 300, "keepalive_only"),
    "an endless line": (b"x" * PIECE, "keepalive_only"),
    "heartbeats": (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[]}\n\n' * 30,
        "heartbeat_only",
    ),
}
"""What a server sends as fast as it can, for ever."""


@contextmanager
def flooding(piece: bytes) -> Iterator[str]:
    over = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(PIECE)
            peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            # Raises when the client has closed.
            with suppress(OSError):
                while not over.is_set():
                    peer.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            over.set()
            thread.join(5)
        assert not thread.is_alive()


@pytest.mark.parametrize(("piece", "wire"), FLOODS.values(), ids=list(FLOODS))
def test_a_flood_without_progress_ends_with_the_deadline(piece: bytes, wire: str, driver: Driver) -> None:
    """There are always bytes to be read; the time spent on them counts, the memory does not grow."""

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(url)) as client:
            stream = await stage.chat(client, "m")
            async for _ in stage.over(stream):
                pass

    with flooding(piece) as url, instrumented(**LIMITS) as captured:
        begun = time.monotonic()
        with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
            play(driver, story)
        assert time.monotonic() - begun < LIMITS["first_token"] + PATIENCE
    assert (caught.value.phase, caught.value.wire) == ("first_token", wire)
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


def test_a_flood_of_tokens_ends_with_the_total(driver: Driver) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(url)) as client:
            stream = await stage.chat(client, "m")
            async for _ in stage.over(stream):
                pass

    with flooding(chunk(content="x") * 30) as url, instrumented(**{**LIMITS, "total": 0.3}):
        begun = time.monotonic()
        with pytest.raises(stallwatch.TotalTimeoutError):
            play(driver, story)
        # Only what is waited for counts, and a flood is mostly read.
        assert time.monotonic() - begun < 0.3 + 2 * PATIENCE


PATIENCE = 10.0
"""Seconds; both ends of a flood keep the machine busy, and without a bound it never ends."""
