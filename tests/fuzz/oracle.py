"""The same call through the bare SDK and through the guarded one, without sockets, and all that its caller can see.

The bare SDK is the oracle. What is compared is what came, in its order (chunks with their classes and fields, bytes as
they are), how it ended (class, text and fields of the exception), and whether the body was read to its end and closed.
What is ours alone must not show: no warning, and one span that has ended, whose values exporters can send.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import openai
from benchmarks.feed import http_library
from opentelemetry.sdk.trace import ReadableSpan

from fuzz.surfaces import Reading, Surface
from fuzz.wires import Wire
from stallwatch.telemetry.recorder import Recorders
from support.records import Records
from support.stage import Stage
from support.telemetry import Captured, instrumented
from surfaces.observed import told_of_error

__all__ = ["Answer", "Seen", "both_ways"]

http: Any = http_library()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answers."""

    wire: Wire
    status: int = 200
    headers: tuple[tuple[str, bytes], ...] = (("content-type", b"text/event-stream"),)
    retries: int = 0
    """How often the client may ask again; it is answered the same."""


@dataclass
class Seen:
    """What a caller has seen of a call."""

    items: list[Any] = field(default_factory=list)
    error: dict[str, str] | None = None
    body: list[str] = field(default_factory=list)
    """What became of the body: whether it was read to its end."""

    def note(self, item: Any) -> None:
        """Add what has just come."""
        self.items.append(_plain(item))

    def note_error(self, error: BaseException) -> None:
        """Add what was raised by a step that is not the last."""
        self.items.append(told_of_error(error))


def _plain(item: Any) -> Any:
    if isinstance(item, openai.BaseModel):
        dumped = item.model_dump(mode="python", warnings=False)
        # As text, because of numbers that do not equal themselves.
        return type(item).__qualname__, repr(dumped), sorted(item.model_fields_set)
    return item if isinstance(item, (bytes, str)) else repr(item)


class _SyncBody(http.SyncByteStream):  # type: ignore[misc]
    def __init__(self, wire: Wire, seen: Seen) -> None:
        self._wire, self._seen = wire, seen

    def __iter__(self) -> Iterator[bytes]:
        for at, piece in enumerate(self._wire.pieces):
            if at == self._wire.lost_at:
                raise http.ReadError("lost")
            yield piece
        if self._wire.lost_at == len(self._wire.pieces):
            raise http.ReadError("lost")
        self._seen.body.append("read")


class _AsyncBody(http.AsyncByteStream):  # type: ignore[misc]
    def __init__(self, wire: Wire, seen: Seen) -> None:
        self._wire, self._seen = wire, seen

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at, piece in enumerate(self._wire.pieces):
            await asyncio.sleep(0)
            if at == self._wire.lost_at:
                raise http.ReadError("lost")
            yield piece
        if self._wire.lost_at == len(self._wire.pieces):
            raise http.ReadError("lost")
        self._seen.body.append("read")


def _client(answer: Answer, seen: Seen, *, is_async: bool) -> Any:
    body = _AsyncBody if is_async else _SyncBody

    def respond(request: Any) -> Any:
        return http.Response(
            answer.status, headers=list(answer.headers), stream=body(answer.wire, seen), request=request
        )

    kind = http.AsyncClient if is_async else http.Client
    client = kind(transport=http.MockTransport(respond))
    make = openai.AsyncOpenAI if is_async else openai.OpenAI
    return make(
        base_url="http://model.test/v1", api_key="none", max_retries=answer.retries, http_client=client
    )


class _Driver:
    """Which of the two kinds a stage plays."""

    def __init__(self, *, is_async: bool) -> None:
        self.is_async = is_async


async def _called(stage: Stage, surface: Surface, reading: Reading, answer: Answer) -> Seen:
    seen = Seen()
    client = _client(answer, seen, is_async=stage.is_async)
    try:
        await reading(stage, surface, client, seen)
    except Exception as error:
        seen.error = told_of_error(error)
    finally:
        await stage.close(client)
    return seen


class Observed:
    """One call, played by both drivers; the loop is made once, because making one costs more than a call."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Close the loop."""
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def call(self, surface: Surface, reading: Reading, answer: Answer, *, is_async: bool) -> Seen:
        """Play one call."""
        playing = _called(Stage(_Driver(is_async=is_async)), surface, reading, answer)  # type: ignore[arg-type]
        if is_async:
            return self._loop.run_until_complete(playing)
        try:
            playing.send(None)
        except StopIteration as end:
            seen: Seen = end.value
            return seen
        raise AssertionError("a synchronous call has suspended")


def both_ways(
    played: Observed, surface: Surface, reading: Reading, answer: Answer, *, is_async: bool
) -> tuple[Seen, Seen]:
    """Return what the caller sees of a call, bare and guarded; fails if something of ours shows."""
    bare = played.call(surface, reading, answer, is_async=is_async)
    swallowed: list[BaseException] = []
    records = Records()
    swallow = Recorders._swallow
    logging.getLogger().addHandler(records)
    # Recorders log the first error only; here each counts.
    Recorders._swallow = lambda recorders, error: swallowed.append(error)  # type: ignore[method-assign]
    try:
        with instrumented() as captured:
            guarded = played.call(surface, reading, answer, is_async=is_async)
    finally:
        Recorders._swallow = swallow  # type: ignore[method-assign]
        logging.getLogger().removeHandler(records)
    assert not swallowed, swallowed
    assert not records.told, records.told
    _telemetry_is_sound(captured)
    if answer.retries or "UnicodeDecodeError" in repr(bare):
        # Bare, what has failed is not read again; and the first event is held back until it is whole, so its bad byte
        # is met when all of it has been read.
        bare.body = guarded.body = []
    return bare, guarded


def _telemetry_is_sound(captured: Captured) -> None:
    (span,) = captured.spans
    _values_can_be_sent(span.attributes)
    for event in span.events:
        _values_can_be_sent(event.attributes)
    (span.status.description or "").encode()
    assert _of_outcome(span)
    for points in captured.metrics().values():
        for point in points:
            _values_can_be_sent(point.attributes)


def _of_outcome(span: ReadableSpan) -> bool:
    return (span.attributes or {}).get("stallwatch.outcome") in (
        "completed",
        "truncated",
        "failed",
        "closed_early",
    )


def _values_can_be_sent(attributes: Any) -> None:
    """Fail on what an exporter loses a whole batch over."""
    for name, value in dict(attributes or {}).items():
        each = list(value) if isinstance(value, tuple) else [value]
        assert len({type(item) for item in each}) <= 1, (name, value)
        for item in each:
            assert isinstance(item, (str, bool, int, float)), (name, value)
            if isinstance(item, str):
                assert len(item) <= 256, (name, value)
                item.encode()
            elif isinstance(item, int):
                assert -(2**63) <= item < 2**63, (name, value)
            else:
                assert math.isfinite(item), (name, value)
