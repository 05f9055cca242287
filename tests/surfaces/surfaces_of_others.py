"""Responses, embeddings, images, audio and the runs of the Assistants API, by every way the SDK has."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surfaces.scenes import Scene, Surface
from surfaces.surfaces_of_chat import joined

__all__ = ["OTHERS", "takes"]

PICTURE = ("picture.png", b"\x89PNG", "image/png")
SOUND = ("sound.wav", b"RIFF", "audio/wav")


def takes(*path: str, option: str) -> Callable[[Any], bool]:
    """Tell whether a client's method exists and has this option."""

    def offered(client: Any) -> bool:
        for name in path:
            client = getattr(client, name, None)
        return client is not None and option in inspect.signature(client).parameters

    return offered


# --- Responses ---


async def _responses(scene: Scene) -> None:
    made = scene.client.responses.create(model=scene.model, input="hello", stream=True)
    async with scene.stage.inside(await scene.stage.of(made)) as stream:
        await scene.each(stream)


async def _responses_whole(scene: Scene) -> None:
    answer = await scene.whole(scene.client.responses.create(model=scene.model, input="hello"))
    scene.told.note(answer.output_text)


async def _responses_helper(scene: Scene) -> None:
    async with scene.stage.inside(scene.client.responses.stream(model=scene.model, input="hello")) as stream:
        await scene.each(stream)
        scene.told.say(await scene.stage.of(stream.get_final_response()))


async def _responses_parse(scene: Scene) -> None:
    await scene.whole(scene.client.responses.parse(model=scene.model, input="hello"))


async def _responses_raw(scene: Scene) -> None:
    create = scene.client.responses.with_raw_response.create
    raw = await scene.stage.of(create(model=scene.model, input="hello", stream=True))
    scene.told.say(raw.headers["content-type"])
    await scene.each(raw.parse())


async def _responses_lines(scene: Scene) -> None:
    create = scene.client.responses.with_streaming_response.create
    async with scene.stage.inside(create(model=scene.model, input="hello", stream=True)) as response:
        await scene.each(response.iter_lines())


async def _retrieve(scene: Scene) -> None:
    await scene.whole(scene.client.responses.retrieve(scene.gateway.store(scene.model)))


async def _retrieve_stream(scene: Scene) -> None:
    made = scene.client.responses.retrieve(scene.gateway.store(scene.model), stream=True)
    await scene.each(await scene.stage.of(made))


async def _resume(scene: Scene) -> None:
    made = scene.client.responses.retrieve(scene.gateway.store(scene.model), stream=True, starting_after=3)
    await scene.each(await scene.stage.of(made))


async def _resume_helper(scene: Scene) -> None:
    stored = scene.gateway.store(scene.model)
    async with scene.stage.inside(
        scene.client.responses.stream(response_id=stored, starting_after=3)
    ) as stream:
        await scene.each(stream)


async def _beta_responses(scene: Scene) -> None:
    made = scene.client.beta.responses.create(model=scene.model, input="hello", stream=True)
    await scene.each(await scene.stage.of(made))


# --- embeddings, images, audio ---


async def _embeddings(scene: Scene) -> None:
    await scene.whole(scene.client.embeddings.create(model=scene.model, input=["a", "b"]))


async def _images(scene: Scene) -> None:
    made = scene.client.images.generate(model=scene.model, prompt="a cat", stream=True, partial_images=2)
    await scene.each(await scene.stage.of(made))


async def _images_whole(scene: Scene) -> None:
    await scene.whole(scene.client.images.generate(model=scene.model, prompt="a cat"))


async def _image_edits(scene: Scene) -> None:
    made = scene.client.images.edit(model=scene.model, prompt="a cat", image=PICTURE, stream=True)
    await scene.each(await scene.stage.of(made))


async def _image_edits_whole(scene: Scene) -> None:
    await scene.whole(scene.client.images.edit(model=scene.model, prompt="a cat", image=PICTURE))


async def _speech(scene: Scene) -> None:
    made = scene.client.audio.speech.create(model=scene.model, input="hello", voice="alloy")
    answer = await scene.stage.of(made)
    scene.told.note((type(answer).__qualname__, answer.content, answer.response.status_code))
    scene.told.note([*answer.iter_bytes()])


async def _speech_bytes(scene: Scene) -> None:
    create = scene.client.audio.speech.with_streaming_response.create
    manager = create(model=scene.model, input="hello", voice="alloy")
    async with scene.stage.inside(manager) as response:
        await joined(scene, response.iter_bytes())


async def _speech_file(scene: Scene) -> None:
    create = scene.client.audio.speech.with_streaming_response.create
    manager = create(model=scene.model, input="hello", voice="alloy")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.mp3"
        async with scene.stage.inside(manager) as response:
            await scene.stage.of(response.stream_to_file(path))
        scene.told.note(path.read_bytes())


async def _speech_events(scene: Scene) -> None:
    create = scene.client.audio.speech.with_streaming_response.create
    manager = create(model=scene.model, input="hello", voice="alloy", extra_body={"stream_format": "sse"})
    async with scene.stage.inside(manager) as response:
        await scene.each(response.iter_lines())


async def _transcript(scene: Scene) -> None:
    made = scene.client.audio.transcriptions.create(model=scene.model, file=SOUND, stream=True)
    await scene.each(await scene.stage.of(made))


async def _transcript_whole(scene: Scene) -> None:
    await scene.whole(scene.client.audio.transcriptions.create(model=scene.model, file=SOUND))


# --- Assistants ---

_RUN: dict[str, Any] = {"assistant_id": "asst_1"}


