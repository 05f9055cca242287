"""A router beside another tool: the tool has a span per route that was asked, we tell on the one that answered."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from neighbours.stories import OURS, ours
from neighbours.tools import EACH, Tool, capture
from stallwatch import AsyncRouter, Route, Router
from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, MESSAGES, Driver
from support.stage import Stage, play


@pytest.mark.parametrize("first", ["error-status:code=503", "silent"])
@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_route_that_fails_or_stays_silent_gives_way_to_the_next(
    gateway: FaultGateway, driver: Driver, tool: Tool, first: str
) -> None:
    gateway.reset_ledger()
    capture()._spans.clear()

    async def story(stage: Stage) -> list[Any]:
        http = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
        client = stage.client(gateway.base_url, http_client=http(verify=False))
        made: Any = AsyncRouter if stage.is_async else Router
        router = made(
            [Route(client=client, model=first), Route(client=client, model="healthy:tokens=2,gap=0")]
        )
        async with stage.inside(client):
            return await stage.all(
                await stage.of(router.chat.completions.create(messages=MESSAGES, stream=True))
            )

    tool.on(capture())
    try:
        with ours(first_token=0.3, max_retries=0):
            chunks = play(driver, story)
    finally:
        tool.off()
    assert len(chunks) == 4
    spans = capture().spans
    assert all(span.instrumentation_scope.name != OURS for span in spans)
    told = [span for span in spans if "stallwatch.outcome" in span.attributes]
    if tool.name == "Logfire":
        # Its span of a stream has ended with the headers.
        assert told == []
        return
    (span,) = told
    assert span.attributes["stallwatch.outcome"] == "completed"
    assert span.attributes["stallwatch.attempts"] == 2
