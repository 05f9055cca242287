"""A model server without sockets: transports that hand prepared events to the SDK, one a read.

What a program pays for a chunk is then CPU time only, the same in every round: no kernel, no second process, no wait.
Chunks are of the size that OpenAI's API sends. The transports work in any release of the SDK, on httpx and httpx2, and
import nothing of ours, because they also feed the SDK in environments where only another instrumentor is installed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai

MODEL = "gpt-4o-mini"
MESSAGES: Any = [{"role": "user", "content": "Tell me a story."}]
USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 40,
    "total_tokens": 52,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "req_0123456789abcdef"}
PLAIN_HEADERS = {"content-type": "application/json", "x-request-id": "req_0123456789abcdef"}
UNEVENTFUL = 3
"""Chunks of an answer that are not tokens: the role, the finish reason and the usage."""


def http_library() -> Any:
    """Return the library that the installed SDK stands on: ``httpx`` or ``httpx2``."""
    for parent in openai.DefaultHttpxClient.__mro__:
        library = parent.__module__.partition(".")[0]
        if library.startswith("httpx"):
            return sys.modules[library]
    raise RuntimeError("the SDK's default client comes from no HTTP library known here")


_http = http_library()


def event(delta: dict[str, Any], finish: str | None = None, model: str = MODEL) -> bytes:
    """Return one chat chunk as the wire carries it."""
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return _data(_chunk(choices, None, model))


def answer(tokens: int, model: str = MODEL) -> list[bytes]:
    """Return the events of a whole answer: as many chunks as tokens, and ``UNEVENTFUL`` more."""
    words = ("Once", " upon", " a", " time", ",", " there", " lived", " old", "-fash", "ioned")
    return [
        event({"role": "assistant", "content": "", "refusal": None}, model=model),
        *(event({"content": words[number % len(words)]}, model=model) for number in range(tokens)),
        event({}, "stop", model),
        _data(_chunk([], USAGE, model)),
        b"data: [DONE]\n\n",
    ]


def plain_answer(model: str = MODEL) -> bytes:
    """Return the body of a call that is not streamed."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "Once upon a time." * 10,
        "refusal": None,
        "annotations": [],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    body = _chunk([choice], USAGE, model) | {"object": "chat.completion"}
    return json.dumps(body).encode()


class Feed:
    """What the transports answer: set ``tokens`` before a call; ``failures`` answers of 503 go before each."""

    def __init__(self) -> None:
        self.tokens = 20
        self.failures = 0
        self.handed = 0
        """When the last event was handed over, in nanoseconds of ``time.perf_counter_ns``; only with ``stamped``."""
        self.stamped = False
        self.suspending = False
        """Whether each asynchronous read gives the loop a turn first, as one on a socket does."""
        self.silent_after: int | None = None
        """After how many events a body says nothing more; only asynchronous ones can wait."""
        self._answers: dict[int, list[bytes]] = {}
        self._plain = plain_answer()
        self._failed = 0

    def events(self) -> list[bytes]:
        """Return the events of the next answer."""
        if self.tokens not in self._answers:
            self._answers[self.tokens] = answer(self.tokens)
        return self._answers[self.tokens][: self.silent_after]

    def respond(self, request: Any, body: type[Any]) -> Any:
        """Return the response to a request, its stream made by ``body``."""
        if self._failed < self.failures:
            self._failed += 1
            return _http.Response(503, headers={"retry-after-ms": "1"}, content=b"", request=request)
        self._failed = 0
        # The SDK writes JSON with or without blanks, depending on the release.
        if b'"stream":true' in request.content or b'"stream": true' in request.content:
            return _http.Response(200, headers=STREAM_HEADERS, stream=body(self), request=request)
        return _http.Response(200, headers=PLAIN_HEADERS, content=self._plain, request=request)

    def client(self, **options: Any) -> openai.OpenAI:
        """Return a client that is fed by this."""
        http = openai.DefaultHttpxClient(transport=_Transport(self))
        return openai.OpenAI(base_url="http://model.test/v1", api_key="none", http_client=http, **options)

    def async_client(self, **options: Any) -> openai.AsyncOpenAI:
        """Return an asynchronous client that is fed by this."""
        http = openai.DefaultAsyncHttpxClient(transport=_AsyncTransport(self))
        return openai.AsyncOpenAI(
            base_url="http://model.test/v1", api_key="none", http_client=http, **options
        )


class _Body(_http.SyncByteStream):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __iter__(self) -> Iterator[bytes]:
        feed = self._feed
        if not feed.stamped:
            return iter(feed.events())
        return self._stamped(feed)

    @staticmethod
    def _stamped(feed: Feed) -> Iterator[bytes]:
        for data in feed.events():
            feed.handed = time.perf_counter_ns()
            yield data


class _AsyncBody(_http.AsyncByteStream):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        feed = self._feed
        stamped, suspending, silent = feed.stamped, feed.suspending, feed.silent_after is not None
        for data in feed.events():
            if suspending:
                await asyncio.sleep(0)
            if stamped:
                feed.handed = time.perf_counter_ns()
            yield data
        if silent:
            await asyncio.get_running_loop().create_future()


class _Transport(_http.BaseTransport):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def handle_request(self, request: Any) -> Any:
        return self._feed.respond(request, _Body)


class _AsyncTransport(_http.AsyncBaseTransport):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def handle_async_request(self, request: Any) -> Any:
        return self._feed.respond(request, _AsyncBody)


def _chunk(choices: list[Any], usage: dict[str, Any] | None, model: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion.chunk",
        "created": 1741569952,
        "model": f"{model}-2024-07-18",
        "service_tier": "default",
        "system_fingerprint": "fp_06737a9306",
        "choices": choices,
        "usage": usage,
    }


def _data(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"
