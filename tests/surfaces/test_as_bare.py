"""With stallwatch, every surface shows in every scenario that is no stall what the bare SDK shows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stallwatch.testing import FaultGateway
from stallwatch.testing.scenarios import SCENARIOS
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import instrumented
from surfaces import rows
from surfaces.all_surfaces import cells
from surfaces.observed import Observed
from surfaces.scenes import Surface, observe


def all_rows(
    surface: Surface, gateway: FaultGateway, driver: Driver, wanted: Sequence[str], retries: int
) -> dict[str, Observed] | None:
    async def story(stage: Stage) -> dict[str, Observed] | None:
        client = surface.made(stage, gateway)
        client.max_retries = retries
        async with stage.inside(client):
            if not surface.offered(client):
                return None
            gateway.reset_ledger()
            return {row: await observe(surface, stage, client, gateway, row) for row in wanted}

    return play(driver, story)


def compare(
    surface: Surface, gateway: FaultGateway, driver: Driver, wanted: Sequence[str], *, retries: int = 0
) -> None:
    """Have both play the rows; a reset takes along what the reader has not read yet, so there chance may decide."""
    for chances in (2, 1, 0):
        bare = all_rows(surface, gateway, driver, wanted, retries)
        if bare is None:
            pytest.skip("this release does not have it")
        with instrumented():
            ours = all_rows(surface, gateway, driver, wanted, retries)
        assert ours is not None
        differing = [row for row in wanted if ours[row] != bare[row]]
        if not chances or not all(row.startswith("reset") for row in differing):
            for row in differing:
                assert ours[row] == bare[row], f"{surface.name}, {driver.kind}, {row}"
        if not differing:
            return
        wanted = differing


@pytest.mark.parametrize(("surface", "driver"), cells())
def test_what_is_seen_is_what_the_bare_sdk_shows(
    gateway: FaultGateway, surface: Surface, driver: Driver
) -> None:
    compare(surface, gateway, driver, rows.SAME)


@pytest.mark.parametrize(("surface", "driver"), cells())
def test_it_is_so_with_retries_allowed(gateway: FaultGateway, surface: Surface, driver: Driver) -> None:
    """Then the first event is held back until it is whole, and the SDK makes retries of its own."""
    compare(surface, gateway, driver, rows.WITH_RETRIES, retries=1)


def test_every_scenario_of_the_gateway_is_in_a_row() -> None:
    named = {row.partition(":")[0] for row in (*rows.SAME, *rows.QUIET, *rows.STALLS, *rows.LEAVING)}
    assert set(SCENARIOS) <= named
