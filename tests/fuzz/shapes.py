"""Valid JSON of wrong shapes: what servers send for each surface, with parts replaced, dropped, doubled and wrapped.

Objects are lists of pairs until they are written, so that a key can come twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

__all__ = ["ANSWERS", "ANY_JSON", "ERRORS", "TEMPLATES", "bent", "errors", "written"]


@dataclass(frozen=True, slots=True)
class Pairs:
    """An object, its members in order."""

    members: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A number as it is spelled on the wire."""

    spelling: str


_TEXTS = st.sampled_from(
    ["", "a", "[DONE]", "data: [DONE]\n\n", "\n", "é", "\u2028", "\ud800", "\x00", "stop", "error", "x" * 300]
) | st.text(max_size=8)
_NUMBERS = st.sampled_from([0, 1, -1, 2, 200, 429, 503, 2**31, 2**63 - 1, 2**63, 10**40, -(10**40)]).map(
    lambda number: Literal(str(number))
) | st.sampled_from(["1e400", "-1e400", "0.5", "-0.0", "1E-400", "NaN", "Infinity", "-Infinity"]).map(Literal)
_KEYS = st.sampled_from(
    [
        "choices",
        "delta",
        "content",
        "error",
        "usage",
        "type",
        "id",
        "index",
        "code",
        "status",
        "data",
        "response",
    ]
) | st.text(max_size=4)

ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(st.tuples(_KEYS, inner), max_size=4).map(lambda members: Pairs(tuple(members)))
    ),
    max_leaves=6,
)


def written(value: Any) -> str:
    """Return the JSON text of a value."""
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(name)}:{written(member)}" for name, member in value.members) + "}"
    if isinstance(value, Literal):
        return value.spelling
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs(tuple((name, _pairs(member)) for name, member in value.items()))
    return [_pairs(item) for item in value] if isinstance(value, list) else value


def _size(value: Any) -> int:
    if isinstance(value, Pairs):
        return 1 + sum(_size(member) for _, member in value.members)
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _changed(value: Any, place: int, how: str, other: Any) -> Any:
    """Return the value with its part number ``place``, counted in the order of the text, changed."""
    if place == 0:
        return {"replace": other, "wrap": [value], "nest": Pairs((("error", value), ("data", other)))}.get(
            how, other
        )
    place -= 1
    members = value.members if isinstance(value, Pairs) else [("", item) for item in value]
    made: list[tuple[str, Any]] = []
    for name, member in members:
        size = _size(member)
        if not 0 <= place < size:
            made.append((name, member))
        elif place == 0 and how == "drop":
            pass
        elif place == 0 and how == "double":
            made += [(name, member), (name, other)]
        else:
            made.append((name, _changed(member, place, how, other)))
        place -= size
    return Pairs(tuple(made)) if isinstance(value, Pairs) else [item for _, item in made]


@st.composite
def bent(draw: st.DrawFn, template: Any) -> Any:
    """A template with up to three of its parts changed."""
    value = _pairs(template)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, _size(value) - 1))
        how = draw(st.sampled_from(["replace", "replace", "drop", "double", "wrap", "nest"]))
        value = _changed(value, place, how, draw(ANY_JSON))
    return value


def _chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1741569952,
        "model": "m",
        "choices": choices,
        **more,
    }


_USAGE = {
    "prompt_tokens": 1,
    "completion_tokens": 2,
    "total_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
_CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [{"type": "message", "id": "i", "content": [{"type": "output_text", "text": "a"}]}],
    "error": None,
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
}
_RUN = {
    "id": "run_1",
    "object": "thread.run",
    "status": "failed",
    "model": "m",
    "last_error": {"code": "server_error", "message": "m"},
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}

TEMPLATES: dict[str, list[tuple[str | None, Any]]] = {
    "chat": [
        (None, _chat({"role": "assistant", "content": ""})),
        (None, _chat({"content": "a"})),
        (None, _chat({"reasoning_content": "r"})),
        (None, _chat({"content": [{"type": "text", "text": "q"}]})),
        (None, _chat({"tool_calls": [_CALL]})),
        (None, _chat({}, "stop")),
        (None, _chat({}, usage=_USAGE) | {"choices": []}),
    ],
    "completions": [
        (None, {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]})
        for choice in (
            {"index": 0, "text": "a", "logprobs": None, "finish_reason": None},
            {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"},
        )
    ],
    "responses": [
        (kind, {"type": kind, "sequence_number": 1, **more})
        for kind, more in (
            ("response.created", {"response": {**_RESPONSE, "status": "in_progress", "output": []}}),
            ("response.output_item.added", {"output_index": 0, "item": {"type": "message", "id": "i"}}),
            ("response.output_text.delta", {"delta": "a", "output_index": 0, "item_id": "i"}),
            ("response.function_call_arguments.delta", {"delta": "{}", "output_index": 0, "item_id": "i"}),
            ("response.completed", {"response": _RESPONSE}),
            (
                "response.failed",
                {"response": {**_RESPONSE, "error": {"code": "server_error", "message": "m"}}},
            ),
            ("error", {"code": "server_error", "message": "m", "param": None}),
        )
    ],
    "images": [
        (kind, {"type": kind, "b64_json": "aGk=", "usage": {"input_tokens": 1, "output_tokens": 2}})
        for kind in ("image_generation.partial_image", "image_generation.completed")
    ],
    "audio": [
        ("transcript.text.delta", {"type": "transcript.text.delta", "delta": "a"}),
        ("transcript.text.done", {"type": "transcript.text.done", "text": "a", "usage": {"input_tokens": 1}}),
    ],
    "assistants": [
        ("thread.run.created", {**_RUN, "status": "queued"}),
        ("thread.message.delta", {"id": "m", "object": "thread.message.delta", "delta": {"content": []}}),
        ("thread.run.step.created", {"id": "s", "object": "thread.run.step", "type": "message_creation"}),
        ("thread.run.completed", {**_RUN, "status": "completed"}),
        ("thread.run.failed", _RUN),
    ],
}
"""By surface, the events a server sends: name and data."""

ERRORS: list[Any] = [
    {"error": {"message": "m", "type": "server_error", "param": None, "code": "server_error"}},
    {"error": {"message": "m", "code": 503, "metadata": {"raw": "x"}}},
    {"error": "overloaded"},
    {"object": "error", "message": "m", "code": 40303, "type": "BadRequest"},
    {"detail": [{"loc": ["body"], "msg": "m", "type": "value_error"}]},
    [{"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}],
    {"status": 500, "code": "Throttling.RateQuota", "request_id": "r", "message": "m"},
]


def errors() -> st.SearchStrategy[Any]:
    """Error objects of every vendor's shape, bent."""
    return st.sampled_from(ERRORS).flatmap(bent)


def _whole(choice: dict[str, Any]) -> dict[str, Any]:
    choices = [{"index": 0, "finish_reason": "stop", "logprobs": None, **choice}]
    return {"id": "c", "object": "o", "created": 1, "model": "m", "choices": choices, "usage": _USAGE}


ANSWERS: dict[str, list[Any]] = {
    "chat": [_whole({"message": {"role": "assistant", "content": "a", "tool_calls": [_CALL]}})],
    "completions": [_whole({"text": "a"})],
    "responses": [_RESPONSE],
    "embeddings": [
        {
            "object": "list",
            "model": "m",
            "data": [{"object": "embedding", "index": 0, "embedding": embedding}],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
        for embedding in ([0.5, 0.25], "AAAAPw==")
    ],
}
"""By surface, the answers to a call that is not streamed."""