async def _runs(scene: Scene) -> None:
    create = scene.client.beta.threads.runs.create
    made = create("thread_1", model=scene.model, stream=True, **_RUN)
    await scene.each(await scene.stage.of(made))


async def _runs_whole(scene: Scene) -> None:
    await scene.whole(scene.client.beta.threads.runs.create("thread_1", model=scene.model, **_RUN))


async def _runs_helper(scene: Scene) -> None:
    manager = scene.client.beta.threads.runs.stream(thread_id="thread_1", model=scene.model, **_RUN)
    async with scene.stage.inside(manager) as stream:
        await scene.each(stream)
        scene.told.say(await scene.stage.of(stream.get_final_run()))
        scene.told.say(await scene.stage.of(stream.get_final_messages()))


async def _runs_texts(scene: Scene) -> None:
    manager = scene.client.beta.threads.runs.stream(thread_id="thread_1", model=scene.model, **_RUN)
    async with scene.stage.inside(manager) as stream:
        await scene.each(stream.text_deltas)


async def _thread_and_run(scene: Scene) -> None:
    made = scene.client.beta.threads.create_and_run(model=scene.model, stream=True, **_RUN)
    await scene.each(await scene.stage.of(made))


async def _thread_and_run_helper(scene: Scene) -> None:
    manager = scene.client.beta.threads.create_and_run_stream(model=scene.model, **_RUN)
    async with scene.stage.inside(manager) as stream:
        await scene.each(stream)


async def _tool_outputs(scene: Scene) -> None:
    submit = scene.client.beta.threads.runs.submit_tool_outputs
    stored = scene.gateway.store(scene.model, "runs")
    made = submit(stored, thread_id="thread_1", tool_outputs=[], stream=True)
    await scene.each(await scene.stage.of(made))


async def _tool_outputs_helper(scene: Scene) -> None:
    submit = scene.client.beta.threads.runs.submit_tool_outputs_stream
    stored = scene.gateway.store(scene.model, "runs")
    async with scene.stage.inside(submit(run_id=stored, thread_id="thread_1", tool_outputs=[])) as stream:
        await scene.each(stream)


_streamed_images = takes("images", "generate", option="stream")
_streamed_edits = takes("images", "edit", option="stream")
_streamed_transcripts = takes("audio", "transcriptions", "create", option="stream")
_runs_offered = takes("beta", "threads", "runs", "create", option="stream")
_retrieved = takes("responses", "retrieve", option="stream")
_resumed = takes("responses", "stream", option="starting_after")

OTHERS = (
    Surface("responses.create, stream", "responses", "events", _responses),
    Surface("responses.create", "responses", "whole answer", _responses_whole),
    Surface("responses.stream", "responses", "events", _responses_helper),
    Surface(
        "responses.parse",
        "responses",
        "whole answer",
        _responses_parse,
        takes("responses", "parse", option="model"),
    ),
    Surface("responses, with_raw_response, stream, .parse()", "responses", "events", _responses_raw),
    Surface("responses, with_streaming_response, .iter_lines()", "responses", "bytes", _responses_lines),
    Surface("responses.retrieve", "responses", "whole answer", _retrieve),
    Surface("responses.retrieve, stream", "responses", "events", _retrieve_stream, _retrieved),
    Surface("responses.retrieve, stream, starting_after", "responses", "events", _resume, _retrieved),
    Surface("responses.stream, response_id, starting_after", "responses", "events", _resume_helper, _resumed),
    Surface(
        "beta.responses.create, stream",
        "responses",
        "events",
        _beta_responses,
        takes("beta", "responses", "create", option="stream"),
    ),
    Surface("embeddings.create", "embeddings", "whole answer", _embeddings),
    Surface("images.generate, stream", "images", "events", _images, _streamed_images),
    Surface("images.generate", "images", "whole answer", _images_whole),
    Surface("images.edit, stream", "image-edits", "events", _image_edits, _streamed_edits),
    Surface("images.edit", "image-edits", "whole answer", _image_edits_whole),
    Surface("audio.speech.create", "speech", "whole answer", _speech),
    Surface("audio.speech, with_streaming_response, .iter_bytes()", "speech", "whole answer", _speech_bytes),
    Surface(
        "audio.speech, with_streaming_response, .stream_to_file()", "speech", "whole answer", _speech_file
    ),
    Surface("audio.speech, stream_format sse, .iter_lines()", "speech", "whole answer", _speech_events),
    Surface(
        "audio.transcriptions.create, stream", "transcriptions", "events", _transcript, _streamed_transcripts
    ),
    Surface("audio.transcriptions.create", "transcriptions", "whole answer", _transcript_whole),
    Surface("beta.threads.runs.create, stream", "runs", "events", _runs, _runs_offered),
    Surface("beta.threads.runs.create", "runs", "whole answer", _runs_whole, _runs_offered),
    Surface("beta.threads.runs.stream", "runs", "events", _runs_helper, _runs_offered),
    Surface("beta.threads.runs.stream, .text_deltas", "runs", "events", _runs_texts, _runs_offered),
    Surface("beta.threads.create_and_run, stream", "runs", "events", _thread_and_run, _runs_offered),
    Surface("beta.threads.create_and_run_stream", "runs", "events", _thread_and_run_helper, _runs_offered),
    Surface("beta.threads.runs.submit_tool_outputs, stream", "runs", "events", _tool_outputs, _runs_offered),
    Surface(
        "beta.threads.runs.submit_tool_outputs_stream", "runs", "events", _tool_outputs_helper, _runs_offered
    ),
)
