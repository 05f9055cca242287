"""Tools come and go in any order: each leaves what it found, and streams that are open end as they began."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import openai
import openai._base_client as base
import pytest

import stallwatch
from neighbours.stories import OURS
from neighbours.tools import EACH, Tool, capture
from stallwatch.governing import patched
from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, MESSAGES, Driver
from support.stage import Stage, play

MODEL = "healthy:tokens=2,gap=0"


def _on() -> None:
    stallwatch.OpenAIInstrumentor().instrument(
        tracer_provider=capture().tracer_provider,
        meter_provider=capture().meter_provider,
        skip_dep_check=True,
    )


def _off() -> None:
    stallwatch.OpenAIInstrumentor().uninstrument()


def _code() -> list[Any]:
    return [kind.__dict__["request"].__code__ for kind in (base.SyncAPIClient, base.AsyncAPIClient)]


ORDERS = sorted(
    {
        order
        for order in itertools.permutations(["ours+", "theirs+", "ours-", "theirs-", "ours+", "ours-"])
        if order.index("theirs+") < order.index("theirs-")
        and [step for step in order if step.startswith("ours")] == ["ours+", "ours-", "ours+", "ours-"]
    }
)


def _client(stage: Stage, gateway: FaultGateway) -> Any:
    http = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
    return stage.client(gateway.base_url, http_client=http(verify=False))


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_in_every_order_each_tool_is_there_while_it_is_on(
    gateway: FaultGateway, driver: Driver, tool: Tool
) -> None:
    before = _code()

    async def story(stage: Stage) -> None:
        async with stage.inside(_client(stage, gateway)) as client:
            for order in ORDERS:
                await _go_through(stage, client, tool, order)
                assert patched() == []
                assert _code() == before

    play(driver, story)


async def _go_through(stage: Stage, client: Any, tool: Tool, order: tuple[str, ...]) -> None:
    from neighbours.tools import untouched

    steps: dict[str, Callable[[], object]] = {
        "ours+": _on,
        "ours-": _off,
        "theirs+": lambda: tool.on(capture()),
        "theirs-": tool.off,
    }
    here = False
    with untouched():
        for number, step in enumerate(order):
            steps[step]()
            here = step == "ours+" if step.startswith("ours") else here
            count = capture().total("stallwatch.streams", stallwatch__outcome="completed")
            capture()._spans.clear()
            async with stage.inside(await stage.chat(client, MODEL)) as stream:
                await stage.all(stream)
            told = capture().total("stallwatch.streams", stallwatch__outcome="completed") - count
            assert told == here, order[: number + 1]
            own = [span for span in capture().spans if span.instrumentation_scope.name == OURS]
            others = len(capture().spans) - len(own)
            assert len(own) == (here and not others), order[: number + 1]


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_stream_that_is_open_when_we_go_ends_guarded(
    gateway: FaultGateway, driver: Driver, tool: Tool
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(_client(stage, gateway)) as client:
            tool.on(capture())
            stallwatch.OpenAIInstrumentor().instrument(
                tracer_provider=capture().tracer_provider,
                meter_provider=capture().meter_provider,
                skip_dep_check=True,
                idle=0.2,
            )
            stream = await stage.chat(client, "stall-after:tokens=2,gap=0")
            chunks = aiter(stage.over(stream))
            await anext(chunks)
            _off()
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                async for _ in chunks:
                    pass

    try:
        play(driver, story)
    finally:
        tool.off()


def test_instrumented_from_many_threads_at_once_calls_are_told_once(gateway: FaultGateway) -> None:
    barrier, captured = threading.Barrier(8), capture()

    def instrument() -> None:
        barrier.wait()
        _on()

    threads = [threading.Thread(target=instrument) for _ in range(8)]
    before = _code()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        captured._spans.clear()
        with openai.OpenAI(base_url=gateway.base_url, api_key="sk-test") as client:
            list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
        assert len(captured.spans) == 1
    finally:
        _off()
    assert patched() == []
    assert _code() == before
