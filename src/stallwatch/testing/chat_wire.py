"""Chat completions and legacy completions, streamed and whole."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from stallwatch.testing import steps as do
from stallwatch.testing.expansion import ToolFragment, ToolStart
from stallwatch.testing.ledger import SentKind
from stallwatch.testing.wire import (
    EVENT_STREAM,
    AnswerContext,
    Frame,
    JsonObject,
    TokenCounts,
    UnplayableStep,
    chat_usage,
    encode,
    error_object,
    sse,
)


@dataclass(slots=True)
class _Choice:
    """One answer as it has grown so far."""

    content: list[str] = field(default_factory=list[str])
    reasoning: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    refusal: list[str] = field(default_factory=list[str])
    tools: list[JsonObject] = field(default_factory=list[JsonObject])
    arguments: list[str] = field(default_factory=list[str])
    finish: str | None = None


class ChatForm:
    """Chat completion chunks: ``chat.completion.chunk`` objects, `[DONE]` at the end."""

    media_type = EVENT_STREAM
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def __init__(self, context: AnswerContext) -> None:
        self._context = context
        self._counts = TokenCounts()
        self._choices: dict[int, _Choice] = {}
        self._error: JsonObject | None = None
        head: JsonObject = {
            "id": context.answer_id,
            "object": self.chunk_object,
            "created": context.created,
            "model": context.model,
        }
        self._prefix = b"data: " + encode(head)[:-1] + b',"choices":['
        # Services that were asked for usage send the key on every chunk, null until the last.
        self._no_usage = b',"usage":null' if context.include_usage else b""

    def frames(self, step: do.Step) -> list[Frame]:
        fixed = _FIXED.get(type(step))
        if fixed is not None:
            return [fixed]
        match step:
            case do.Token():
                return [self._token(step)]
            case do.Role():
                return [self._delta(SentKind.ROLE, {"role": "assistant", "content": ""}, choice=step.choice)]
            case do.Reasoning():
                return [self._reasoning(step)]
            case do.Refusal():
                self._choice(0).refusal.append(step.text)
                return [self._delta(SentKind.TOKEN, {"refusal": step.text})]
            case ToolStart() | ToolFragment():
                return [self._tool(step)]
            case do.Delta():
                return [self._delta(step.kind, dict(step.fields))]
            case do.EmptyDelta():
                return [self._heartbeat(step)]
            case do.Finish():
                return [self._finish(step)]
            case do.Usage():
                return self._usage(step)
            case do.ErrorFrame():
                return [self._error_frame(step)]
            case _:
                raise UnplayableStep(f"{type(step).__name__} has no chat form")

    def _choice(self, index: int) -> _Choice:
        if index not in self._choices:
            self._choices[index] = _Choice()
        return self._choices[index]

    def _chunk(self, choices: bytes, usage: do.Usage | None) -> bytes:
        tail = (
            self._no_usage
            if usage is None
            else b',"usage":' + encode(chat_usage(self._counts.numbers(usage)))
        )
        return self._prefix + choices + b"]" + tail + b"}\n\n"

    def _delta(
        self,
        kind: SentKind,
        delta: JsonObject,
        *,
        choice: int = 0,
        finish: str | None = None,
        usage: do.Usage | None = None,
    ) -> Frame:
        data: JsonObject = {"index": choice, "delta": delta, "finish_reason": finish}
        return Frame(kind, self._chunk(encode(data), usage))

    def _token(self, step: do.Token) -> Frame:
        self._counts.text += 1
        self._choice(step.choice).content.append(step.text)
        # Assembled by hand: bursts of thousands of tokens should test the client, not this server.
        choice = b'{"index":%d,"delta":{"content":%s},"finish_reason":null}'
        return Frame(
            SentKind.TOKEN, self._chunk(choice % (step.choice, json.dumps(step.text).encode()), step.usage)
        )

    def _reasoning(self, step: do.Reasoning) -> Frame:
        self._counts.reasoning += 1
        self._choice(0).reasoning.setdefault(step.field, []).append(step.text)
        value: object = step.text
        if step.field == "reasoning_details":
            value = [{"type": "reasoning.text", "text": step.text, "index": 0}]
        delta: JsonObject = {step.field: value}
        if step.content != "absent":
            delta["content"] = None if step.content == "null" else ""
        return self._delta(SentKind.REASONING, delta)

    def _tool(self, step: ToolStart | ToolFragment) -> Frame:
        choice = self._choice(0)
        if isinstance(step, ToolStart):
            function = {"name": step.name, "arguments": ""}
            tool: JsonObject = {
                "id": f"call_{len(choice.tools)}_gateway",
                "type": "function",
                "function": function,
            }
            choice.tools.append(tool)
            choice.arguments.append("")
            call: JsonObject = {"index": len(choice.tools) - 1, **tool}
        else:
            self._counts.text += 1
            choice.arguments[-1] += step.text
            call = {"index": len(choice.tools) - 1, "function": {"arguments": step.text}}
        return self._delta(SentKind.TOOL, {"tool_calls": [call]})

    def _heartbeat(self, step: do.EmptyDelta) -> Frame:
        if step.kind == "no_choices":
            return Frame(SentKind.HEARTBEAT, self._chunk(b"", step.usage))
        deltas: dict[str, JsonObject] = {"empty": {}, "content": {"content": ""}, "null": {"content": None}}
        return self._delta(SentKind.HEARTBEAT, deltas[step.kind], usage=step.usage)

    def _finish(self, step: do.Finish) -> Frame:
        choice = self._choice(step.choice)
        choice.finish = step.reason
        delta: JsonObject = {}
        if step.text:
            self._counts.text += 1
            choice.content.append(step.text)
            delta["content"] = step.text
        return self._delta(SentKind.FINISH, delta, choice=step.choice, finish=step.reason, usage=step.usage)

    def _usage(self, step: do.Usage) -> list[Frame]:
        self._counts.stated = step
        if step.only_if_asked and not self._context.include_usage:
            return []
        return [Frame(SentKind.USAGE, self._chunk(b"", step))]

    def _error_frame(self, step: do.ErrorFrame) -> Frame:
        self._error = error_object(step)
        data: JsonObject = {"error": self._error}
        if step.style == "choices":
            data = {"id": self._context.answer_id, "object": self.chunk_object, "choices": [], **data}
        return Frame(SentKind.ERROR, sse(data))

    def whole(self) -> JsonObject:
        if self._error is not None:
            return {"error": self._error}
        choices = self._choices or {0: _Choice()}
        return {
            "id": self._context.answer_id,
            "object": self.whole_object,
            "created": self._context.created,
            "model": self._context.model,
            "choices": [_whole_choice(index, choice) for index, choice in sorted(choices.items())],
            "usage": chat_usage(self._counts.numbers()),
        }


def _whole_choice(index: int, choice: _Choice) -> JsonObject:
    message: JsonObject = {
        "role": "assistant",
        "content": "".join(choice.content) if choice.content else None,
        "refusal": "".join(choice.refusal) or None,
        **{name: "".join(texts) for name, texts in choice.reasoning.items()},
    }
    if choice.tools:
        message["tool_calls"] = [
            {**tool, "function": {"name": _function_name(tool), "arguments": arguments}}
            for tool, arguments in zip(choice.tools, choice.arguments, strict=True)
        ]
    finish = choice.finish or ("tool_calls" if choice.tools else "stop")
    return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}


def _function_name(tool: JsonObject) -> object:
    function = tool["function"]
    return function["name"] if isinstance(function, dict) else None


class CompletionForm(ChatForm):
    """Legacy completions: ``text_completion`` objects; the role has no place in them and sends nothing."""

    chunk_object = "text_completion"
    whole_object = "text_completion"

    def frames(self, step: do.Step) -> list[Frame]:
        if isinstance(step, do.Role):
            return []
        if isinstance(step, ToolStart | ToolFragment | do.Delta | do.Refusal):
            raise UnplayableStep(f"{type(step).__name__} has no legacy completion form")
        return super().frames(step)

    def _token(self, step: do.Token) -> Frame:
        self._counts.text += 1
        self._choice(step.choice).content.append(step.text)
        return self._delta(SentKind.TOKEN, {"content": step.text}, choice=step.choice, usage=step.usage)

    def _delta(
        self,
        kind: SentKind,
        delta: JsonObject,
        *,
        choice: int = 0,
        finish: str | None = None,
        usage: do.Usage | None = None,
    ) -> Frame:
        text = delta.pop("content", None) or ""
        data: JsonObject = {"text": text, "index": choice, "logprobs": None, "finish_reason": finish, **delta}
        return Frame(
            kind,
            self._chunk(encode(data), usage).replace(b'"chat.completion.chunk"', b'"text_completion"', 1),
        )

    def whole(self) -> JsonObject:
        answer = super().whole()
        if "error" in answer:
            return answer
        choices = self._choices or {0: _Choice()}
        answer["choices"] = [
            {
                "text": "".join(choice.content),
                "index": index,
                "logprobs": None,
                "finish_reason": choice.finish or "stop",
            }
            for index, choice in sorted(choices.items())
        ]
        return answer


_SAFE: JsonObject = {
    "hate": {"filtered": False, "severity": "safe"},
    "self_harm": {"filtered": False, "severity": "safe"},
    "sexual": {"filtered": False, "severity": "safe"},
    "violence": {"filtered": False, "severity": "safe"},
}
_PROMPT_FILTER: JsonObject = {
    "id": "",
    "object": "",
    "created": 0,
    "model": "",
    "choices": [],
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": _SAFE}],
}
_FIXED: dict[type[do.Step], Frame] = {
    do.Done: Frame(SentKind.DONE, b"data: [DONE]\n\n"),
    do.PromptFilter: Frame(SentKind.HEARTBEAT, sse(_PROMPT_FILTER)),
}
