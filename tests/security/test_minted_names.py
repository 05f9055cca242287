"""Whatever names callers and servers mint, series stay few, texts short, and what is remembered of them is bounded."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from benchmarks.feed import http_library

import stallwatch
from stallwatch.catalogue import ERROR_CAP, METRICS, MODEL_CAP, OTHER
from stallwatch.core.words import Outcome
from stallwatch.runtime.routes import CAPACITY
from stallwatch.sdk.codes import _KNOWN, _UNKNOWN_CAP
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import Captured, instrumented
from support.wires import wired

MANY = 1000
"""Names of each kind: far more than any cap, so that ten times as many make no difference."""

SERIES = 2000
"""Combinations an instrument may have in OpenTelemetry's SDK before it folds all others into one."""

_http = http_library()


class Wire:
    """A transport of either kind that answers at once: what ``answer`` says for a number."""

    def __init__(self, answer: Callable[[int], tuple[int, dict[str, str], bytes]]) -> None:
        self._answer, self.number = answer, 0

    def respond(self, request: Any) -> Any:
        """Return the next answer."""
        status, headers, body = self._answer(self.number)
        self.number += 1
        return _http.Response(status, headers=headers, content=body, request=request)

    def client(self, stage: Stage, **options: Any) -> Any:
        """A client on this wire."""
        return wired(stage, self.respond, **options)


STREAM = {"content-type": "text/event-stream"}


def chunk(finish: str | None = "stop", **fields: Any) -> bytes:
    """One chunk of chat and the end of the stream."""
    choice = {"index": 0, "delta": {"content": "hi"}, "finish_reason": finish}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps({**whole, **fields}).encode() + b"\n\ndata: [DONE]\n\n"


def failing(number: int, **error: Any) -> bytes:
    """An error frame."""
    return b"data: " + json.dumps({"error": {"message": "m", **error}}).encode() + b"\n\n"


LONG = "x" * 5000

SERVERS: dict[str, Callable[[int], tuple[int, dict[str, str], bytes]]] = {
    "finish reasons": lambda number: (200, STREAM, chunk(f"reason-{number}{LONG}")),
    "request ids": lambda number: (200, {**STREAM, "x-request-id": f"id-{number}{LONG}"}, chunk()),
    "names of the answer": lambda number: (
        200,
        STREAM,
        chunk(
            **dict.fromkeys(
                ("id", "model", "service_tier", "system_fingerprint", "object"), f"{number}{LONG}"
            )
        ),
    ),
    "codes of error frames": lambda number: (200, STREAM, failing(number, code=f"code_{letters(number)}")),
    "types of error frames": lambda number: (200, STREAM, failing(number, type=f"type_{letters(number)}")),
    "codes of errors": lambda number: (
        400,
        {},
        json.dumps({"error": {"code": f"code_{letters(number)}", "type": LONG}}).encode(),
    ),
    "statuses": lambda number: (400 + number % 200, {}, b"{}"),
    "retry-after": lambda number: (429, {"retry-after": f"{number}{LONG}"}, b"{}"),
    "content types": lambda number: (200, {"content-type": f"text/{number}{LONG}"}, b"what"),
}


