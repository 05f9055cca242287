"""The same answers through the OpenAI SDK, sync and async, chat, completions and Responses, plain and Azure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from stallwatch.testing import (
    EmptyDelta,
    FaultGateway,
    Finish,
    Reasoning,
    Refusal,
    Role,
    Token,
    ToolCall,
    Usage,
)
from stallwatch.testing.steps import Done

KEY = "sk-test"
MESSAGES: Any = [{"role": "user", "content": "hello"}]


def _client(gateway: FaultGateway, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.base_url, api_key=KEY, max_retries=0, timeout=5, **more)


def _collect(gateway: FaultGateway, mode: str, call: Callable[[Any], Any]) -> list[Any]:
    """Make the streaming call on a client of this mode and return all chunks."""
    if mode == "sync":
        with _client(gateway) as client, call(client) as stream:
            return list(stream)

    async def run() -> list[Any]:
        options: Any = {"base_url": gateway.base_url, "api_key": KEY, "max_retries": 0, "timeout": 5}
        async with openai.AsyncOpenAI(**options) as client:
            made: Awaitable[Any] = call(client)
            async with await made as stream:
                return [chunk async for chunk in stream]

    return asyncio.run(run())


def _chat(model: str, **more: Any) -> Callable[[Any], Any]:
    return lambda client: client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **more)


modes = pytest.mark.parametrize("mode", ["sync", "async"])

CHAT_TEXTS = {
    "healthy:gap=0": "t0 t1 t2 t3 t4 ",
    "burst:tokens=50": "".join(f"t{index} " for index in range(50)),
    "late-headers:seconds=0.05,gap=0": "t0 t1 t2 t3 t4 ",
    "drip-headers:every=0.0005,gap=0": "t0 t1 t2 t3 t4 ",
    "think-silently:seconds=0.05,tokens=1": "t0 ",
    "reasoning:count=2,gap=0,content=empty": "t0 t1 t2 ",
    "azure:gap=0,tokens=2": "t0 t1 ",
    "usage:form=cumulative,gap=0,tokens=2": "t0 t1 ",
    "usage:form=fused,gap=0,tokens=2": "t0 t1 end",
    "role-then-finish": "",
    "done-then-linger:gap=0": "t0 t1 t2 t3 t4 ",
    "truncated:gap=0": "t0 t1 t2 ",
    "close-delimited:gap=0": "t0 t1 t2 t3 t4 ",
}


@modes
@pytest.mark.parametrize("model", CHAT_TEXTS)
def test_chat_text_arrives(gateway: FaultGateway, mode: str, model: str) -> None:
    if model.startswith("done-then-linger") and openai.__version__ < "2":
        pytest.skip("this SDK reads on after [DONE]")
    chunks = _collect(gateway, mode, _chat(model))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == CHAT_TEXTS[model]
    assert all(chunk.model in ("", model) for chunk in chunks)


@modes
def test_chat_reasoning_is_an_extra_field(gateway: FaultGateway, mode: str) -> None:
    chunks = _collect(gateway, mode, _chat("reasoning:count=2,gap=0,field=reasoning"))
    extras = [
        (chunk.choices[0].delta.model_extra or {}).get("reasoning") for chunk in chunks if chunk.choices
    ]
    assert [text for text in extras if text] == ["r0 ", "r1 "]


@modes
@pytest.mark.parametrize("model", ["error-frame", "error-frame:style=choices,tokens=1"])
def test_an_error_frame_is_an_api_error(gateway: FaultGateway, mode: str, model: str) -> None:
    with pytest.raises(openai.APIError) as caught:
        _collect(gateway, mode, _chat(model))
    assert caught.value.body["code"] == 502  # type: ignore[index]


@modes
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("error-status:code=401,echo=key", openai.AuthenticationError),
        ("error-status:code=429", openai.RateLimitError),
        ("error-status:code=400,echo=prompt", openai.BadRequestError),
        ("flaky:code=503", openai.InternalServerError),
        ("no-such-scenario", openai.NotFoundError),
        ("healthy:gap=wide", openai.BadRequestError),
    ],
)
def test_a_status_is_the_sdk_s_error(
    gateway: FaultGateway, mode: str, model: str, expected: type[openai.APIStatusError]
) -> None:
    with pytest.raises(expected) as caught:
        _collect(gateway, mode, _chat(model))
    message = str(caught.value)
    assert (KEY in message) == ("echo=key" in model)
    assert ("hello" in message) == ("echo=prompt" in model)


@modes
@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
@pytest.mark.parametrize("model", ["silent", "never-responds", "stall-after:tokens=2,gap=0"])
def test_silence_ends_in_the_sdk_s_own_timeout(
    gateway: FaultGateway, mode: str, api: str, model: str
) -> None:
    def call(client: Any) -> Any:
        if api == "chat":
            return client.chat.completions.create(model=model, messages=MESSAGES, stream=True, timeout=0.2)
        if api == "completions":
            return client.completions.create(model=model, prompt="hello", stream=True, timeout=0.2)
        return client.responses.create(model=model, input="hello", stream=True, timeout=0.2)

    # Releases before 3.0 let the HTTP library's own error out while a stream is read.
    with pytest.raises(Exception, match=r"(?i)timed out|^$"):
        _collect(gateway, mode, call)
    gateway.wait_for(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))


@modes
def test_sdk_retries_show_with_their_header(gateway: FaultGateway, mode: str) -> None:
    model = "error-status:code=503,retry_after_ms=1>error-status:code=503,retry_after_ms=1>healthy:gap=0"
    call = _chat(model)
    chunks = _collect(gateway, mode, lambda client: call(client.with_options(max_retries=2)))
    assert len(chunks) == 7
    requests = gateway.ledger().requests
    assert [request.status for request in requests] == [503, 503, 200]
    assert [request.retry_count for request in requests] == [0, 1, 2]


def test_attempts_can_follow_the_header(gateway: FaultGateway) -> None:
    gateway.script("m", "error-status:code=503", "healthy:gap=0", by_header=True)
    with _client(gateway) as client:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError):
                client.chat.completions.create(model="m", messages=MESSAGES)
        answer = client.with_options(max_retries=1).chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.content == "t0 t1 t2 t3 t4 "


@modes
def test_legacy_completions(gateway: FaultGateway, mode: str) -> None:
    def call(client: Any) -> Any:
        return client.completions.create(
            model="usage:form=fused,gap=0,tokens=2",
            prompt="hello",
            stream=True,
            stream_options={"include_usage": True},
        )

    chunks = _collect(gateway, mode, call)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "t0 t1 end"
    assert chunks[-1].usage.completion_tokens == 3
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    with _client(gateway) as client:
        whole = client.completions.create(model="healthy:gap=0", prompt="hello")
    assert whole.choices[0].text == "t0 t1 t2 t3 t4 "


@modes
def test_the_responses_stream_helper_assembles_everything(gateway: FaultGateway, mode: str) -> None:
    script = [
        Role(),
        EmptyDelta("empty"),
        EmptyDelta("no_choices"),
        Reasoning("because "),
        Token("Hel"),
        Token("lo"),
        ToolCall("save", ['{"a"', ":1}"]),
        Refusal("no"),
        Finish("stop"),
        Usage(prompt_tokens=7, completion_tokens=9, reasoning_tokens=4),
        Done(),
    ]
    gateway.script("m", script)
    final = _final_response(gateway, mode)
    assert final.status == "completed"
    assert final.output_text == "Hello"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "message"]
    assert final.output[0].summary[0].text == "because "
    assert json.loads(final.output[2].arguments) == {"a": 1}
    assert final.output[3].content[0].refusal == "no"
    usage = final.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 9, 16)
    assert usage.output_tokens_details.reasoning_tokens == 4


def _final_response(gateway: FaultGateway, mode: str) -> Any:
    if mode == "sync":
        with _client(gateway) as client, client.responses.stream(model="m", input="hello") as stream:
            return stream.get_final_response()

    async def run() -> Any:
        async with (
            openai.AsyncOpenAI(base_url=gateway.base_url, api_key=KEY) as client,
            client.responses.stream(model="m", input="hello") as stream,
        ):
            return await stream.get_final_response()

    return asyncio.run(run())


def test_responses_events_come_in_order_and_numbered(gateway: FaultGateway) -> None:
    call = _responses("healthy:tokens=2,gap=0")
    events = _collect(gateway, "sync", call)
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(10))
    assert events[-1].response.output_text == "t0 t1 "


def _responses(model: str, **more: Any) -> Callable[[Any], Any]:
    return lambda client: client.responses.create(model=model, input="hello", stream=True, **more)


@modes
@pytest.mark.parametrize(
    ("model", "last"),
    [
        ("error-frame:tokens=1", "error"),
        ("error-frame:style=failed,tokens=1", "response.failed"),
        ("truncated:gap=0", "response.output_text.delta"),
        ("role-then-finish", "response.completed"),
        ("azure", None),
    ],
)
def test_how_responses_streams_end(gateway: FaultGateway, mode: str, model: str, last: str | None) -> None:
    if last is None:
        with pytest.raises(openai.BadRequestError, match="PromptFilter has no Responses form"):
            _collect(gateway, mode, _responses(model))
    else:
        assert _type(_collect(gateway, mode, _responses(model))[-1]) == last


def _type(event: Any) -> str:
    # Releases of 1.x pass events whose name they do not know as a pair of name and data.
    return str(event.type or event.data["type"])


def test_a_length_finish_is_an_incomplete_response(gateway: FaultGateway) -> None:
    gateway.script("m", [Role(), Token("Hel"), Finish("length"), Done()])
    last = _collect(gateway, "sync", _responses("m"))[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details.reason == "max_output_tokens"


def test_heartbeats_in_responses_form_carry_nothing(gateway: FaultGateway) -> None:
    gateway.script(
        "m", [Role(), *(EmptyDelta(kind) for kind in ("no_choices", "empty", "content", "null")), Done()]
    )
    types = [_type(event) for event in _collect(gateway, "sync", _responses("m"))]
    beats = ["response.in_progress", "keepalive", "keepalive", "response.in_progress"]
    assert types == ["response.created", "response.in_progress", *beats, "response.completed"]


@modes
def test_the_chat_stream_helper_assembles_everything(gateway: FaultGateway, mode: str) -> None:
    gateway.script(
        "m", [Role(), Token("Hel"), Token("lo"), ToolCall("save", ['{"a"', ":1}"]), Finish("tool_calls")]
    )
    final = _final_completion(gateway, mode)
    message = final.choices[0].message
    assert message.content == "Hello"
    assert final.choices[0].finish_reason == "tool_calls"
    assert json.loads(message.tool_calls[0].function.arguments) == {"a": 1}


def _final_completion(gateway: FaultGateway, mode: str) -> Any:
    def helper(client: Any) -> Any:
        surface = client.chat if hasattr(client.chat.completions, "stream") else client.beta.chat
        return surface.completions.stream(model="m", messages=MESSAGES)

    if mode == "sync":
        with _client(gateway) as client, helper(client) as stream:
            return stream.get_final_completion()

    async def run() -> Any:
        async with (
            openai.AsyncOpenAI(base_url=gateway.base_url, api_key=KEY) as client,
            helper(client) as stream,
        ):
            return await stream.get_final_completion()

    return asyncio.run(run())


def test_azure_addresses(gateway: FaultGateway) -> None:
    options: Any = {
        "azure_endpoint": gateway.origin,
        "api_key": KEY,
        "api_version": "2024-10-21",
        "max_retries": 0,
    }
    with openai.AzureOpenAI(**options) as client:
        stream = client.chat.completions.create(model="azure:gap=0,tokens=2", messages=MESSAGES, stream=True)
        chunks = list(stream)
        assert client.responses.create(model="healthy:gap=0", input="hello").output_text == "t0 t1 t2 t3 t4 "

    async def run() -> int:
        async with openai.AsyncAzureOpenAI(**options) as client:
            stream = await client.chat.completions.create(model="azure:gap=0", messages=MESSAGES, stream=True)
            return len([chunk async for chunk in stream])

    assert asyncio.run(run()) == 9
    assert chunks[0].choices == []
    request = gateway.ledger().requests[0]
    assert request.path.startswith("/openai/deployments/")
    assert request.model == "azure:gap=0,tokens=2"
    assert request.query_names == ("api-version",)
    assert request.headers["api-key"] == "***"


def test_embeddings_and_models(gateway: FaultGateway) -> None:
    gateway.script("my-embedder", "healthy:gap=0")
    with _client(gateway) as client:
        answer = client.embeddings.create(model="my-embedder", input=["a", "b"], encoding_format="float")
        assert [item.embedding for item in answer.data] == [[0.25, -0.5, 0.125]] * 2
        packed = client.embeddings.create(model="my-embedder", input="a")
        assert list(packed.data[0].embedding) == [0.25, -0.5, 0.125]
        names = [model.id for model in client.models.list()]
        assert {"my-embedder", "healthy", "silent"} <= set(names)
        assert client.models.retrieve("healthy").id == "healthy"


def test_a_stored_response_can_be_read_again(gateway: FaultGateway) -> None:
    with _client(gateway) as client:
        made = client.responses.create(model="healthy:gap=0", input="hello")
        assert client.responses.retrieve(made.id).output_text == made.output_text
        with pytest.raises(openai.NotFoundError, match="response_id"):
            client.responses.retrieve("resp_unknown")
        # Not every release offers streaming here; the address does.
        path: Any = f"/responses/{made.id}?stream=true&starting_after=4"
        raw = client.get(path, cast_to=str)
    assert "response.created" not in raw
    assert raw.count("event: ") == 8


def test_structured_output_parses(gateway: FaultGateway) -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        answer: str
        count: int

    with _client(gateway) as client:
        model = "structured:tokens=2,gap=0"
        with client.responses.stream(model=model, input="hello", text_format=Answer) as stream:
            parsed = stream.get_final_response().output_parsed
    assert parsed == Answer(answer="t0 t1 ", count=2)
