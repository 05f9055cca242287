"""The client itself: by its own verbs, with streams of the user's class, and clients of other kinds."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from stallwatch.testing import FaultGateway
from support.drivers import MESSAGES
from support.stage import Stage
from surfaces.scenes import Scene, Surface
from surfaces.surfaces_of_chat import chat, joined

__all__ = ["CLIENTS", "own_client"]

HTTP = importlib.import_module("httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx")

OPTIONS: dict[str, Any] = {"api_key": "sk-test", "max_retries": 0, "timeout": 60.0}


class OwnStream(openai.Stream[ChatCompletionChunk]):
    """A user's kind of stream, which has something to say to each item."""

    def __stream__(self) -> Iterator[ChatCompletionChunk]:
        for item in super().__stream__():
            item.mine = "own"  # type: ignore[attr-defined]
            yield item


class OwnAsyncStream(openai.AsyncStream[ChatCompletionChunk]):
    """The same, asynchronous."""

    async def __stream__(self) -> AsyncIterator[ChatCompletionChunk]:
        async for item in super().__stream__():
            item.mine = "own"  # type: ignore[attr-defined]
            yield item


def _post(scene: Scene, *, cast_to: Any = ChatCompletionChunk, **more: Any) -> Any:
    body = {"model": scene.model, "messages": MESSAGES, "stream": "stream" in more}
    return scene.client.post("/chat/completions", body=body, cast_to=cast_to, **more)


async def _post_stream(scene: Scene) -> None:
    kind = openai.AsyncStream if scene.stage.is_async else openai.Stream
    await scene.each(await scene.stage.of(_post(scene, stream=True, stream_cls=kind[ChatCompletionChunk])))


async def _post_own_stream(scene: Scene) -> None:
    kind = OwnAsyncStream if scene.stage.is_async else OwnStream
    stream = await scene.stage.of(_post(scene, stream=True, stream_cls=kind))
    scene.told.say(type(stream))
    await scene.each(stream)


async def _post_whole(scene: Scene) -> None:
    await scene.whole(_post(scene, cast_to=ChatCompletion))


async def _post_object(scene: Scene) -> None:
    await scene.whole(_post(scene, cast_to=object))


async def _post_text(scene: Scene) -> None:
    await scene.whole(_post(scene, cast_to=str))


async def _post_http(scene: Scene) -> None:
    """The HTTP library's own response, its body still open."""
    kind = openai.AsyncStream if scene.stage.is_async else openai.Stream
    response = await scene.stage.of(_post(scene, cast_to=HTTP.Response, stream=True, stream_cls=kind[Any]))
    async with scene.stage.inside(_closing(scene, response)):
        pieces = response.aiter_bytes() if scene.stage.is_async else response.iter_bytes()
        await joined(scene, pieces)


class _closing:  # noqa: N801 - reads as contextlib.closing does
    def __init__(self, scene: Scene, response: Any) -> None:
        self._response = response

    def __enter__(self) -> Any:
        return self._response

    def __exit__(self, *_: object) -> None:
        self._response.close()

    async def __aenter__(self) -> Any:
        return self._response

    async def __aexit__(self, *_: object) -> None:
        await self._response.aclose()


async def _get(scene: Scene) -> None:
    stored = scene.gateway.store(scene.model)
    await scene.whole(scene.client.get(f"/responses/{stored}", cast_to=object))


async def _plain(scene: Scene) -> None:
    async with scene.stage.inside(await scene.stage.of(chat(scene, stream=True))) as stream:
        await scene.each(stream)


async def _with_options(scene: Scene) -> None:
    used = scene.client.with_options(timeout=50, default_headers={"x-mine": "1"})
    create = used.chat.completions.create
    stream = await scene.stage.of(create(model=scene.model, messages=MESSAGES, stream=True))
    await scene.each(stream)


async def _azure_whole(scene: Scene) -> None:
    await scene.whole(chat(scene))


