"""The Responses API: named events, output items that open and close, one response object that grows.

``response.created`` and ``response.in_progress`` go before anything else, even if the script begins without a
`Role`: clients refuse a stream that starts otherwise. An item opens with the first step that needs it and
closes when another kind of item begins or the script finishes; the terminal event comes with `Done`.
"""

from __future__ import annotations

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
    sse,
)

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesForm:
    """Responses events, numbered from 0; a client that resumes gets those after ``starting_after``."""

    media_type = EVENT_STREAM

    def __init__(self, context: AnswerContext, *, starting_after: int | None = None) -> None:
        self._context = context
        self._skip = 0 if starting_after is None else starting_after + 1
        self._counts = TokenCounts()
        self._sequence = 0
        self._created = False
        self._output: list[JsonObject] = []
        self._open: JsonObject | None = None
        self._text = ""
        self._part = "output_text"
        self._status = "in_progress"
        self._finish: str | None = None
        self._error: JsonObject | None = None

    def frames(self, step: do.Step) -> list[Frame]:
        before = self._sequence
        frames = self._frames(step)
        return frames[max(0, self._skip - before) :] if before < self._skip else frames

    def _frames(self, step: do.Step) -> list[Frame]:
        if isinstance(step, do.Role):
            return self._preamble()
        frames = self._preamble() if not isinstance(step, do.ErrorFrame | do.Usage) else []
        match step:
            case do.Token():
                frames += self._part_delta(step.text, "output_text", SentKind.TOKEN)
            case do.Refusal():
                frames += self._part_delta(step.text, "refusal", SentKind.TOKEN)
            case do.Reasoning():
                frames += self._reasoning_delta(step)
            case ToolStart():
                frames += self._tool_start(step)
            case ToolFragment():
                frames.append(self._tool_fragment(step))
            case do.EmptyDelta():
                frames.append(self._heartbeat(step))
            case do.Finish():
                frames += self._finished(step)
            case do.Usage():
                self._counts.stated = step
            case do.ErrorFrame():
                frames.append(self._error_frame(step))
            case do.Done():
                frames += self._terminal()
            case _:
                raise UnplayableStep(f"{type(step).__name__} has no Responses form")
        return frames

    def _event(self, kind: SentKind, name: str, **fields: object) -> Frame:
        data: JsonObject = {"type": name, **fields, "sequence_number": self._sequence}
        self._sequence += 1
        return Frame(kind, sse(data, event=name))

    def _response(self, usage: do.Usage | None = None) -> JsonObject:
        final = self._status in ("completed", "incomplete")
        reason = _INCOMPLETE.get(self._finish or "") if self._status == "incomplete" else None
        return {
            "id": self._context.answer_id,
            "object": "response",
            "created_at": self._context.created,
            "status": self._status,
            "background": False,
            "error": self._error,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": None,
            "max_output_tokens": None,
            "metadata": {},
            "model": self._context.model,
            "output": list(self._output),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": self._usage(usage) if final or usage is not None else None,
            "user": None,
        }

    def _usage(self, usage: do.Usage | None) -> JsonObject:
        prompt, completion, reasoning, cached = self._counts.numbers(usage)
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": prompt + completion,
        }

    def _preamble(self) -> list[Frame]:
        if self._created:
            return []
        self._created = True
        return [
            self._event(SentKind.ROLE, "response.created", response=self._response()),
            self._event(SentKind.HEARTBEAT, "response.in_progress", response=self._response()),
        ]

    # --- items ---

    def _place(self) -> JsonObject:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self._output)}

    def _begin(self, item: JsonObject, kind: SentKind) -> list[Frame]:
        frames = self._close_item()
        self._open = item
        self._text = ""
        frames.append(
            self._event(kind, "response.output_item.added", output_index=len(self._output), item=dict(item))
        )
        return frames

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._context.answer_id.removeprefix('resp_')}_{len(self._output)}"

    def _part_delta(self, text: str, part: str, kind: SentKind) -> list[Frame]:
        frames: list[Frame] = []
        if self._open is None or self._open["type"] != "message" or self._part != part:
            frames += self._close_item()
            self._part = part
            frames += self._begin(
                {
                    "id": self._item_id("msg"),
                    "type": "message",
                    "status": "in_progress",
                    "role": "assistant",
                    "content": [],
                },
                SentKind.ITEM,
            )
            frames.append(
                self._event(
                    SentKind.ITEM,
                    "response.content_part.added",
                    **self._place(),
                    content_index=0,
                    part=self._content(),
                )
            )
        self._counts.text += 1
        self._text += text
        extra: JsonObject = {"logprobs": []} if part == "output_text" else {}
        name = f"response.{part}.delta"
        frames.append(self._event(kind, name, **self._place(), content_index=0, delta=text, **extra))
        return frames

    def _content(self) -> JsonObject:
        if self._part == "refusal":
            return {"type": "refusal", "refusal": self._text}
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": []}

    def _reasoning_delta(self, step: do.Reasoning) -> list[Frame]:
        part = "reasoning_text" if step.field == "reasoning_text" else "reasoning_summary_text"
        frames: list[Frame] = []
        if self._open is None or self._open["type"] != "reasoning" or self._part != part:
            frames += self._close_item()
            self._part = part
            frames += self._begin(
                {"id": self._item_id("rs"), "type": "reasoning", "summary": []}, SentKind.ITEM
            )
            if part == "reasoning_summary_text":
                frames.append(
                    self._event(
                        SentKind.ITEM,
                        "response.reasoning_summary_part.added",
                        **self._place(),
                        summary_index=0,
                        part={"type": "summary_text", "text": ""},
                    )
                )
        self._counts.reasoning += 1
        self._text += step.text
        index = {"content_index": 0} if part == "reasoning_text" else {"summary_index": 0}
        frames.append(
            self._event(
                SentKind.REASONING, f"response.{part}.delta", **self._place(), delta=step.text, **index
            )
        )
        return frames

    def _tool_start(self, step: ToolStart) -> list[Frame]:
        item: JsonObject = {
            "id": self._item_id("fc"),
            "type": "function_call",
            "status": "in_progress",
            "call_id": f"call_{len(self._output)}_gateway",
            "name": step.name,
            "arguments": "",
        }
        return self._begin(item, SentKind.TOOL)

    def _tool_fragment(self, step: ToolFragment) -> Frame:
        self._counts.text += 1
        self._text += step.text
        return self._event(
            SentKind.TOOL, "response.function_call_arguments.delta", **self._place(), delta=step.text
        )

    def _close_item(self) -> list[Frame]:
        item = self._open
        if item is None:
            return []
        frames: list[Frame] = []
        done = SentKind.ITEM
        if item["type"] == "message":
            extra: JsonObject = {"logprobs": []} if self._part == "output_text" else {}
            text_key = "text" if self._part == "output_text" else "refusal"
            fields: JsonObject = {**self._place(), "content_index": 0, text_key: self._text, **extra}
            frames.append(self._event(done, f"response.{self._part}.done", **fields))
            frames.append(
                self._event(
                    done, "response.content_part.done", **self._place(), content_index=0, part=self._content()
                )
            )
            item = {**item, "status": "completed", "content": [self._content()]}
        elif item["type"] == "reasoning":
            frames += self._close_reasoning()
            part: JsonObject = {"type": "summary_text", "text": self._text}
            if self._part == "reasoning_text":
                item = {**item, "content": [{"type": "reasoning_text", "text": self._text}]}
            else:
                item = {**item, "summary": [part]}
        else:
            frames.append(
                self._event(
                    done, "response.function_call_arguments.done", **self._place(), arguments=self._text
                )
            )
            item = {**item, "status": "completed", "arguments": self._text}
        frames.append(
            self._event(done, "response.output_item.done", output_index=len(self._output), item=item)
        )
        self._output.append(item)
        self._open = None
        return frames

    def _close_reasoning(self) -> list[Frame]:
        if self._part == "reasoning_text":
            fields: JsonObject = {**self._place(), "content_index": 0, "text": self._text}
            return [self._event(SentKind.ITEM, "response.reasoning_text.done", **fields)]
        fields = {**self._place(), "summary_index": 0}
        part = {"type": "summary_text", "text": self._text}
        return [
            self._event(SentKind.ITEM, "response.reasoning_summary_text.done", **fields, text=self._text),
            self._event(SentKind.ITEM, "response.reasoning_summary_part.done", **fields, part=part),
        ]

    # --- the rest ---

    def _heartbeat(self, step: do.EmptyDelta) -> Frame:
        if step.kind in ("no_choices", "null") or step.usage is not None:
            return self._event(
                SentKind.HEARTBEAT, "response.in_progress", response=self._response(step.usage)
            )
        return self._event(SentKind.HEARTBEAT, "keepalive")

    def _finished(self, step: do.Finish) -> list[Frame]:
        frames = self._part_delta(step.text, "output_text", SentKind.TOKEN) if step.text else []
        if step.usage is not None:
            self._counts.stated = step.usage
        self._finish = step.reason
        return frames + [
            Frame(
                SentKind.FINISH if frame.data.startswith(b"event: response.output_item.done") else frame.kind,
                frame.data,
            )
            for frame in self._close_item()
        ]

    def _terminal(self) -> list[Frame]:
        frames = self._close_item()
        self._status = "incomplete" if self._finish in _INCOMPLETE else "completed"
        frames.append(self._event(SentKind.DONE, f"response.{self._status}", response=self._response()))
        return frames

    def _error_frame(self, step: do.ErrorFrame) -> Frame:
        code = None if step.code is None else str(step.code)
        if step.style == "failed":
            self._status = "failed"
            self._error = {"code": code, "message": step.message}
            return self._event(SentKind.ERROR, "response.failed", response=self._response())
        if step.style == "choices":
            self._error = {"code": code, "message": step.message, "type": step.type}
            return Frame(SentKind.ERROR, sse({"choices": [], "error": self._error}))
        self._error = {"code": code, "message": step.message}
        return self._event(SentKind.ERROR, "error", code=code, message=step.message, param=None)

    def whole(self) -> JsonObject:
        """Return the response object, completed unless an error was scripted."""
        self._close_item()
        if self._error is None:
            self._status = "incomplete" if self._finish in _INCOMPLETE else "completed"
        else:
            self._status = "failed"
        return self._response()
