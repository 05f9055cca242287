"""Images, audio and the runs of the Assistants API through the OpenAI SDK; multipart bodies; stored answers."""

from __future__ import annotations

import base64
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from stallwatch.testing import (
    CloseAbruptly,
    Done,
    ErrorFrame,
    Event,
    FaultGateway,
    Finish,
    Headers,
    Role,
    Token,
    Usage,
)
from stallwatch.testing.multipart import text_fields
from testing.rawhttp import RawClient

MODEL = "healthy:tokens=2,gap=0"
SOUND = ("sound.wav", b"RIFF\r\n--x\r\n", "audio/wav")


@pytest.fixture
def client(gateway: FaultGateway) -> Iterator[Any]:
    with openai.OpenAI(base_url=gateway.base_url, api_key="sk-test", max_retries=0, timeout=5) as made:
        yield made


def _offered(method: Any) -> Any:
    if "stream" not in inspect.signature(method).parameters:
        pytest.skip("this release does not stream it")
    return method


def _unpacked(image: str) -> bytes:
    return base64.b64decode(image)


@pytest.mark.parametrize("kind", ["generate", "edit"])
def test_an_image_comes_in_parts(client: Any, gateway: FaultGateway, kind: str) -> None:
    create = _offered(getattr(client.images, kind))
    more = {"image": ("cat.png", b"\x89PNG", "image/png")} if kind == "edit" else {}
    first, second, last = create(model=MODEL, prompt="a cat", stream=True, **more)
    prefix = "image_edit" if kind == "edit" else "image_generation"
    assert [event.type for event in (first, second, last)] == [
        f"{prefix}.partial_image",
        f"{prefix}.partial_image",
        f"{prefix}.completed",
    ]
    assert [_unpacked(event.b64_json) for event in (first, second, last)] == [b"t0 ", b"t1 ", b"t0 t1 "]
    assert (first.partial_image_index, second.partial_image_index) == (0, 1)
    assert last.usage.output_tokens == 2
    (request,) = gateway.ledger().requests
    assert (request.model, request.stream) == (MODEL, True)
    assert request.api == ("image-edits" if kind == "edit" else "images")


def test_an_image_comes_whole(client: Any, gateway: FaultGateway) -> None:
    made = client.images.generate(model=MODEL, prompt="a cat")
    assert [_unpacked(image.b64_json) for image in made.data] == [b"t0 t1 "]
    picture = ("cat.png", b"\x89PNG", "image/png")
    made = client.images.edit(model=MODEL, prompt="a cat", image=picture)
    assert [_unpacked(image.b64_json) for image in made.data] == [b"t0 t1 "]
    assert [request.stream for request in gateway.ledger().requests] == [False, False]


def test_a_transcript_comes_in_parts_and_whole(client: Any, gateway: FaultGateway) -> None:
    create = client.audio.transcriptions.create
    assert create(model=MODEL, file=SOUND).text == "t0 t1 "
    events = list(_offered(create)(model="usage:form=fused,tokens=2,gap=0", file=SOUND, stream=True))
    assert [event.type for event in events] == ["transcript.text.delta"] * 3 + ["transcript.text.done"]
    assert events[-1].text == "t0 t1 end"
    assert [request.api for request in gateway.ledger().requests] == ["transcriptions"] * 2


def test_speech_is_plain_sound(client: Any) -> None:
    made = client.audio.speech.create(model=MODEL, input="hello", voice="alloy")
    assert made.content == b"t0 t1 "
    assert made.response.headers["content-type"] == "audio/mpeg"


def test_speech_can_be_events(client: Any) -> None:
    create = client.audio.speech.with_streaming_response.create
    options = {"extra_body": {"stream_format": "sse"}}
    with create(model="usage:form=fused,tokens=1,gap=0", input="hello", voice="alloy", **options) as made:
        names = [line for line in made.iter_lines() if line.startswith("event")]
    assert names == ["event: speech.audio.delta"] * 2 + ["event: speech.audio.done"]


def _runs(client: Any) -> Any:
    threads = getattr(client.beta, "threads", None)
    if threads is None:
        pytest.skip("this release has no Assistants API")
    return threads


@pytest.fixture(autouse=True)
def retired_soon() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield


def test_a_run_is_told_event_by_event(client: Any, gateway: FaultGateway) -> None:
    threads = _runs(client)
    events = list(threads.runs.create("thread_1", assistant_id="asst_1", model=MODEL, stream=True))
    assert [event.event.removeprefix("thread.") for event in events] == [
        "run.created",
        "run.queued",
        "run.in_progress",
        "run.step.created",
        "run.step.in_progress",
        "message.created",
        "message.in_progress",
        "message.delta",
        "message.delta",
        "message.completed",
        "run.step.completed",
        "run.completed",
    ]
    run = events[-1].data
    assert (run.status, run.model, run.thread_id, run.assistant_id) == (
        "completed",
        MODEL,
        "thread_1",
        "asst_1",
    )
    assert run.usage.completion_tokens == 2
    again = threads.runs.retrieve(run.id, thread_id="thread_1")
    assert (again.id, again.status, again.thread_id) == (run.id, "completed", "thread_1")
    assert gateway.ledger().requests[-1].method == "GET"


