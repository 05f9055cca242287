"""The SDK's chunk objects, read cheaply and without trust.

The common case (one choice, content, nothing else) is decided by four attribute reads. Everything else is scanned in
full, unknown fields included. Missing names are never probed with ``getattr``: pydantic raises and catches inside,
which costs more than the rest of the guard. Responses events go by their type string; the class is arbitrary for types
the SDK does not know. What telemetry wants of the response (id, model, usage) is picked up on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from openai import APIConnectionError, APIError, APIStatusError, BaseModel

from stallwatch.core.chunks import (
    FINISH,
    HEARTBEAT,
    LAST,
    OUTPUT_UNKNOWN,
    RUN_ENDS,
    TERMINAL_EVENTS,
    USAGE,
    VISIBLE,
    ChunkFacts,
    delta_facts,
    event_facts,
    merge_facts,
)
from stallwatch.sdk.codes import code_of
from stallwatch.telemetry.recorder import Usage
from stallwatch.telemetry.values import count_of, text_of

__all__ = ["Reader", "Response", "read_whole"]

_EMPTY: Mapping[str, Any] = {}
_REASONS_CAP = 128
"""Positions of the list of finish reasons; the largest ``n`` that OpenAI takes. A request may name any number."""
_CHOICES_CAP = 1 << 16
"""Choices that are told apart, by their index: a server can make up as many as it has chunks."""

_WITH_LAST_EVENT = ("response.", "image_generation.", "image_edit.", "transcript.text.", "speech.audio.")

_CHOICE_FRAME = frozenset(
    {"index", "finish_reason", "logprobs", "delta", "content_filter_results", "content_filter_offsets"}
)


class Response:
    """What was learned from a response."""

    __slots__ = (
        "_finished",
        "_reasons",
        "begun",
        "characters",
        "code",
        "fingerprint",
        "id",
        "model",
        "service_tier",
        "usage",
    )

    def __init__(self) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self.usage = Usage()
        self.service_tier: str | None = None
        self.fingerprint: str | None = None
        self.code: str | None = None
        self.characters = 0
        self.begun = False
        """Whether a chunk with a choice has been read in full, so that id and model are known if they are told."""
        self._reasons: dict[int, str] | None = None
        # A bit for each: of thousands, a few kilobytes.
        self._finished = 0

    def note_choice(self, index: int, reason: str | None) -> bool:
        """Remember a choice; True when it has just been finished."""
        if self._reasons is None:
            self._reasons = {}
        choice = 1 << index % _CHOICES_CAP
        if reason is None or self._finished & choice:
            return False
        self._finished |= choice
        if 0 <= index < _REASONS_CAP:
            self._reasons[index] = reason
        return True

    def finish_reasons(self, choices: int) -> list[str] | None:
        """Return one reason per choice, of the first 128; ``error`` stands where none came."""
        if self._reasons is None:
            return None
        positions = min(max(choices, self._finished.bit_count()), _REASONS_CAP)
        return [self._reasons.get(index, "error") for index in range(positions)]

    def note_identity(self, fields: Mapping[str, Any]) -> None:
        """Remember id, model, tier and fingerprint; an empty value never replaces a known one."""
        get = fields.get
        self.id = text_of(get("id")) or self.id
        self.model = _shared(get("model")) or self.model
        self.service_tier = _shared(get("service_tier")) or self.service_tier
        self.fingerprint = _shared(get("system_fingerprint")) or self.fingerprint

    def note_usage(self, usage: object) -> bool:
        """Remember the newest usage snapshot; True when a counter of output has risen."""
        fields = _fields(usage)
        if not fields:
            return False
        known = self.usage
        # Not the prompt's counter: it is known from the start, and its first appearance shows no work.
        output, reasoning = known.output, known.reasoning
        known.input = _count(fields, "prompt_tokens", "input_tokens", known.input)
        known.output = _count(fields, "completion_tokens", "output_tokens", known.output)
        inputs = fields.get("prompt_tokens_details") or fields.get("input_tokens_details")
        if inputs:
            known.cache_read = _count(_fields(inputs), "cached_tokens", "cached_tokens", known.cache_read)
        outputs = fields.get("completion_tokens_details") or fields.get("output_tokens_details")
        if outputs:
            known.reasoning = _count(
                _fields(outputs), "reasoning_tokens", "reasoning_tokens", known.reasoning
            )
        return (known.output or 0) > (output or 0) or (known.reasoning or 0) > (reasoning or 0)


class Reader:
    """Reads the chunks of one stream."""

    __slots__ = ("_kind", "response")

    def __init__(self) -> None:
        self.response = Response()
        self._kind: str | None = None

    def facts(self, chunk: Any) -> ChunkFacts:
        """Return what ``chunk`` means; one that cannot be read counts as progress and hurts nobody."""
        try:
            fields = chunk.__dict__
            response = self.response
            if response.begun:
                # As nearly all chunks are: the text of the only choice goes on.
                choices = fields.get("choices")
                if choices and len(choices) == 1 and fields.get("usage") is None:
                    choice = choices[0].__dict__
                    delta = choice.get("delta")
                    content = None if delta is None else delta.__dict__.get("content")
                    if content and type(content) is str and choice.get("finish_reason") is None:
                        response.characters += len(content)
                        return VISIBLE
            return self._meaning(chunk, fields)
        except Exception:
            return OUTPUT_UNKNOWN

    def _meaning(self, chunk: Any, fields: dict[str, Any]) -> ChunkFacts:
        if "choices" in fields:
            return self._completion(chunk, fields)
        kind = fields.get("type")
        if isinstance(kind, str):
            return self._event(kind, fields)
        # Releases of 1.x deliver events that are not named "response...." with name and payload one level down, among
        # the extra fields of an arbitrary class.
        every = _with_extra(chunk, fields)
        data = every.get("data")
        name = every.get("event")
        if isinstance(name, str) and name.startswith("thread."):
            return self._of_run(name, _fields(data))
        if isinstance(data, Mapping):
            kind = text_of(data.get("type")) or text_of(every.get("event"))
            if kind is not None:
                return self._event(kind, data)
        return self._unframed(every)

    def _completion(self, chunk: Any, fields: dict[str, Any]) -> ChunkFacts:
        self._kind = "completion"
        response = self.response
        choices: Iterable[Any] = fields["choices"] or ()
        best, finishes = HEARTBEAT, 0
        for position, choice in enumerate(choices):
            frame = _fields(choice)
            index = frame.get("index")
            reason = text_of(frame.get("finish_reason"))
            finishes += response.note_choice(index if isinstance(index, int) else position, reason)
            delta = frame.get("delta")
            # A legacy completion has its output in the choice itself.
            entries = (
                _fields(delta)
                if delta is not None
                else {k: v for k, v in frame.items() if k not in _CHOICE_FRAME}
            )
            best = merge_facts(best, delta_facts(entries.items()))
            response.characters += _characters(entries)
        if response.note_usage(fields.get("usage")) and not best.progress:
            best = USAGE
        if _fields(chunk).get("error"):
            best = merge_facts(best, OUTPUT_UNKNOWN)
        response.note_identity(_with_extra(chunk, fields))
        response.begun = response.begun or bool(choices)
        if finishes:
            return ChunkFacts(
                name=FINISH.name,
                progress=True,
                output=best.output,
                visible=best.visible or not best.output,
                finishes=finishes,
            )
        return best

    def _event(self, kind: str, fields: Mapping[str, Any]) -> ChunkFacts:
        self._kind = "events" if kind.startswith(_WITH_LAST_EVENT) else self._kind
        response = fields.get("response")
        if response is not None:
            self._note_response(kind, response)
        delta = fields.get("delta")
        if isinstance(delta, str) and "audio" not in kind:
            self.response.characters += len(delta)
        if kind in ("response.output_item.added", "response.output_item.done"):
            return event_facts(kind, text_of(_fields(fields.get("item")).get("type")))
        if kind == "error":
            self.response.code = code_of(fields.get("code")) or "error"
        facts = event_facts(kind)
        if facts is LAST:
            self.response.note_usage(fields.get("usage"))
        return facts

    def _of_run(self, kind: str, fields: Mapping[str, Any]) -> ChunkFacts:
        """Read an event of an Assistants run, whose data is the object that changed."""
        self._kind = "events"
        known = self.response
        if fields.get("object") == "thread.run":
            known.note_identity(fields)
            known.note_usage(fields.get("usage"))
        if kind in RUN_ENDS:
            reason = {"completed": "stop", "requires_action": "tool_calls", "incomplete": "length"}
            known.note_choice(0, reason.get(kind.rpartition(".")[2], "error"))
            if kind == "thread.run.failed":
                known.code = code_of(_fields(fields.get("last_error")).get("code")) or kind
        return event_facts(kind, text_of(fields.get("type")))

    def _note_response(self, kind: str, response: Any) -> None:
        fields = _fields(response)
        known = self.response
        known.note_identity(fields)
        known.note_usage(fields.get("usage"))
        if kind in TERMINAL_EVENTS:
            reason = {"response.completed": "stop", "response.incomplete": "length"}.get(kind, "error")
            known.note_choice(0, reason)
            if kind == "response.failed":
                known.code = code_of(_fields(fields.get("error")).get("code")) or "response.failed"

    def _unframed(self, fields: Mapping[str, Any]) -> ChunkFacts:
        return OUTPUT_UNKNOWN if any(fields.values()) else HEARTBEAT

    @property
    def has_end_mark(self) -> bool:
        """Whether what was read is of a protocol with a mark or event at its end, which all that we know have."""
        return self._kind is not None

    def failure(self) -> str | None:
        """Return the code with which the response reported its own failure."""
        return self.response.code

    def code_of(self, error: BaseException) -> str | None:
        """Return the bounded code of an error frame; None for other errors."""
        if not isinstance(error, APIError) or isinstance(error, (APIConnectionError, APIStatusError)):
            return None
        code: object = error.code
        return code_of(str(code) if isinstance(code, int) else code)


def read_whole(result: Any, *, generates: bool = False) -> Reader:
    """Read a complete, non-streamed response object (or its JSON).

    What a call was to generate may have come to nothing: a server's error with status 200, or a response that says it
    failed. Of what is only fetched, the error is part.
    """
    reader = Reader()
    response = reader.response
    fields = _fields(result)
    if generates:
        response.code = _own_error(fields)
    response.note_identity(fields)
    response.note_usage(fields.get("usage"))
    choices = fields.get("choices")
    if isinstance(choices, list):
        for position, choice in enumerate(choices):
            frame = _fields(choice)
            response.note_choice(position, text_of(frame.get("finish_reason")))
            message = frame.get("message")
            response.characters += _characters(frame if message is None else _fields(message))
    elif fields.get("object") == "response":
        response.note_choice(
            0, {"completed": "stop", "incomplete": "length"}.get(str(fields.get("status")), "error")
        )
        for item in _items(fields.get("output")):
            response.characters += sum(_characters(_fields(part)) for part in _items(item.get("content")))
            response.characters += _characters(item)
    return reader


def _own_error(fields: Mapping[str, Any]) -> str | None:
    error = fields.get("error")
    if not error and fields.get("status") != "failed":
        return None
    code = _fields(error).get("code")
    return code_of(str(code) if isinstance(code, int) else code) or "error"


_OUTPUT_TEXTS = ("content", "reasoning_content", "reasoning", "refusal", "text", "arguments")


def _characters(entries: Mapping[str, Any]) -> int:
    """Return how many characters of output a delta, message or item has: text, reasoning, refusal, arguments."""
    count = sum(len(text) for name in _OUTPUT_TEXTS if isinstance(text := entries.get(name), str))
    for tool in _items(entries.get("tool_calls")):
        arguments = _fields(tool.get("function")).get("arguments")
        count += len(arguments) if isinstance(arguments, str) else 0
    return count


_TEXTS_KEPT = 256
_texts: dict[str, str] = {}
"""Not ``sys.intern``: on Python 3.12 it keeps for good whatever a server makes up."""


def _shared(value: object) -> str | None:
    """Return a text that many streams have in common, as one object for all."""
    text = text_of(value)
    if text is None:
        return None
    if len(_texts) >= _TEXTS_KEPT:
        _texts.clear()
    return _texts.setdefault(text, text)


def _items(value: object) -> Iterable[Mapping[str, Any]]:
    # One by one: there may be a million, and a copy of them all is no business of ours.
    return map(_fields, value) if isinstance(value, list) else ()


def _fields(value: object) -> Mapping[str, Any]:
    """Return the fields of a model or mapping, vendor extras included."""
    if value is None:
        return _EMPTY
    if isinstance(value, BaseModel):
        return _with_extra(value, value.__dict__)
    if isinstance(value, Mapping):
        return value
    own = getattr(value, "__dict__", None)
    return _EMPTY if own is None else _with_extra(value, own)


def _with_extra(value: object, own: Mapping[str, Any]) -> Mapping[str, Any]:
    # pydantic 1 keeps extras among the fields, and lacks the attribute.
    extra = getattr(value, "__pydantic_extra__", None)
    return {**own, **extra} if extra else own


def _count(fields: Mapping[str, Any], name: str, other: str, known: int | None) -> int | None:
    value = fields.get(name)
    if value is None:
        value = fields.get(other)
    counted = count_of(value)
    return known if counted is None else counted