async def _azure_responses(scene: Scene) -> None:
    made = scene.client.responses.create(model=scene.model, input="hello", stream=True)
    await scene.each(await scene.stage.of(made))


async def _module(scene: Scene) -> None:
    with openai.chat.completions.create(model=scene.model, messages=MESSAGES, stream=True) as stream:
        await scene.each(stream)


def _module_client(stage: Stage, gateway: FaultGateway) -> Any:
    openai.api_key, openai.base_url = "sk-test", gateway.base_url + "/"
    openai.max_retries, openai.timeout, openai.api_type = 0, 60.0, "openai"
    # The module keeps the HTTP client of its last client, closed or not.
    openai.http_client = None
    openai._reset_client()  # type: ignore[attr-defined,no-untyped-call]
    return openai._load_client()  # type: ignore[attr-defined,no-untyped-call]


def own_client(stage: Stage, gateway: FaultGateway, **options: Any) -> Any:
    """Make a client of a user's class, which has an ``__init__`` and hooks of its own."""
    kind = openai.AsyncOpenAI if stage.is_async else openai.OpenAI

    class Own(kind):  # type: ignore[misc,valid-type]
        def __init__(self, **more: Any) -> None:
            super().__init__(**{**OPTIONS, **more})
            self.calls: list[str] = []

        @property
        def default_headers(self) -> Any:
            return {**super().default_headers, "x-own": "1"}

        def _build_request(self, options: Any, **more: Any) -> Any:
            self.calls.append("build")
            request = super()._build_request(options, **more)
            request.headers["x-built"] = str(len(self.calls))
            return request

        def _should_retry(self, response: Any) -> bool:
            self.calls.append("should_retry")
            return super()._should_retry(response)

    class Sync(Own):
        def request(self, cast_to: Any, options: Any, **more: Any) -> Any:
            self.calls.append("request")
            return super().request(cast_to, options, **more)

        def _prepare_request(self, request: Any) -> None:
            self.calls.append("prepare")
            return super()._prepare_request(request)

    class Async(Own):
        async def request(self, cast_to: Any, options: Any, **more: Any) -> Any:
            self.calls.append("request")
            return await super().request(cast_to, options, **more)

        async def _prepare_request(self, request: Any) -> None:
            self.calls.append("prepare")
            return await super()._prepare_request(request)

    return (Async if stage.is_async else Sync)(base_url=gateway.base_url, **options)


async def _own_client(scene: Scene) -> None:
    scene.client.calls.clear()
    try:
        async with scene.stage.inside(await scene.stage.of(chat(scene, stream=True))) as stream:
            await scene.each(stream)
    finally:
        scene.told.say(scene.client.calls)


def _azure(stage: Stage, gateway: FaultGateway) -> Any:
    return stage.azure(gateway)


CLIENTS = (
    Surface("client.post, stream, stream_cls", "chat", "events", _post_stream),
    Surface("client.post, stream_cls of one's own", "chat", "events", _post_own_stream),
    Surface("client.post", "chat", "whole answer", _post_whole),
    Surface("client.post, cast_to=object", "chat", "whole answer", _post_object),
    Surface("client.post, cast_to=str", "chat", "whole answer", _post_text),
    Surface("client.post, the HTTP library's response, stream", "chat", "bytes", _post_http),
    Surface("client.get", "responses", "whole answer", _get),
    Surface("client.with_options", "chat", "events", _with_options),
    Surface(
        "openai.chat.completions.create, stream",
        "chat",
        "events",
        _module,
        made=_module_client,
        sync_only=True,
    ),
    Surface("a client of one's own class", "chat", "events", _own_client, made=own_client),
    Surface("AzureOpenAI, chat, stream", "chat", "events", _plain, made=_azure),
    Surface("AzureOpenAI, chat", "chat", "whole answer", _azure_whole, made=_azure),
    Surface("AzureOpenAI, responses, stream", "responses", "events", _azure_responses, made=_azure),
)