def test_a_run_without_a_model_plays_its_assistant(client: Any, gateway: FaultGateway) -> None:
    gateway.script(
        "asst_1", [Role(), Token("Hel"), Finish(text="lo", usage=Usage(completion_tokens=9)), Done()]
    )
    with _runs(client).create_and_run_stream(assistant_id="asst_1") as stream:
        assert "".join(stream.text_deltas) == "Hello"
        assert stream.get_final_run().usage.completion_tokens == 9


def test_tool_outputs_go_to_a_run_that_is_there(client: Any, gateway: FaultGateway) -> None:
    submit = _runs(client).runs.submit_tool_outputs
    stored = gateway.store(MODEL, "runs")
    events = list(submit(stored, thread_id="thread_1", tool_outputs=[], stream=True))
    assert events[-1].data.id == stored
    whole = submit(stored, thread_id="thread_1", tool_outputs=[])
    assert whole.status == "completed"
    with pytest.raises(openai.NotFoundError, match="run_id"):
        submit("run_unknown", thread_id="thread_1", tool_outputs=[])


def test_a_run_can_fail(client: Any, gateway: FaultGateway) -> None:
    create = _runs(client).runs.create
    asked = {"assistant_id": "asst_1", "stream": True}
    last = list(create("thread_1", model="error-frame:style=failed,tokens=1,gap=0", **asked))[-1]
    assert (last.event, last.data.status) == ("thread.run.failed", "failed")
    with pytest.raises(openai.APIError, match="upstream model failed"):
        list(create("thread_1", model="error-frame:tokens=1,gap=0", **asked))


def test_a_stored_response_need_not_have_been_made(client: Any, gateway: FaultGateway) -> None:
    stored = gateway.store(MODEL)
    assert client.responses.retrieve(stored).output_text == "t0 t1 "
    with pytest.raises(ValueError, match="no-such-scenario"):
        gateway.store("no-such-scenario")


@pytest.mark.parametrize("address", ["images/generations", "audio/transcriptions", "audio/speech"])
def test_a_step_without_a_form_is_refused(client: Any, gateway: FaultGateway, address: str) -> None:
    gateway.script("m", [Event({"a": 1}), CloseAbruptly()])
    body = {"model": "reasoning:gap=0", "stream": True}
    with pytest.raises(openai.BadRequestError, match="Reasoning has no"):
        client.post(f"/{address}", body=body, cast_to=object)


@pytest.mark.parametrize("address", ["images/generations", "audio/transcriptions"])
def test_an_error_inside_is_an_api_error(client: Any, gateway: FaultGateway, address: str) -> None:
    gateway.script("m", [Headers(), Token("a"), ErrorFrame(code="overloaded")])
    body = {"model": "m", "stream": True}
    stream = client.post(
        f"/{address}", body=body, cast_to=object, stream=True, stream_cls=openai.Stream[object]
    )
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.code == "overloaded"
    whole = client.post(f"/{address}", body={"model": "m"}, cast_to=object)
    assert whole["error"]["code"] == "overloaded"


def test_azure_has_them_too(gateway: FaultGateway) -> None:
    with openai.AzureOpenAI(
        azure_endpoint=gateway.origin, api_key="sk-test", api_version="2024-10-21"
    ) as azure:
        made = azure.images.generate(model=MODEL, prompt="a cat")
        assert _unpacked(made.data[0].b64_json) == b"t0 t1 "
        assert azure.audio.transcriptions.create(model=MODEL, file=SOUND).text == "t0 t1 "
        assert azure.audio.speech.create(model=MODEL, input="a", voice="alloy").content == b"t0 t1 "
    assert {request.path.split("/")[3] for request in gateway.ledger().requests} == {MODEL}


def test_the_fields_of_a_form_are_read_and_its_files_are_not() -> None:
    body = (
        b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\xc3\xa9\r\n'
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF\r\n'
        b'--x\r\ncontent-disposition: form-data; name="stream"\r\n\r\ntrue\r\n--x--\r\n'
    )
    assert text_fields("multipart/form-data; boundary=x", body) == {"model": "m\u00e9", "stream": "true"}
    assert text_fields("multipart/form-data", b"nothing") == {}


def test_a_head_may_come_in_pieces(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as raw:
        raw.model("drip-headers:every=0.001,size=40,tokens=1,gap=0")
        reply = raw.reply()
    assert (reply.status, reply.events[-1]) == (200, "[DONE]")
