"""What the API forms have in common: frames, the protocol a form keeps, and running token counts.

A form is pure: it turns one content step after another into the bytes of server-sent events, and remembers
enough to build the whole answer for a request that does not stream. It knows nothing of HTTP, sockets or
time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from stallwatch.testing.ledger import SentKind
from stallwatch.testing.steps import ErrorFrame, Step, Usage

JsonObject = dict[str, object]

EVENT_STREAM = "text/event-stream; charset=utf-8"


class Frame(NamedTuple):
    """One piece of a streamed body: a whole event, as one write."""

    kind: SentKind
    data: bytes


class UnplayableStep(Exception):
    """A step has no equivalent in the API form that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerContext:
    """What a form must know of the request: the model to echo and what was asked for."""

    model: str
    answer_id: str
    include_usage: bool = False
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    created: int = field(default_factory=lambda: int(time.time()))


class Form(Protocol):
    """One API form, for one answer; ``media_type`` is what a streamed answer says it is."""

    media_type: str

    def frames(self, step: Step) -> list[Frame]:
        """Return the events this content step becomes; raise `UnplayableStep` if the form has none."""
        ...

    def whole(self) -> JsonObject:
        """Return the answer so far as the body of a request that does not stream."""
        ...


def encode(data: object) -> bytes:
    """Return compact JSON, as the services send it."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def sse(data: object, event: str | None = None) -> bytes:
    """Return one server-sent event carrying this as JSON."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + encode(data) + b"\n\n"


def error_object(step: ErrorFrame) -> JsonObject:
    """Return the error as it stands in a body."""
    return {"message": step.message, "type": step.type, "param": None, "code": step.code}


def error_event(step: ErrorFrame) -> tuple[JsonObject, Frame]:
    """Return the error, and the event named ``error`` that carries it."""
    error = error_object(step)
    return error, Frame(SentKind.ERROR, sse({"type": "error", "error": error}, event="error"))


def comment(text: str) -> bytes:
    """Return one comment, the blank line included."""
    return b": " + text.encode() + b"\n\n"


@dataclass(slots=True)
class TokenCounts:
    """Tokens sent so far; a `Usage` may state other numbers, which then are the final ones."""

    text: int = 0
    reasoning: int = 0
    stated: Usage = field(default_factory=Usage)

    def numbers(self, usage: Usage | None = None) -> tuple[int, int, int, int]:
        """Return prompt, completion (reasoning included), reasoning and cached token counts."""
        stated = self.stated if usage is None else usage
        reasoning = self.reasoning if stated.reasoning_tokens is None else stated.reasoning_tokens
        completion = self.text + reasoning if stated.completion_tokens is None else stated.completion_tokens
        return stated.prompt_tokens, completion, reasoning, stated.cached_tokens


def chat_usage(numbers: tuple[int, int, int, int]) -> JsonObject:
    prompt, completion, reasoning, cached = numbers
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0},
    }
