"""Chat completions and legacy completions, by every way the SDK has."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from support.drivers import MESSAGES
from surfaces.observed import told_of_response
from surfaces.scenes import Scene, Surface

__all__ = ["CHAT", "chat", "joined"]


def chat(scene: Scene, **more: Any) -> Any:
    """Ask for a chat completion."""
    return scene.client.chat.completions.create(model=scene.model, messages=MESSAGES, **more)


async def _stream(scene: Scene) -> None:
    stream = await scene.stage.of(chat(scene, stream=True))
    try:
        await scene.each(stream)
    finally:
        scene.told.say(told_of_response(stream.response))


async def _with_usage(scene: Scene) -> None:
    async with scene.stage.inside(
        await scene.stage.of(chat(scene, stream=True, stream_options={"include_usage": True}))
    ) as stream:
        await scene.each(stream)


async def _stepwise(scene: Scene) -> None:
    """By single steps, and on after a break."""
    stream = await scene.stage.of(chat(scene, stream=True))
    scene.told.note(await scene.stage.step(stream))
    async for item in scene.stage.over(stream):
        scene.told.note(item)
        break
    await scene.each(stream)
    await scene.each(stream)
    await scene.stage.close(stream)


async def _whole(scene: Scene) -> None:
    await scene.whole(chat(scene))


def _completions(client: Any) -> Any:
    return (
        client.chat.completions
        if hasattr(client.chat.completions, "stream")
        else client.beta.chat.completions
    )


async def _parse(scene: Scene) -> None:
    await scene.whole(_completions(scene.client).parse(model=scene.model, messages=MESSAGES))


async def _helper(scene: Scene) -> None:
    manager = _completions(scene.client).stream(model=scene.model, messages=MESSAGES)
    async with scene.stage.inside(manager) as stream:
        await scene.each(stream)
        scene.told.say(await scene.stage.of(stream.get_final_completion()))


async def _final(scene: Scene) -> None:
    manager = _completions(scene.client).stream(model=scene.model, messages=MESSAGES)
    async with scene.stage.inside(manager) as stream:
        await scene.stage.of(stream.until_done())
        await scene.whole(stream.get_final_completion())


def _raw(scene: Scene, **more: Any) -> Any:
    create = scene.client.chat.completions.with_raw_response.create
    return create(model=scene.model, messages=MESSAGES, **more)


def _note_raw(scene: Scene, raw: Any) -> None:
    names = sorted(name for name in vars(raw) if not name.startswith("__"))
    scene.told.say((type(raw).__qualname__, names, raw.status_code, raw.url, raw.method, raw.http_version))
    scene.told.say((raw.request_id, raw.is_closed, raw.retries_taken, sorted(raw.headers.items())))


async def _raw_stream(scene: Scene) -> None:
    raw = await scene.stage.of(_raw(scene, stream=True))
    _note_raw(scene, raw)
    stream = raw.parse()
    scene.told.say(stream is raw.parse())
    try:
        await scene.each(stream)
    finally:
        scene.told.say(told_of_response(raw.http_response))


async def _raw_elsewhere(scene: Scene) -> None:
    """Parsed and read in another thread or task than the one that asked."""
    raw = await scene.stage.of(_raw(scene, stream=True))

    async def there() -> None:
        await scene.each(raw.parse())

    if scene.stage.is_async:
        await asyncio.create_task(there())
        return
    errors: list[BaseException] = []

    def run() -> None:
        try:
            there().send(None)
        except StopIteration:
            pass
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for error in errors:
        raise error


async def _raw_whole(scene: Scene) -> None:
    raw = await scene.stage.of(_raw(scene))
    _note_raw(scene, raw)
    scene.told.note(raw.text)
    scene.told.note(raw.parse())
    scene.told.say(told_of_response(raw.http_response))


def _streamed(scene: Scene, **more: Any) -> Any:
    create = scene.client.chat.completions.with_streaming_response.create
    return scene.stage.inside(create(model=scene.model, messages=MESSAGES, **more))


async def _lines(scene: Scene) -> None:
    async with _streamed(scene, stream=True) as response:
        await scene.each(response.iter_lines())


async def joined(scene: Scene, pieces: Any) -> None:
    """Note what arrived as one: how the network cuts it is chance."""
    read: list[Any] = []
    try:
        async for piece in scene.stage.over(pieces):
            read.append(piece)  # noqa: PERF401 - a comprehension loses what came before an error
    finally:
        scene.told.note(read[0][:0].join(read) if read else None)
        scene.told.say({type(piece).__name__ for piece in read})


async def _bytes(scene: Scene) -> None:
    async with _streamed(scene, stream=True) as response:
        await joined(scene, response.iter_bytes())
        scene.told.say(told_of_response(response.http_response))


async def _cut_to_size(scene: Scene) -> None:
    async with _streamed(scene, stream=True) as response:
        await joined(scene, response.iter_bytes(7))


async def _text(scene: Scene) -> None:
    async with _streamed(scene, stream=True) as response:
        await joined(scene, response.iter_text())


async def _streamed_parse(scene: Scene) -> None:
    async with _streamed(scene, stream=True) as response:
        stream = await scene.stage.of(response.parse())
        scene.told.say(stream is await scene.stage.of(response.parse()))
        await scene.each(stream)
        scene.told.say((response.is_closed, response.request_id, response.retries_taken))


async def _streamed_whole(scene: Scene) -> None:
    async with _streamed(scene) as response:
        scene.told.note(len(await scene.stage.of(response.read())) > 0)
        scene.told.note(await scene.stage.of(response.text()))
        scene.told.note(await scene.stage.of(response.json()))
        scene.told.note(await scene.stage.of(response.parse()))


async def _legacy(scene: Scene) -> None:
    made = scene.client.completions.create(model=scene.model, prompt="hello", stream=True)
    async with scene.stage.inside(await scene.stage.of(made)) as stream:
        await scene.each(stream)


async def _legacy_whole(scene: Scene) -> None:
    await scene.whole(scene.client.completions.create(model=scene.model, prompt="hello"))


CHAT = (
    Surface("chat.completions.create, stream", "chat", "events", _stream),
    Surface("chat.completions.create, stream with usage", "chat", "events", _with_usage),
    Surface("chat.completions.create, by next() and after break", "chat", "events", _stepwise),
    Surface("chat.completions.create", "chat", "whole answer", _whole),
    Surface("chat.completions.parse", "chat", "whole answer", _parse),
    Surface("chat.completions.stream", "chat", "events", _helper),
    Surface("chat.completions.stream, final completion", "chat", "events", _final, stepwise=False),
    Surface("with_raw_response, stream, .parse()", "chat", "events", _raw_stream),
    Surface("with_raw_response, .parse() in another thread or task", "chat", "events", _raw_elsewhere),
    Surface("with_raw_response", "chat", "whole answer", _raw_whole),
    Surface("with_streaming_response, stream, .iter_lines()", "chat", "bytes", _lines),
    Surface("with_streaming_response, stream, .iter_bytes()", "chat", "bytes", _bytes),
    Surface("with_streaming_response, stream, .iter_bytes(size)", "chat", "bytes", _cut_to_size),
    Surface("with_streaming_response, stream, .iter_text()", "chat", "bytes", _text),
    Surface("with_streaming_response, stream, .parse()", "chat", "events", _streamed_parse),
    Surface("with_streaming_response, .read() and others", "chat", "whole answer", _streamed_whole),
    Surface("completions.create, stream", "completions", "events", _legacy),
    Surface("completions.create", "completions", "whole answer", _legacy_whole),
)
