"""Breaking repeating steps into single ones, so that a form and an exchange see one piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, cycle

from stallwatch.testing import steps as do
from stallwatch.testing.steps import Step


@dataclass(frozen=True, slots=True)
class ToolStart(Step):
    """The id and the name of a tool call."""

    name: str


@dataclass(frozen=True, slots=True)
class ToolFragment(Step):
    """A fragment of the arguments of the tool call begun last."""

    text: str


def expand(step: do.Step) -> Iterator[do.Step]:
    """Break a repeating step into single ones, lazily: some never end."""
    match step:
        case do.Tokens():
            for number in count() if step.count is None else range(step.count):
                if number and step.gap:
                    yield do.Wait(step.gap)
                yield do.Token(f"t{number} ")
        case do.ToolCall():
            yield ToolStart(step.name)
            for fragment in step.fragments:
                if step.gap:
                    yield do.Wait(step.gap)
                yield ToolFragment(fragment)
        case do.Comments():
            yield from _repeat((do.Comment(step.text) for _ in count()), step.every, step.for_seconds)
        case do.Heartbeats():
            yield from _repeat(_empty_deltas(step), step.every, step.for_seconds)
        case _:
            yield step


def _repeat(steps: Iterator[do.Step], every: float, for_seconds: float | None) -> Iterator[do.Step]:
    rounds = None if for_seconds is None else int(for_seconds / every + 1e-9)
    for _ in count() if rounds is None else range(rounds):
        yield do.Wait(every)
        yield next(steps)
    if for_seconds is not None and rounds is not None:
        yield do.Wait(max(0.0, for_seconds - rounds * every))


def _empty_deltas(step: do.Heartbeats) -> Iterator[do.Step]:
    tokens = 8
    for kind in cycle(step.kinds):
        usage = (
            None
            if step.reasoning_tokens == "none"
            else do.Usage(completion_tokens=tokens, reasoning_tokens=tokens)
        )
        yield do.EmptyDelta(kind, usage=usage)
        if step.reasoning_tokens == "rising":
            tokens += 8
