"""Runs of the Assistants API: named events whose data is the object that changed, `[DONE]` at the end.

A run opens with the first step that sends something, as in Responses form: first the run, then its one step and its one
message. Only text is spoken here; reasoning, refusals, tool calls and heartbeats have no place.
"""

from __future__ import annotations

from stallwatch.testing import steps as do
from stallwatch.testing.ledger import SentKind
from stallwatch.testing.wire import (
    EVENT_STREAM,
    AnswerContext,
    Frame,
    JsonObject,
    TokenCounts,
    UnplayableStep,
    error_event,
    sse,
)


class RunsForm:
    """A run; ``thread_id`` is that of the address, or None where the call makes a thread of its own."""

    media_type = EVENT_STREAM

    def __init__(self, context: AnswerContext, thread_id: str | None) -> None:
        self._context = context
        self._counts = TokenCounts()
        self._makes_thread = thread_id is None
        self._thread = thread_id or "thread_gateway"
        self._opened = False
        self._text = ""
        self._status = "queued"
        self._error: JsonObject | None = None

    def frames(self, step: do.Step) -> list[Frame]:
        match step:
            case do.Role():
                return self._opening()
            case do.Token():
                return [*self._opening(), self._delta(step.text)]
            case do.Finish():
                before = [self._delta(step.text)] if step.text else []
                self._counts.stated = step.usage or self._counts.stated
                return [*self._opening(), *before, *self._closing()]
            case do.Usage():
                self._counts.stated = step
                return []
            case do.Done():
                return [Frame(SentKind.DONE, b"event: done\ndata: [DONE]\n\n")]
            case do.ErrorFrame():
                return [self._failed(step)]
            case _:
                raise UnplayableStep(f"{type(step).__name__} has no form in a run")

    def _event(self, kind: SentKind, name: str, data: JsonObject) -> Frame:
        return Frame(kind, sse(data, event=f"thread.{name}"))

    def _opening(self) -> list[Frame]:
        if self._opened:
            return []
        self._opened = True
        frames: list[Frame] = []
        if self._makes_thread:
            thread: JsonObject = {"id": self._thread, "object": "thread", "created_at": self._context.created}
            frames.append(self._event(SentKind.ROLE, "created", {**thread, "metadata": {}}))
        frames.append(self._event(SentKind.ROLE, "run.created", self._run()))
        frames.append(self._event(SentKind.HEARTBEAT, "run.queued", self._run()))
        self._status = "in_progress"
        frames.append(self._event(SentKind.HEARTBEAT, "run.in_progress", self._run()))
        step, message = self._step("in_progress"), self._message("in_progress")
        return [
            *frames,
            self._event(SentKind.ITEM, "run.step.created", step),
            self._event(SentKind.ITEM, "run.step.in_progress", step),
            self._event(SentKind.ITEM, "message.created", message),
            self._event(SentKind.ITEM, "message.in_progress", message),
        ]

    def _delta(self, text: str) -> Frame:
        self._counts.text += 1
        self._text += text
        part = {"index": 0, "type": "text", "text": {"value": text, "annotations": []}}
        data: JsonObject = {
            "id": self._name("msg"),
            "object": "thread.message.delta",
            "delta": {"content": [part]},
        }
        return self._event(SentKind.TOKEN, "message.delta", data)

    def _closing(self) -> list[Frame]:
        self._status = "completed"
        return [
            self._event(SentKind.ITEM, "message.completed", self._message("completed")),
            self._event(SentKind.ITEM, "run.step.completed", self._step("completed")),
            self._event(SentKind.FINISH, "run.completed", self._run()),
        ]

    def _failed(self, step: do.ErrorFrame) -> Frame:
        self._error, frame = error_event(step)
        self._status = "failed"
        return self._event(SentKind.ERROR, "run.failed", self._run()) if step.style == "failed" else frame

    # --- objects ---

    def _name(self, prefix: str) -> str:
        return f"{prefix}_{self._context.answer_id.removeprefix('run_')}"

    def _usage(self) -> JsonObject:
        prompt, completion, _, _ = self._counts.numbers()
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def _run(self) -> JsonObject:
        over = self._status in ("completed", "failed")
        error = self._error and {"code": "server_error", "message": self._error["message"]}
        return {
            "id": self._context.answer_id,
            "object": "thread.run",
            "created_at": self._context.created,
            "assistant_id": self._context.body.get("assistant_id") or "asst_gateway",
            "thread_id": self._thread,
            "status": self._status,
            "model": self._context.model,
            "instructions": "",
            "tools": [],
            "metadata": {},
            "last_error": error,
            "parallel_tool_calls": True,
            "usage": self._usage() if over else None,
        }

    def _step(self, status: str) -> JsonObject:
        made = {"type": "message_creation", "message_creation": {"message_id": self._name("msg")}}
        return {
            "id": self._name("step"),
            "object": "thread.run.step",
            "created_at": self._context.created,
            "run_id": self._context.answer_id,
            "assistant_id": self._context.body.get("assistant_id") or "asst_gateway",
            "thread_id": self._thread,
            "type": "message_creation",
            "status": status,
            "step_details": made,
            "usage": self._usage() if status == "completed" else None,
        }

    def _message(self, status: str) -> JsonObject:
        part = {"type": "text", "text": {"value": self._text, "annotations": []}}
        return {
            "id": self._name("msg"),
            "object": "thread.message",
            "created_at": self._context.created,
            "run_id": self._context.answer_id,
            "assistant_id": self._context.body.get("assistant_id") or "asst_gateway",
            "thread_id": self._thread,
            "role": "assistant",
            "status": status,
            "content": [part] if status == "completed" else [],
            "attachments": [],
            "metadata": {},
        }

    def whole(self) -> JsonObject:
        self._status = "completed" if self._error is None else "failed"
        return self._run()
