"""Answers that stop giving: nothing at all, or bytes that carry nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from stallwatch.testing import steps as do
from stallwatch.testing.scenario_grammar import Steps, Values
from stallwatch.testing.scenarios.registry import (
    GAP,
    begin,
    choice,
    scenario,
    seconds,
    token_count,
)


@scenario("silent", "200 at once, then nothing", seconds("after", "0", "before the head"))
def _silent(values: Values) -> Sequence[Steps]:
    return [[do.Wait(values.seconds("after")), do.Headers(), do.Silence()]]


@scenario("never-responds", "reads the request and never replies")
def _never_responds(values: Values) -> Sequence[Steps]:
    return [[do.RefuseHeaders()]]


@scenario("stall-after", "role, tokens, then nothing", token_count("5"), GAP)
def _stall_after(values: Values) -> Sequence[Steps]:
    return [[*begin(values), do.Silence()]]


@scenario(
    "keepalive",
    "role, tokens, then only SSE comments",
    token_count("2"),
    GAP,
    seconds("every", "0.3", "between comments"),
    seconds("seconds", "forever", "of comments, then silence"),
)
def _keepalive(values: Values) -> Sequence[Steps]:
    comments = do.Comments(values.seconds("every"), values.duration("seconds"))
    return [[*begin(values), comments, do.Silence()]]


@scenario(
    "heartbeats",
    "role, tokens if any, then only empty chunks: no choices, empty delta, empty content in turn",
    token_count("0"),
    GAP,
    seconds("every", "0.3", "between chunks"),
    seconds("seconds", "forever", "of empty chunks, then silence"),
    choice("usage", "a reasoning-token counter on each", "none", "rising", "unchanged"),
)
def _heartbeats(values: Values) -> Sequence[Steps]:
    counter = cast("do.ReasoningCounter", values.text("usage"))
    beats = do.Heartbeats(values.seconds("every"), values.duration("seconds"), reasoning_tokens=counter)
    return [[*begin(values), beats, do.Silence()]]