def letters(number: int) -> str:
    """A number as a word, so that it reads like a code."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


async def ask(stage: Stage, client: Any, **request: Any) -> None:
    """Stream an answer; how it ends is not the point."""
    try:
        await stage.all(await stage.chat(client, **{"model": "m", **request}))
    except Exception:
        pass


def series(captured: Captured) -> dict[str, set[tuple[Any, ...]]]:
    """The sets of attributes of each metric."""
    return {
        name: {tuple(sorted(dict(point.attributes).items())) for point in points}
        for name, points in captured.metrics().items()
    }


def assert_few(captured: Captured, most: int) -> None:
    """Every metric has at most so many series, each of the allowed attributes, each value short."""
    allowed = {metric.name: set(metric.attributes) for metric in METRICS}
    for name, found in series(captured).items():
        assert len(found) <= most, (name, len(found))
        for attributes in found:
            assert {key for key, _ in attributes} <= allowed[name], (name, attributes)
            assert all(len(value) <= 256 for _, value in attributes if isinstance(value, str)), attributes
    for span in captured.spans:
        texts = [value for value in dict(span.attributes).values() if isinstance(value, str)]
        texts += [
            each for value in dict(span.attributes).values() if isinstance(value, tuple) for each in value
        ]
        assert all(len(text) <= 256 for text in texts)
        assert len(span.name) <= 300


@pytest.mark.parametrize("answer", SERVERS.values(), ids=list(SERVERS))
def test_names_that_servers_mint_make_few_series(
    answer: Callable[[int], tuple[int, dict[str, str], bytes]], driver: Driver
) -> None:
    async def story(stage: Stage) -> None:
        wire = Wire(answer)
        async with stage.inside(wire.client(stage)) as client:
            for _ in range(MANY // 5):
                await ask(stage, client)

    with instrumented(idle=20, max_retries=0) as captured:
        play(driver, story)
        assert captured.total("stallwatch.streams") == MANY // 5
    # What one model has of each, and the codes and classes of errors.
    assert_few(captured, 40 + _UNKNOWN_CAP + len(_KNOWN))


def _models(number: int) -> dict[str, Any]:
    return {"model": f"model-{number}{LONG}"}


CALLERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "models": _models,
    "efforts, tiers and formats": lambda number: {
        "reasoning_effort": f"{number}{LONG}",
        "service_tier": f"{number}{LONG}",
        "response_format": {"type": f"{number}{LONG}"},
    },
    "numbers": lambda number: {"seed": number, "temperature": number / 7, "max_tokens": number},
}


@pytest.mark.parametrize("request_of", CALLERS.values(), ids=list(CALLERS))
def test_names_that_callers_mint_make_few_series(
    request_of: Callable[[int], dict[str, Any]], driver: Driver
) -> None:
    async def story(stage: Stage) -> None:
        wire = Wire(lambda number: (200, STREAM, chunk()))
        async with stage.inside(wire.client(stage)) as client:
            for number in range(MANY // 2):
                await ask(stage, client, **request_of(number))

    with instrumented(idle=20) as captured:
        play(driver, story)
        assert captured.total("stallwatch.streams") == MANY // 2
        folded = captured.total("stallwatch.streams", gen_ai__request__model=OTHER)
        assert folded == (MANY // 2 - MODEL_CAP if request_of is _models else 0)
    streams = series(captured)["stallwatch.streams"]
    assert len(streams) <= (MODEL_CAP + 1) * len(Outcome)
    assert_few(captured, SERIES)


def test_runs_routes_rules_and_reasons_are_on_spans_only_and_cut(driver: Driver) -> None:
    surrogate = f"\ud800{LONG}"
    names: Iterator[str] = iter(f"{number}{surrogate}" for number in range(10**6))

    async def story(stage: Stage) -> None:
        wire = Wire(lambda number: (200, STREAM, chunk()) if number % 2 else (503, {}, b"{}"))
        async with stage.inside(wire.client(stage)) as client:
            kind: Any = stallwatch.AsyncRouter if stage.is_async else stallwatch.Router
            for _ in range(20):
                router = kind(
                    [stallwatch.Route(client=client, model="m", name=next(names)) for _ in range(2)]
                )
                with stallwatch.Run(name=next(names)) as run:
                    made = router.chat.completions.create(messages=[], stream=True)
                    await stage.all(await stage.of(made))
                    run.cancel(next(names))
                    await ask(stage, client)
                odd: Any = object()
                with stallwatch.Run(name=odd):
                    await ask(stage, client)

    rules = [stallwatch.Rule(name=LONG, policy=stallwatch.Policy.of(idle=19))]
    with instrumented(idle=20, rules=rules) as captured:
        play(driver, story)
    assert_few(captured, 100)
    for span in captured.spans:
        for holder in (span, *span.events):
            for value in dict(holder.attributes).values():
                assert not isinstance(value, str) or len(value.encode()) <= 300
    text = repr(series(captured))
    assert LONG[:100] not in text


def test_classes_of_errors_that_a_program_makes_up_are_folded(driver: Driver) -> None:
    count = ERROR_CAP + 30

    async def story(stage: Stage) -> None:
        def answer(number: int) -> tuple[int, dict[str, str], bytes]:
            raise type(f"Minted{number}{LONG if number % 2 else ''}", (BaseException,), {})("minted")

        async with stage.inside(Wire(answer).client(stage)) as client:
            for _ in range(2 * count):
                with pytest.raises(BaseException, match="minted"):
                    await stage.of(client.embeddings.create(model="m", input="a"))

    with instrumented(total=20) as captured:
        play(driver, story)
    kinds = {dict(each).get("error.type") for each in series(captured)["gen_ai.client.operation.duration"]}
    assert len(kinds - {None}) <= ERROR_CAP + 1


def test_what_is_remembered_of_addresses_and_models_is_bounded(driver: Driver) -> None:
    """Of each there is an entry in several lists; all of them forget."""
    count = 2 * CAPACITY

    async def story(stage: Stage) -> None:
        wire = Wire(
            lambda number: (200, STREAM, chunk(model=f"model-{number}", system_fingerprint=f"model-{number}"))
        )
        async with stage.inside(wire.client(stage)) as client:
            for number in range(count):
                client.base_url = f"http://host-{number}.test/v1"
                await ask(stage, client, model=f"model-{number}")
                captured.forget()
            if stage.is_async:
                await asyncio.sleep(0)

    with instrumented(idle=20) as captured:
        play(driver, story)
        gc.collect()
        # A list that forgets nothing would have one entry for each of them.
        grown = [
            (type(each), len(each), next(iter(each)))
            for each in gc.get_objects()
            # Not isinstance: it asks objects that load what they stand for.
            if issubclass(type(each), (dict, set, list, deque))
            and len(each) > CAPACITY + 50
            and named(each) > CAPACITY + 50
        ]
    assert grown == []


def named(container: Any) -> int:
    """How many of a container's entries bear one of the names; what OpenTelemetry keeps of series nests them deeper."""
    parts = [each if isinstance(each, tuple) else (each,) for each in list(container)]
    return sum(
        any(isinstance(each, str) and ("model-" in each or "host-" in each) for each in entry)
        for entry in parts
    )
