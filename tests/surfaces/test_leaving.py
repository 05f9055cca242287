"""Who leaves an answer that has no end leaves it as with the bare SDK, and the server is told no later."""

from __future__ import annotations

from typing import Any

import pytest

from stallwatch.testing import FaultGateway
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import instrumented
from surfaces import rows
from surfaces.all_surfaces import cells
from surfaces.observed import Enough, Observed
from surfaces.scenes import Surface, observe

WANTED = 5
PATIENCE = 5.0
"""Seconds."""


LEFT = {
    "chat.completions.create, stream with usage",
    "chat.completions.stream",
    "with_streaming_response, stream, .iter_lines()",
    "with_streaming_response, stream, .parse()",
    "completions.create, stream",
    "responses.create, stream",
    "responses.stream",
    "responses, with_streaming_response, .iter_lines()",
    "responses.stream, response_id, starting_after",
    "beta.threads.runs.stream",
    "beta.threads.runs.stream, .text_deltas",
    "beta.threads.create_and_run_stream",
    "openai.chat.completions.create, stream",
    "a client of one's own class",
    "AzureOpenAI, chat, stream",
}
"""Those used in a ``with``; what is dropped without a word is in tests/runtime/test_dropped_streams.py."""


def those_left() -> list[Any]:
    return [cell for cell in cells() if cell.values[0].name in LEFT]


def left(surface: Surface, gateway: FaultGateway, driver: Driver) -> Observed | None:
    async def story(stage: Stage) -> Observed | None:
        client = surface.made(stage, gateway)
        async with stage.inside(client):
            if not surface.offered(client):
                return None
            gateway.reset_ledger()
            (model,) = rows.LEAVING
            return await observe(surface, stage, client, gateway, model, WANTED)

    told = play(driver, story)
    if told is not None:
        gateway.wait_for(lambda ledger: ledger.requests[-1].closed_how in ("fin", "rst"), PATIENCE)
    return told


@pytest.mark.parametrize(("surface", "driver"), those_left())
def test_leaving_is_the_bare_sdks(gateway: FaultGateway, surface: Surface, driver: Driver) -> None:
    bare = left(surface, gateway, driver)
    if bare is None:
        pytest.skip("this release does not have it")
    with instrumented() as captured:
        ours = left(surface, gateway, driver)
        assert ours is not None
    assert type(bare.raised) is type(ours.raised) is Enough
    assert ours == bare
    assert len(ours.seen) == WANTED
    (span,) = captured.spans
    assert (span.attributes or {})["stallwatch.outcome"] == "closed_early"
