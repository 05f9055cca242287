"""The Agents SDK: its own traces, and its Runner's retries beside ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import openai
import pytest

from frameworks.installed import HERE
from frameworks.surface import MODEL
from stallwatch import StreamTimeoutError
from stallwatch.testing import FaultGateway
from support.bounds import LIMITS
from support.telemetry import Captured, instrumented

if "agents" not in HERE:
    pytest.skip("openai-agents is not installed here", allow_module_level=True)

from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    retry_policies,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.tracing import TracingProcessor

ASKS_ABROAD = """
import os, sys

def watch(event, arguments):
    if event == "socket.getaddrinfo" and arguments[0] not in ("127.0.0.1", b"127.0.0.1"):
        os.write(1, f"{arguments[0]} ".encode())
        raise OSError("not from here")

sys.addaudithook(watch)
import openai
from agents import Agent, OpenAIChatCompletionsModel, Runner
model = OpenAIChatCompletionsModel(model="gpt-4o", openai_client=openai.AsyncOpenAI())
Runner.run_sync(Agent(name="Teller", model=model), "hi")
"""


class Kept(TracingProcessor):
    """Keeps what would be sent to OpenAI."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def on_trace_start(self, trace: Any) -> None: ...

    def on_trace_end(self, trace: Any) -> None: ...

    def on_span_start(self, span: Any) -> None: ...

    def on_span_end(self, span: Any) -> None:
        self.kinds.append(span.span_data.type)

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


def agent(gateway: FaultGateway, settings: ModelSettings | None = None, **client: Any) -> Agent:
    sdk = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="test", **client)
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=sdk)
    return Agent(name="Teller", model=model, model_settings=settings or ModelSettings())


def text_of(event: Any) -> str:
    is_text = event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    return event.data.delta if is_text else ""


async def streamed(asked: Agent) -> str:
    return "".join([text_of(event) async for event in Runner.run_streamed(asked, "hi").stream_events()])


def test_its_own_tracing_makes_no_second_span(gateway: FaultGateway, captured: Captured) -> None:
    gateway.script(MODEL, "healthy")
    kept = Kept()
    set_trace_processors([kept])
    set_tracing_disabled(False)
    try:
        assert asyncio.run(streamed(agent(gateway))) == "t0 t1 t2 t3 t4 "
    finally:
        set_tracing_disabled(True)
        set_trace_processors([])
    assert kept.kinds.count("generation") == 1
    assert captured.attributes()["stallwatch.outcome"] == "completed"


@pytest.mark.parametrize(
    ("client", "runner", "attempts"),
    [(0, 0, [0]), (0, 2, [0, 0, 0]), (None, 0, [0, 1, 2]), (None, 2, [0, 1, 2, 0, 0])],
    ids=["none", "runner", "client", "both"],
)
def test_its_runner_takes_a_silent_server_for_one_to_try_again(
    client: int | None, runner: int, attempts: list[int], gateway: FaultGateway
) -> None:
    gateway.script(MODEL, "silent")
    retry = ModelRetrySettings(
        max_retries=runner, backoff={"initial_delay": 0.01}, policy=retry_policies.network_error()
    )
    settings = ModelSettings(retry=retry) if runner else None
    given = {} if client is None else {"max_retries": client}
    with instrumented(**{**LIMITS, "first_token": 0.15}) as captured, pytest.raises(StreamTimeoutError):
        asyncio.run(streamed(agent(gateway, settings, **given)))
    assert [request.retry_count for request in gateway.ledger().requests] == attempts
    assert len(captured.spans) == 1 + runner


def test_its_runner_tries_nothing_again_after_the_first_piece(
    gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script(MODEL, "stall-after:tokens=2")
    retry = ModelRetrySettings(max_retries=2, policy=retry_policies.network_error())
    with pytest.raises(StreamTimeoutError):
        asyncio.run(streamed(agent(gateway, ModelSettings(retry=retry))))
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


def test_a_run_that_is_cancelled_cancels_the_call(gateway: FaultGateway, captured: Captured) -> None:
    """Its own cancel, ``RunResultStreaming.cancel``."""
    gateway.script(MODEL, "endless:gap=0.02")

    async def leave() -> int:
        result = Runner.run_streamed(agent(gateway), "hi")
        seen = 0
        async for event in result.stream_events():
            seen += bool(text_of(event))
            if seen == 2:
                result.cancel()
        await gateway.wait_for_async(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))
        return seen

    assert asyncio.run(leave()) >= 2
    assert captured.attributes()["stallwatch.outcome"] in ("cancelled", "closed_early")


@pytest.mark.slow
@pytest.mark.parametrize("disabled", [False, True])
def test_its_traces_go_to_openai_unless_told_not_to(disabled: bool, gateway: FaultGateway) -> None:
    """Whatever server the models are asked at; the variable that the page recommends is enough."""
    gateway.script(MODEL, "healthy")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ASKS_ABROAD],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
        env={
            "OPENAI_BASE_URL": gateway.base_url,
            "OPENAI_API_KEY": "test",
            "OPENAI_AGENTS_DISABLE_TRACING": str(int(disabled)),
        },
    )
    assert set(done.stdout.split()) == (set() if disabled else {"api.openai.com"})
    assert len(gateway.ledger().requests) == 1
