"""Answers that are whole: no watchdog may cut them, however late or slow they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from stallwatch.testing import steps as do
from stallwatch.testing.scenario_grammar import Steps, Values
from stallwatch.testing.scenarios.registry import (
    FIRST,
    GAP,
    begin,
    choice,
    end,
    number,
    scenario,
    seconds,
    token_count,
    words,
)


@scenario("healthy", "role, tokens, finish, usage if asked for, [DONE]", token_count("5"), GAP, FIRST)
def _healthy(values: Values) -> Sequence[Steps]:
    return [[*begin(values, silence=values.seconds("first")), *end()]]


@scenario(
    "slow",
    "healthy, with a wide gap between tokens",
    token_count("20"),
    seconds("gap", "0.1", "between tokens"),
    FIRST,
)
def _slow(values: Values) -> Sequence[Steps]:
    return _healthy(values)


@scenario("burst", "many tokens as fast as possible", token_count("2000"))
def _burst(values: Values) -> Sequence[Steps]:
    return [[do.Role(), do.Tokens(values.count("tokens")), *end()]]


@scenario("endless", "tokens for ever", seconds("gap", "0.05", "between tokens"))
def _endless(values: Values) -> Sequence[Steps]:
    return [[do.Role(), do.Tokens(None, max(values.seconds("gap"), 0.0005))]]


@scenario(
    "late-headers",
    "no head for a while, then healthy",
    seconds("seconds", "1", "before the head"),
    token_count("5"),
    GAP,
)
def _late_headers(values: Values) -> Sequence[Steps]:
    return [[do.Wait(values.seconds("seconds")), *begin(values), *end()]]


@scenario(
    "drip-headers",
    "the head byte by byte, then healthy",
    seconds("every", "0.02", "between pieces"),
    number("size", "1", "bytes in a piece"),
    token_count("5"),
    GAP,
)
def _drip_headers(values: Values) -> Sequence[Steps]:
    head = do.DripHeaders(values.seconds("every"), max(values.count("size"), 1))
    return [[head, *begin(values), *end()]]


@scenario(
    "think-silently",
    "role, nothing for a while, then healthy",
    seconds("seconds", "5", "of silence"),
    token_count("10"),
    GAP,
)
def _think_silently(values: Values) -> Sequence[Steps]:
    return [[*begin(values, silence=values.seconds("seconds")), *end()]]


@scenario(
    "reasoning",
    "role, reasoning deltas, then an answer",
    number("count", "10", "reasoning deltas"),
    seconds("gap", "0.05", "between deltas and tokens"),
    token_count("3"),
    words(
        "field", "reasoning_content", "the delta's key: reasoning_content, reasoning, reasoning_details, ..."
    ),
    choice("content", "what stands beside it", "absent", "null", "empty"),
)
def _reasoning(values: Values) -> Sequence[Steps]:
    gap, field = values.seconds("gap"), values.text("field")
    beside = cast("do.BesideReasoning", values.text("content"))
    steps: list[do.Step] = [do.Role()]
    for index in range(values.count("count")):
        steps += [do.Wait(gap), do.Reasoning(f"r{index} ", field, beside)]
    return [[*steps, do.Wait(gap), do.Tokens(values.count("tokens"), gap), *end()]]


@scenario(
    "tool-call",
    "role, a tool call in fragments, finish reason tool_calls",
    number("fragments", "10", "fragments of the arguments; together one JSON object"),
    seconds("gap", "0.02", "between fragments"),
    words("name", "write_file", "name of the tool"),
)
def _tool_call(values: Values) -> Sequence[Steps]:
    count = max(values.count("fragments"), 2)
    fragments = ['{"text":"', *(f"f{index} " for index in range(count - 2)), '"}']
    call = do.ToolCall(values.text("name"), fragments, values.seconds("gap"))
    return [[do.Role(), call, do.Finish("tool_calls"), do.Usage(only_if_asked=True), do.Done()]]


@scenario("structured", 'the text is one JSON object: {"answer": "...", "count": N}', token_count("5"), GAP)
def _structured(values: Values) -> Sequence[Steps]:
    count = values.count("tokens")
    texts = ['{"answer":"', *(f"t{index} " for index in range(count)), f'","count":{count}}}']
    steps: list[do.Step] = [do.Role()]
    for text in texts:
        steps += [do.Token(text), do.Wait(values.seconds("gap"))]
    return [[*steps, *end()]]


@scenario("azure", "first a chunk without choices, with prompt_filter_results", token_count("5"), GAP)
def _azure(values: Values) -> Sequence[Steps]:
    return [[do.PromptFilter(), *begin(values), do.Finish(), do.Usage(), do.Done()]]


@scenario(
    "usage",
    "token counts where services put them",
    choice("form", "where the counts are", "alone", "on-finish-and-alone", "cumulative", "fused", "none"),
    token_count("5"),
    GAP,
)
def _usage(values: Values) -> Sequence[Steps]:
    count, gap, form = values.count("tokens"), values.seconds("gap"), values.text("form")
    if form == "cumulative":
        steps: list[do.Step] = [do.Role()]
        for index in range(count):
            steps += [do.Token(f"t{index} ", usage=do.Usage()), do.Wait(gap)]
        return [[*steps, do.Finish(usage=do.Usage()), do.Done()]]
    ends: dict[str, list[do.Step]] = {
        "alone": [do.Finish(), do.Usage()],
        "on-finish-and-alone": [do.Finish(usage=do.Usage()), do.Usage()],
        "fused": [do.Finish(text="end"), do.Usage()],
        "none": [do.Finish()],
    }
    return [[*begin(values), *ends[form], do.Done()]]
