"""The calls that are fuzzed, and the ways in which their answers are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import openai

from support.stage import Stage
from surfaces.surfaces_of_others import takes

__all__ = ["PLAIN", "RAW_READINGS", "READINGS", "STREAMED", "Reading", "Surface", "whole"]

_ASKED: Any = [{"role": "user", "content": "hello"}]
_SOUND = ("sound.wav", b"RIFF", "audio/wav")


@dataclass(frozen=True, slots=True)
class Surface:
    """A call: the resource, as a path from the client, its method, and what is asked of it."""

    name: str
    path: tuple[str, ...]
    request: dict[str, Any]
    method: str = "create"

    @property
    def offered(self) -> bool:
        """Whether this release of the SDK has it."""
        client = openai.OpenAI(api_key="none")
        return takes(*self.path, self.method, option="stream")(client)

    def resource(self, client: Any) -> Any:
        """Return the resource of a client."""
        for name in self.path:
            client = getattr(client, name)
        return client

    def call(self, resource: Any) -> Any:
        """Make the call."""
        return getattr(resource, self.method)(**self.request)


_ALL = (
    Surface("chat", ("chat", "completions"), {"model": "m", "messages": _ASKED, "stream": True}),
    Surface("completions", ("completions",), {"model": "m", "prompt": "hello", "stream": True}),
    Surface("responses", ("responses",), {"model": "m", "input": "hello", "stream": True}),
    Surface("images", ("images",), {"model": "m", "prompt": "cat", "stream": True}, "generate"),
    Surface("audio", ("audio", "transcriptions"), {"model": "m", "file": _SOUND, "stream": True}),
    Surface(
        "assistants", ("beta", "threads", "runs"), {"thread_id": "t", "assistant_id": "a", "stream": True}
    ),
)
STREAMED = tuple(surface for surface in _ALL if surface.offered)

PLAIN = (
    Surface("chat", ("chat", "completions"), {"model": "m", "messages": _ASKED}),
    Surface("completions", ("completions",), {"model": "m", "prompt": "hello"}),
    Surface("responses", ("responses",), {"model": "m", "input": "hello"}),
    Surface("embeddings", ("embeddings",), {"model": "m", "input": "hello"}),
)

Reading = Callable[[Stage, Surface, Any, Any], Awaitable[None]]


async def _each(stage: Stage, stream: Any, seen: Any) -> None:
    async for item in stage.over(stream):
        seen.note(item)


async def _to_the_end(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    """Reads on after the end, and after an error, as loops around a stream do."""
    stream = await stage.of(surface.call(surface.resource(client)))
    for _ in range(2):
        try:
            await _each(stage, stream, seen)
        except Exception as error:
            seen.note_error(error)
    await stage.close(stream)


async def _a_few(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    stream = await stage.of(surface.call(surface.resource(client)))
    async with stage.inside(stream):
        for _ in range(2):
            try:
                seen.note(await stage.step(stream))
            except StopAsyncIteration:
                seen.note("end")
    try:
        await _each(stage, stream, seen)
    except Exception as error:
        seen.note_error(error)


async def _parsed(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    raw = await stage.of(surface.call(surface.resource(client).with_raw_response))
    await _each(stage, raw.parse(), seen)


async def _joined(stage: Stage, pieces: Any, seen: Any) -> None:
    """Note bytes without their cuts, also those before an error."""
    held: list[Any] = []
    try:
        async for piece in stage.over(pieces):
            held.append(piece)  # noqa: PERF401 - what came before an error counts
    finally:
        seen.note(type(held[0])().join(held) if held else b"")


async def _bytes(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    async with stage.inside(surface.call(surface.resource(client).with_streaming_response)) as raw:
        await _joined(stage, raw.iter_bytes(), seen)


async def _raw_bytes(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    stream = await stage.of(surface.call(surface.resource(client)))
    response = stream.response
    await _joined(stage, response.aiter_raw() if stage.is_async else response.iter_raw(), seen)


async def _text(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    async with stage.inside(surface.call(surface.resource(client).with_streaming_response)) as raw:
        await _joined(stage, raw.iter_text(), seen)


async def _lines(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    async with stage.inside(surface.call(surface.resource(client).with_streaming_response)) as raw:
        await _each(stage, raw.iter_lines(), seen)


async def _read(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    async with stage.inside(surface.call(surface.resource(client).with_streaming_response)) as raw:
        seen.note(await stage.of(raw.read()))


READINGS: dict[str, Reading] = {"to the end": _to_the_end, "a few": _a_few, "parsed": _parsed}
RAW_READINGS: dict[str, Reading] = {
    "bytes": _bytes,
    "raw bytes": _raw_bytes,
    "text": _text,
    "lines": _lines,
    "read": _read,
}


async def whole(stage: Stage, surface: Surface, client: Any, seen: Any) -> None:
    """Calls that are not streamed: their answer."""
    seen.note(await stage.of(surface.call(surface.resource(client))))
