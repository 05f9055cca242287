"""Raw and streaming responses beside another tool: the same types, ``parse`` and headers as beside that tool alone."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from neighbours.stories import OURS, ours
from neighbours.tools import EACH, Tool, capture, untouched
from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, MESSAGES, Driver
from support.stage import Stage, play

MODEL = "healthy:tokens=2,gap=0"


async def _parsed(stage: Stage, client: Any, *, stream: bool) -> list[Any]:
    raw = await stage.of(
        client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, stream=stream)
    )
    answer = raw.parse()
    seen = [type(raw).__name__, "x-request-id" in raw.headers, type(answer).__name__]
    return [*seen, len(await stage.all(answer)) if stream else answer.choices[0].message.content]


async def _lines(stage: Stage, client: Any, *, stream: bool) -> list[Any]:
    manager = client.chat.completions.with_streaming_response.create(
        model=MODEL, messages=MESSAGES, stream=stream
    )
    async with stage.inside(manager) as raw:
        lines = await stage.all(raw.iter_lines())
        return [type(raw).__name__, "x-request-id" in raw.headers, len(lines)]


# Several tools do that to every answer of with_streaming_response, with or without us.
@pytest.mark.filterwarnings("ignore:coroutine 'AsyncAPIResponse.parse' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("read", [_parsed, _lines])
@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_raw_answers_are_those_beside_the_tool_alone(
    gateway: FaultGateway, driver: Driver, tool: Tool, read: Any, stream: bool
) -> None:
    async def story(stage: Stage) -> list[Any]:
        http = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
        client = stage.client(gateway.base_url, http_client=http(verify=False))
        async with stage.inside(client):
            try:
                return await read(stage, client, stream=stream)
            except Exception as error:
                # Some tools break raw answers by themselves; then they are broken as before.
                return [type(error).__name__]

    def told(*, with_us: bool) -> tuple[list[Any], int, int]:
        capture()._spans.clear()
        with untouched():
            tool.on(capture())
            try:
                if with_us:
                    with ours():
                        seen = play(driver, story)
                else:
                    seen = play(driver, story)
            finally:
                tool.off()
        spans = capture().spans
        own = sum(span.instrumentation_scope.name == OURS for span in spans)
        return seen, len(spans) - own, own

    alone, both = told(with_us=False), told(with_us=True)
    assert both[:2] == alone[:2]
    assert both[2] <= 1
    # Where the tool has a span, it is the only one; some leave raw answers out.
    assert not (both[1] and both[2])
