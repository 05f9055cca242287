"""What a chunk means for the clocks.

Rules
-----
* A chunk is a *heartbeat* only when it is positively recognised as carrying nothing, a *preamble* when it only
  announces (a role, ``response.created``, an empty item), and *progress* otherwise: a vendor's new field must never
  get a healthy stream cut.
* Progress that only the model's reasoning, a usage counter or something unrecognised moved is not *visible*: it keeps
  the stream on the more patient thinking clock.
* ``output`` marks progress that is generated output of any kind; the time to first token is taken there. A finish
  reason or a usage counter is progress, but no token.
* Events (Responses, images, audio, runs of assistants) are told apart by their type string, never by their class: the
  SDK builds unknown types as an arbitrary member of its union.

The SDK's objects are read in ``sdk.chunks``; here are only the tables and the neutral facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "FINISH",
    "HEARTBEAT",
    "LAST",
    "OUTPUT_UNKNOWN",
    "PREAMBLE",
    "REASONING",
    "REASONING_FIELDS",
    "RUN_ENDS",
    "TERMINAL_EVENTS",
    "USAGE",
    "VISIBLE",
    "ChunkFacts",
    "delta_facts",
    "event_facts",
    "merge_facts",
    "only_comments",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFacts:
    """The meaning of one chunk."""

    name: str
    progress: bool = False
    output: bool = False
    visible: bool = False
    preamble: bool = False
    finishes: int = 0
    """How many choices this chunk finished."""
    terminal: bool = False
    """No further output can follow, whatever the number of choices."""


HEARTBEAT = ChunkFacts(name="heartbeat")
PREAMBLE = ChunkFacts(name="preamble", preamble=True)
USAGE = ChunkFacts(name="usage", progress=True)
OUTPUT_UNKNOWN = ChunkFacts(name="unknown", progress=True, output=True)
REASONING = ChunkFacts(name="reasoning", progress=True, output=True)
VISIBLE = ChunkFacts(name="visible", progress=True, output=True, visible=True)
FINISH = ChunkFacts(name="finish", progress=True, visible=True)
TERMINAL = ChunkFacts(name="terminal", progress=True, visible=True, terminal=True)
LAST = ChunkFacts(name=FINISH.name, progress=True, output=True, visible=True, finishes=1)
"""One of the answers as a whole: an image, a transcript; as many come as were asked for."""

REASONING_FIELDS = frozenset(
    {
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "reasoning_text",
        "thinking",
        "thinking_blocks",
        "thought",
    }
)
"""Spellings of streamed reasoning in chat deltas across vendors."""

_VISIBLE_FIELDS = frozenset({"content", "refusal", "tool_calls", "function_call", "audio", "images", "text"})
_ANNOUNCING_FIELDS = frozenset({"role"})

_VISIBLE_ITEMS = frozenset({"message", "function_call", "custom_tool_call"})

TERMINAL_EVENTS = frozenset(
    {"response.completed", "response.failed", "response.incomplete", "response.cancelled"}
)

RUN_ENDS = frozenset(
    f"thread.run.{status}"
    for status in ("completed", "failed", "incomplete", "cancelled", "expired", "requires_action")
)
"""A run of the Assistants API is over, or waits for the user."""

_EVENTS: dict[str, ChunkFacts] = {
    "response.in_progress": HEARTBEAT,
    "response.queued": HEARTBEAT,
    "keepalive": HEARTBEAT,
    "ping": HEARTBEAT,
    "response.created": PREAMBLE,
    "response.content_part.added": PREAMBLE,
    "response.reasoning_summary_part.added": PREAMBLE,
    "response.output_text.delta": VISIBLE,
    "response.output_text.done": VISIBLE,
    "response.output_text.annotation.added": VISIBLE,
    "response.content_part.done": VISIBLE,
    "response.refusal.delta": VISIBLE,
    "response.refusal.done": VISIBLE,
    "response.function_call_arguments.delta": VISIBLE,
    "response.function_call_arguments.done": VISIBLE,
    "response.custom_tool_call_input.delta": VISIBLE,
    "response.custom_tool_call_input.done": VISIBLE,
    "response.mcp_call_arguments.delta": VISIBLE,
    "response.mcp_call_arguments.done": VISIBLE,
    "response.code_interpreter_call_code.delta": VISIBLE,
    "response.audio.delta": VISIBLE,
    "response.audio.transcript.delta": VISIBLE,
    "response.image_generation_call.partial_image": VISIBLE,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_text.done": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
    "response.reasoning_summary_text.done": REASONING,
    "response.reasoning_summary_part.done": REASONING,
    "response.reasoning.delta": REASONING,
    "response.reasoning_summary.delta": REASONING,
    **dict.fromkeys(TERMINAL_EVENTS, TERMINAL),
    "error": TERMINAL,
    "image_generation.partial_image": VISIBLE,
    "image_generation.completed": LAST,
    "image_edit.partial_image": VISIBLE,
    "image_edit.completed": LAST,
    "transcript.text.delta": VISIBLE,
    "transcript.text.segment": VISIBLE,
    "transcript.text.done": LAST,
    "speech.audio.delta": VISIBLE,
    "speech.audio.done": LAST,
    "thread.created": PREAMBLE,
    "thread.run.created": PREAMBLE,
    "thread.run.queued": HEARTBEAT,
    "thread.run.in_progress": HEARTBEAT,
    "thread.run.cancelling": HEARTBEAT,
    "thread.run.step.in_progress": HEARTBEAT,
    "thread.message.created": PREAMBLE,
    "thread.message.in_progress": HEARTBEAT,
    "thread.message.delta": VISIBLE,
    "thread.message.completed": VISIBLE,
    **dict.fromkeys(RUN_ENDS, TERMINAL),
}


def event_facts(kind: str | None, item_type: str | None = None) -> ChunkFacts:
    """Return the meaning of a named event; ``item_type`` is that of the item or step it adds or ends, if any."""
    if kind == "response.output_item.added":
        # These two are announced empty; of a call of the user's own tools the name is output.
        return PREAMBLE if item_type in ("message", "reasoning") else _item_facts(item_type)
    if kind == "response.output_item.done":
        return _item_facts(item_type)
    if kind == "thread.run.step.created":
        # A message is announced empty; a tool has been called.
        return PREAMBLE if item_type == "message_creation" else OUTPUT_UNKNOWN
    return _EVENTS.get(kind or "", OUTPUT_UNKNOWN)


def _item_facts(item_type: str | None) -> ChunkFacts:
    if item_type in _VISIBLE_ITEMS:
        return VISIBLE
    # What the provider runs by itself (a search, code, an image) is progress that may be followed by long silence, so
    # it leaves the stream on the more patient clock.
    return REASONING if item_type == "reasoning" else OUTPUT_UNKNOWN


def delta_facts(entries: Iterable[tuple[str, Any]]) -> ChunkFacts:
    """Return the meaning of one choice's delta (or legacy choice), given as its non-empty-looking entries."""
    best = HEARTBEAT
    for name, value in entries:
        if not value:
            continue
        if name in _ANNOUNCING_FIELDS:
            found = PREAMBLE
        elif name in REASONING_FIELDS:
            found = REASONING
        elif name in _VISIBLE_FIELDS:
            return VISIBLE
        else:
            found = OUTPUT_UNKNOWN
        best = merge_facts(best, found)
    return best


def merge_facts(first: ChunkFacts, second: ChunkFacts) -> ChunkFacts:
    """Return the stronger meaning: visible over other progress over preamble over heartbeat.

    One of the two is returned as it is, so counting the choices that are finished is left to the caller.
    """
    return second if _weight(second) > _weight(first) else first


def _weight(facts: ChunkFacts) -> int:
    return facts.visible * 8 + facts.output * 4 + facts.progress * 2 + facts.preamble


def only_comments(data: bytes) -> bool:
    """Tell whether bytes of an event stream carry nothing but SSE comments and blank lines.

    For readers of raw lines, who have no chunks. A comment cut in two by the network is taken for content: the
    error is on the side of patience.
    """
    return all(not line or line.startswith(b":") for line in data.splitlines())
