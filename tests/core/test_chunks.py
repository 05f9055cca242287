"""What a chunk means, shape by shape."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from itertools import pairwise, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.core.chunks import (
    FINISH,
    HEARTBEAT,
    LAST,
    OUTPUT_UNKNOWN,
    PREAMBLE,
    REASONING,
    REASONING_FIELDS,
    RUN_ENDS,
    TERMINAL,
    TERMINAL_EVENTS,
    USAGE,
    VISIBLE,
    ChunkFacts,
    delta_facts,
    event_facts,
    merge_facts,
    only_comments,
)

MEANINGS = {
    # Of each: whether it is progress, output, visible, a preamble.
    HEARTBEAT: (False, False, False, False),
    PREAMBLE: (False, False, False, True),
    USAGE: (True, False, False, False),
    OUTPUT_UNKNOWN: (True, True, False, False),
    REASONING: (True, True, False, False),
    VISIBLE: (True, True, True, False),
    FINISH: (True, False, True, False),
    TERMINAL: (True, False, True, False),
}


@pytest.mark.parametrize(("facts", "meaning"), MEANINGS.items(), ids=[facts.name for facts in MEANINGS])
def test_meaning_of_the_constants(facts: ChunkFacts, meaning: tuple[bool, bool, bool, bool]) -> None:
    assert (facts.progress, facts.output, facts.visible, facts.preamble) == meaning
    assert facts.terminal is (facts is TERMINAL)


def test_only_whoever_counts_choices_says_how_many_are_finished() -> None:
    assert [facts.finishes for facts in MEANINGS] == [0] * len(MEANINGS)
    with pytest.raises(FrozenInstanceError):
        FINISH.finishes = 1  # type: ignore[misc]


# Chat deltas and legacy choices

TOOL_CALL = {"index": 0, "id": "call_1", "function": {"name": "look_up", "arguments": ""}}
ARGUMENTS = {"index": 0, "function": {"arguments": '{"q'}}

DELTAS: dict[str, tuple[dict[str, object], ChunkFacts]] = {
    "no entry": ({}, HEARTBEAT),
    "null content": ({"content": None}, HEARTBEAT),
    "empty content": ({"content": ""}, HEARTBEAT),
    "empty list of tool calls": ({"content": None, "tool_calls": []}, HEARTBEAT),
    "everything empty": (
        {"content": "", "refusal": None, "tool_calls": [], "reasoning": "", "vendor": {}},
        HEARTBEAT,
    ),
    "empty role": ({"role": "", "content": ""}, HEARTBEAT),
    "null role": ({"role": None}, HEARTBEAT),
    "role": ({"role": "assistant"}, PREAMBLE),
    "role with empty content": ({"role": "assistant", "content": "", "refusal": None}, PREAMBLE),
    "role with empty reasoning": ({"role": "assistant", "reasoning_content": ""}, PREAMBLE),
    "role with content": ({"role": "assistant", "content": "Hel"}, VISIBLE),
    "role with reasoning": ({"role": "assistant", "content": "", "reasoning_content": "Hm"}, REASONING),
    "content": ({"content": "Hel"}, VISIBLE),
    "blank content": ({"content": " "}, VISIBLE),
    "newline": ({"content": "\n"}, VISIBLE),
    "refusal": ({"refusal": "I cannot"}, VISIBLE),
    "tool call with id and name": ({"tool_calls": [TOOL_CALL]}, VISIBLE),
    "tool-call arguments": ({"content": None, "tool_calls": [ARGUMENTS]}, VISIBLE),
    "legacy function call": ({"function_call": {"name": "f", "arguments": ""}}, VISIBLE),
    "empty legacy function call": ({"function_call": {}}, HEARTBEAT),
    "audio": ({"audio": {"id": "audio_1", "data": "AAAA"}}, VISIBLE),
    "images": ({"images": [{"type": "image_url"}]}, VISIBLE),
    "legacy text": ({"text": "Hel"}, VISIBLE),
    "empty legacy text": ({"text": ""}, HEARTBEAT),
    "reasoning before content": ({"reasoning": "Hm", "content": "Hel"}, VISIBLE),
    "content before reasoning": ({"content": "Hel", "reasoning": "Hm"}, VISIBLE),
    "unknown vendor field": ({"vendor_signature": "abc"}, OUTPUT_UNKNOWN),
    "unknown vendor field after the role": ({"role": "assistant", "citations": ["1"]}, OUTPUT_UNKNOWN),
    "unknown vendor field beside content": ({"vendor": 1, "content": "Hel"}, VISIBLE),
    "unknown vendor field that is empty": ({"vendor": ""}, HEARTBEAT),
    "unknown vendor field that says no": ({"vendor": False, "count": 0}, HEARTBEAT),
}


@pytest.mark.parametrize(("delta", "facts"), DELTAS.values(), ids=DELTAS.keys())
def test_delta(delta: dict[str, object], facts: ChunkFacts) -> None:
    assert delta_facts(delta.items()) is facts
    assert delta_facts(reversed(delta.items())) is facts


def test_the_spellings_of_reasoning() -> None:
    assert set(REASONING_FIELDS) == {
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "reasoning_text",
        "thinking",
        "thinking_blocks",
        "thought",
    }


@pytest.mark.parametrize("name", sorted(REASONING_FIELDS))
@pytest.mark.parametrize("value", ["Hm", [{"text": "Hm"}], {"content": "Hm"}])
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}])
def test_reasoning_is_progress_in_every_spelling_with_content_null_empty_or_absent(
    name: str, value: object, content: dict[str, object]
) -> None:
    assert delta_facts({**content, name: value}.items()) is REASONING
    assert delta_facts({**content, name: None}.items()) is HEARTBEAT


@given(st.dictionaries(st.text(max_size=12), st.sampled_from(["", None, [], {}, "x", 1, ["x"]]), max_size=6))
def test_a_delta_is_quiet_only_when_all_but_its_role_is_empty(delta: dict[str, object]) -> None:
    filled = {name for name, value in delta.items() if value}
    facts = delta_facts(delta.items())
    assert facts.progress == bool(filled - {"role"})
    assert facts.preamble == (filled == {"role"})
    assert (facts is HEARTBEAT) == (not filled)


# Responses events

VISIBLE_EVENTS = [
    "response.output_text.delta",
    "response.output_text.done",
    "response.output_text.annotation.added",
    "response.content_part.done",
    "response.refusal.delta",
    "response.refusal.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
    "response.mcp_call_arguments.delta",
    "response.mcp_call_arguments.done",
    "response.code_interpreter_call_code.delta",
    "response.audio.delta",
    "response.audio.transcript.delta",
    "response.image_generation_call.partial_image",
    "image_generation.partial_image",
    "image_edit.partial_image",
    "transcript.text.delta",
    "transcript.text.segment",
    "speech.audio.delta",
    "thread.message.delta",
    "thread.message.completed",
]
LAST_EVENTS = [
    "image_generation.completed",
    "image_edit.completed",
    "transcript.text.done",
    "speech.audio.done",
]
REASONING_EVENTS = [
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done",
    "response.reasoning.delta",
    "response.reasoning_summary.delta",
]
PREAMBLE_EVENTS = [
    "response.created",
    "response.content_part.added",
    "response.reasoning_summary_part.added",
    "thread.created",
    "thread.run.created",
    "thread.message.created",
]
HEARTBEAT_EVENTS = [
    "response.in_progress",
    "response.queued",
    "keepalive",
    "ping",
    "thread.run.queued",
    "thread.run.in_progress",
    "thread.run.cancelling",
    "thread.run.step.in_progress",
    "thread.message.in_progress",
]
UNKNOWN_EVENTS = [
    "response.web_search_call.searching",
    "response.file_search_call.in_progress",
    "response.code_interpreter_call.interpreting",
    "response.image_generation_call.generating",
    "response.mcp_list_tools.completed",
    "response.invented_tomorrow",
    "thread.run.step.delta",
    "thread.run.step.completed",
    "response.output_text",
    "RESPONSE.CREATED",
    "vendor.event",
    "",
    None,
]

EVENTS: list[tuple[str | None, ChunkFacts]] = [
    *product(VISIBLE_EVENTS, [VISIBLE]),
    *product(REASONING_EVENTS, [REASONING]),
    *product(PREAMBLE_EVENTS, [PREAMBLE]),
    *product(HEARTBEAT_EVENTS, [HEARTBEAT]),
    *product(UNKNOWN_EVENTS, [OUTPUT_UNKNOWN]),
    *product([*sorted(TERMINAL_EVENTS), *sorted(RUN_ENDS), "error"], [TERMINAL]),
    *product(LAST_EVENTS, [LAST]),
]


@pytest.mark.parametrize(("kind", "facts"), EVENTS)
def test_event(kind: str | None, facts: ChunkFacts) -> None:
    assert event_facts(kind) is facts


def test_the_terminal_events() -> None:
    assert set(TERMINAL_EVENTS) == {
        "response.completed",
        "response.failed",
        "response.incomplete",
        "response.cancelled",
    }


ITEMS: list[tuple[str | None, ChunkFacts, ChunkFacts]] = [
    # (type of the item, when it is added, when it is done)
    ("message", PREAMBLE, VISIBLE),
    ("reasoning", PREAMBLE, REASONING),
    ("function_call", VISIBLE, VISIBLE),
    ("custom_tool_call", VISIBLE, VISIBLE),
    ("web_search_call", OUTPUT_UNKNOWN, OUTPUT_UNKNOWN),
    ("mcp_call", OUTPUT_UNKNOWN, OUTPUT_UNKNOWN),
    ("mcp_list_tools", OUTPUT_UNKNOWN, OUTPUT_UNKNOWN),
    ("invented_tomorrow", OUTPUT_UNKNOWN, OUTPUT_UNKNOWN),
    (None, OUTPUT_UNKNOWN, OUTPUT_UNKNOWN),
]


@pytest.mark.parametrize(("item", "added", "done"), ITEMS)
def test_an_item_is_announced_and_ended_by_its_type(
    item: str | None, added: ChunkFacts, done: ChunkFacts
) -> None:
    assert event_facts("response.output_item.added", item) is added
    assert event_facts("response.output_item.done", item) is done


def test_a_run_ends_in_one_of_these() -> None:
    statuses = {kind.removeprefix("thread.run.") for kind in RUN_ENDS}
    assert statuses == {"completed", "failed", "incomplete", "cancelled", "expired", "requires_action"}


@pytest.mark.parametrize(
    ("step", "facts"),
    [("message_creation", PREAMBLE), ("tool_calls", OUTPUT_UNKNOWN), (None, OUTPUT_UNKNOWN)],
)
def test_a_step_of_a_run_is_progress_if_a_tool_was_called(step: str | None, facts: ChunkFacts) -> None:
    assert event_facts("thread.run.step.created", step) is facts


def test_the_last_event_of_an_image_or_a_transcript_is_output_and_finishes_one_of_them() -> None:
    assert LAST.progress
    assert LAST.output
    assert LAST.visible
    assert LAST.finishes == 1
    assert not LAST.terminal


@given(st.text(max_size=40))
def test_an_event_nobody_knows_is_progress(kind: str) -> None:
    assert event_facts(f"x-{kind}").progress


# Several meanings in one chunk

BY_STRENGTH = [HEARTBEAT, PREAMBLE, USAGE, REASONING, FINISH, VISIBLE]


@pytest.mark.parametrize(("weak", "strong"), list(pairwise(BY_STRENGTH)))
def test_the_stronger_meaning_wins_whichever_comes_first(weak: ChunkFacts, strong: ChunkFacts) -> None:
    assert merge_facts(weak, strong) is merge_facts(strong, weak) is strong


@pytest.mark.parametrize("facts", MEANINGS, ids=[facts.name for facts in MEANINGS])
def test_a_meaning_merged_with_itself_or_nothing_stays(facts: ChunkFacts) -> None:
    assert (
        merge_facts(facts, facts) is merge_facts(facts, HEARTBEAT) is merge_facts(HEARTBEAT, facts) is facts
    )


def test_any_order_of_choices_has_the_same_meaning() -> None:
    for order in permutations([HEARTBEAT, REASONING, VISIBLE, FINISH]):
        best = HEARTBEAT
        for facts in order:
            best = merge_facts(best, facts)
        assert best is VISIBLE


def test_of_two_equally_strong_meanings_the_first_is_kept() -> None:
    assert merge_facts(REASONING, OUTPUT_UNKNOWN) is REASONING
    assert merge_facts(OUTPUT_UNKNOWN, REASONING) is OUTPUT_UNKNOWN
    finished = replace(VISIBLE, finishes=1)
    assert merge_facts(finished, VISIBLE) is finished


# Raw event streams

COMMENTS = [
    b"",
    b"\n",
    b"\n\n",
    b"\r\n\r\n",
    b"\r",
    b":",
    b": keepalive\n\n",
    b":keepalive\r\n\r\n",
    b": ping\r",
    b": one\n\n: two\n\n",
    b"\n: after a blank line\n",
    b": cut in the mi",
    b": \xff\xfe\n\n",
    b": data: quoted in a comment\n\n",
]
CONTENT = [
    b"data: {}\n\n",
    b"data: [DONE]\n\n",
    b": ping\n\ndata: {}\n\n",
    b"data: {}\n\n: ping\n\n",
    b"event: ping\r\n\r\n",
    b"retry: 3000\n\n",
    b"id: 1\n",
    b" : indented\n",
    # The second half of a comment: taken for content, on the side of patience.
    b"ddle\n\n",
    b"x",
    b"\x00",
]


@pytest.mark.parametrize("data", COMMENTS)
def test_comments_and_blank_lines_carry_nothing(data: bytes) -> None:
    assert only_comments(data)


@pytest.mark.parametrize("data", CONTENT)
def test_everything_else_may_carry_something(data: bytes) -> None:
    assert not only_comments(data)


@given(
    st.lists(st.sampled_from([b": ping", b":", b"", b"data: {}", b"event: x"]), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_one_line_of_content_is_enough_with_any_line_end(lines: list[bytes], end: bytes) -> None:
    carries = any(line and not line.startswith(b":") for line in lines)
    assert only_comments(end.join(lines)) is not carries
