"""Answers that end the wrong way: cut, reset, unfinished, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from stallwatch.testing import steps as do
from stallwatch.testing.scenario_grammar import Parameter, Steps, Values
from stallwatch.testing.scenarios.registry import (
    GAP,
    begin,
    choice,
    end,
    number,
    scenario,
    token_count,
    words,
)


@scenario("role-then-finish", "role and finish reason, no text")
def _role_then_finish(values: Values) -> Sequence[Steps]:
    return [[do.Role(), *end()]]


@scenario(
    "finish-then-silence", "a whole answer, then the socket stays open without [DONE]", token_count("5"), GAP
)
def _finish_then_silence(values: Values) -> Sequence[Steps]:
    return [[*begin(values), do.Finish(), do.Silence()]]


@scenario("done-then-linger", "a whole answer with [DONE], then the body does not end", token_count("5"), GAP)
def _done_then_linger(values: Values) -> Sequence[Steps]:
    return [[*begin(values), *end(), do.Silence()]]


@scenario("truncated", "tokens, then a clean end without finish reason", token_count("3"), GAP)
def _truncated(values: Values) -> Sequence[Steps]:
    return [[*begin(values), do.Eof()]]


@scenario("cut", "tokens, then FIN without the final chunk marker", token_count("2"), GAP)
def _cut(values: Values) -> Sequence[Steps]:
    return [[*begin(values), do.Wait(values.seconds("gap")), do.CloseAbruptly()]]


@scenario("reset", "tokens, then RST", token_count("2"), GAP)
def _reset(values: Values) -> Sequence[Steps]:
    return [[*begin(values), do.Wait(values.seconds("gap")), do.Reset()]]


@scenario(
    "close-delimited", "healthy, but only the end of the connection ends the body", token_count("5"), GAP
)
def _close_delimited(values: Values) -> Sequence[Steps]:
    return [[do.CloseDelimited(), *begin(values), *end()]]


@scenario(
    "error-frame",
    "an error object inside the 200 stream",
    token_count("0", "tokens before it"),
    GAP,
    words("code", "502", "the error's code"),
    choice("style", "choices: beside an empty choices list, then [DONE]", "plain", "choices", "failed"),
)
def _error_frame(values: Values) -> Sequence[Steps]:
    code, style = values.text("code"), values.text("style")
    frame = do.ErrorFrame(
        code=int(code) if code.isdigit() else code,
        style=cast("do.ErrorStyle", style),
    )
    before = begin(values) if values.count("tokens") else []
    return [[*before, frame, *([do.Done()] if style == "choices" else [])]]


_CODE = Parameter(name="code", kind="status", default="500", meaning="HTTP status")
_RETRY_AFTER = words("retry_after", "", "Retry-After as sent; date+2 is an HTTP date in 2 s")
_RETRY_AFTER_MS = words("retry_after_ms", "", "retry-after-ms as sent")


def _status(values: Values) -> do.Status:
    return do.Status(
        values.count("code"),
        retry_after=values.optional_text("retry_after"),
        retry_after_ms=values.optional_text("retry_after_ms"),
    )


@scenario(
    "error-status",
    "an HTTP error with an OpenAI-style body",
    _CODE,
    _RETRY_AFTER,
    _RETRY_AFTER_MS,
    choice("echo", "what the message quotes back", "none", "prompt", "key"),
)
def _error_status(values: Values) -> Sequence[Steps]:
    return [[replace(_status(values), echo=cast("do.Echo", values.text("echo")))]]


@scenario(
    "flaky",
    "an HTTP error for the first attempts, then healthy",
    number("times", "1", "attempts that fail"),
    Parameter(name="code", kind="status", default="503", meaning="HTTP status"),
    _RETRY_AFTER,
    _RETRY_AFTER_MS,
    token_count("5"),
    GAP,
)
def _flaky(values: Values) -> Sequence[Steps]:
    return [*[[_status(values)]] * values.count("times"), [*begin(values), *end()]]


@scenario("non-sse", "200 with an HTML page instead of an event stream")
def _non_sse(values: Values) -> Sequence[Steps]:
    page = "<!doctype html><html><body><h1>Access blocked</h1></body></html>"
    return [[do.Status(200, {"content-type": "text/html; charset=utf-8"}, page)]]
