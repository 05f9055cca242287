"""On every surface a stall ends in time as our error, after everything that had come, and the server sees the close."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

import stallwatch
from stallwatch.testing import Done, EmptyDelta, FaultGateway, Finish, Role
from support import leaks
from support.bounds import EARLY, LIMITS
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import Captured, instrumented
from surfaces import rows
from surfaces.all_surfaces import cells
from surfaces.observed import Observed
from surfaces.scenes import Surface, observe

TWIN = "truncated:tokens=2,gap=0"
"""What comes before the silence, and then ends."""

WHOLE = {
    "finish-then-silence:tokens=2,gap=0": "usage:form=none,tokens=2,gap=0",
    "done-then-linger:tokens=2,gap=0": "healthy:tokens=2,gap=0",
}
"""What comes before a lingering end."""

TOTAL = 0.4
PATIENCE = 5.0
"""Seconds; to the millisecond the ends of waits are tested elsewhere, here eight calls stall at once."""

BEATING = ("chat", "completions", "responses")
"""The forms that have a chunk which carries nothing."""


@pytest.fixture(scope="module", autouse=True)
def helper_thread_ends() -> Iterator[None]:
    """The last of these modules leaves none behind for tests that look for threads."""
    yield
    leaks.sweeper_has_ended()


@dataclass(frozen=True)
class Stalled:
    told: Observed
    seconds: float


def expected(surface: Surface, row: str) -> tuple[str, str] | None:
    """Return phase and wire verdict; None for a pair that makes no sense or is no stall."""
    name, _, parameters = row.partition(":")
    if name == "heartbeats" and (surface.api not in BEATING or surface.guards == "bytes"):
        # Whoever reads raw bytes has no chunks: there an empty one is content.
        return None
    if name == "keepalive" and "speech" in surface.api:
        return None
    wire = {"keepalive": "keepalive_only", "heartbeats": "heartbeat_only"}.get(name, "dead_wire")
    if surface.guards == "whole answer":
        return "total", wire
    begun = (
        name in ("stall-after", "keepalive", "finish-then-silence", "done-then-linger")
        or "tokens=2" in parameters
    )
    return ("idle" if begun else "first_token"), wire


def quiet(surface: Surface, row: str) -> bool:
    """Tell whether a whole answer can be told from the bytes that have come."""
    if row not in rows.QUIET:
        return False
    if row.startswith("done"):
        # Of Responses the end is an event, which a reader of raw bytes does not look for; sound has no end mark.
        return surface.api != "speech" and (surface.api, surface.guards) != ("responses", "bytes")
    return surface.guards == "events" and surface.api != "responses"


async def one(surface: Surface, stage: Stage, gateway: FaultGateway, row: str) -> Stalled | None:
    return (await several(surface, stage, gateway, [row]))[0]


async def several(
    surface: Surface, stage: Stage, gateway: FaultGateway, wanted: list[str]
) -> list[Stalled | None]:
    """Make each call with a client of its own; at once, if the stage has a loop."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(stage.inside(surface.made(stage, gateway))) for _ in wanted
        ]
        calls = [
            call(surface, stage, client, gateway, row) for client, row in zip(clients, wanted, strict=True)
        ]
        return await asyncio.gather(*calls) if stage.is_async else [await each for each in calls]


async def call(
    surface: Surface, stage: Stage, client: Any, gateway: FaultGateway, row: str
) -> Stalled | None:
    if not surface.offered(client):
        return None
    began = time.monotonic()
    told = await observe(surface, stage, client, gateway, row)
    return Stalled(told, time.monotonic() - began)


def together(
    surface: Surface, driver: Driver, gateway: FaultGateway, wanted: list[str]
) -> dict[str, Stalled | None]:
    """Stall in all ways at once, so that the table takes no longer than its longest wait."""
    if driver.is_async:
        found = play(driver, lambda stage: several(surface, stage, gateway, wanted))
        return dict(zip(wanted, found, strict=True))
    if surface.sync_only:
        # The module has one client, and it must be made anew each time.
        return {row: play(driver, lambda stage, row=row: one(surface, stage, gateway, row)) for row in wanted}
    with ThreadPoolExecutor(len(wanted)) as pool:
        each = pool.map(lambda row: play(driver, lambda stage: one(surface, stage, gateway, row)), wanted)
        return dict(zip(wanted, each, strict=True))


@pytest.mark.parametrize(("surface", "driver"), cells())
def test_a_stall_is_our_error_in_time_after_all_that_had_come(
    gateway: FaultGateway, surface: Surface, driver: Driver
) -> None:
    whole = surface.guards == "whole answer"
    wanted = [row for row in (*rows.STALLS, *rows.QUIET) if expected(surface, row) or quiet(surface, row)]
    twins = {
        twin: play(driver, lambda stage, twin=twin: one(surface, stage, gateway, twin))
        for twin in (TWIN, *WHOLE.values())
    }
    if None in twins.values():
        pytest.skip("this release does not have it")
    warm(surface, driver, gateway)
    limits = {**LIMITS, "connect": PATIENCE, "total": TOTAL if whole else 30.0}
    gateway.reset_ledger()
    with instrumented(**limits) as captured:
        found = together(surface, driver, gateway, wanted)
    for row in wanted:
        before = twins[WHOLE.get(row, TWIN)]
        try:
            check(surface, row, found[row], captured, before)
            seen_by_the_server(gateway, surface, row)
        except AssertionError:
            # Eight at once are too much for a busy machine: alone it must hold.
            gateway.reset_ledger()
            with instrumented(**limits) as again:
                alone = play(driver, lambda stage, row=row: one(surface, stage, gateway, row))
            check(surface, row, alone, again, before)
            seen_by_the_server(gateway, surface, row)


def seen_by_the_server(gateway: FaultGateway, surface: Surface, row: str) -> None:
    closed = ("fin", "rst") if not quiet(surface, row) else ("fin", "rst", None)
    gateway.wait_for(lambda ledger: ledger.for_model(row)[-1].closed_how in closed, PATIENCE)
    assert len(gateway.ledger().for_model(row)) == 1


def warm(surface: Surface, driver: Driver, gateway: FaultGateway) -> None:
    """Have the SDK build what it builds for the first event it does not know, which may take seconds."""
    gateway.script("warm", [Role(), EmptyDelta("no_choices"), EmptyDelta("empty"), Finish(), Done()])
    if surface.api in BEATING:
        play(driver, lambda stage: one(surface, stage, gateway, "warm"))


def check(
    surface: Surface, row: str, stalled: Stalled | None, captured: Captured, twin: Stalled | None
) -> None:
    where = f"{surface.name}, {row}"
    assert stalled is not None
    assert twin is not None
    if quiet(surface, row):
        assert (stalled.told.seen, stalled.told.error) == (twin.told.seen, None), where
        return
    error: Any = stalled.told.raised
    phase, wire = expected(surface, row) or ("", "")
    kind = stallwatch.TotalTimeoutError if phase == "total" else stallwatch.StreamInactivityTimeoutError
    assert type(error) is kind, f"{where}: {error!r}"
    assert error.phase == phase, where
    assert phase == "total" or error.wire == wire, f"{where}: {error.wire}"
    limit = TOTAL if phase == "total" else LIMITS[phase]
    assert limit - EARLY <= error.waited <= stalled.seconds + EARLY, where
    assert stalled.seconds < limit + PATIENCE, where
    assert phase != "idle" or alike(stalled.told.seen, twin.told.seen), f"{where}: {stalled.told.seen}"
    assert phase != "idle" or not surface.stepwise or stalled.told.seen, where
    (span,) = [
        span
        for span in captured.spans
        if dict(span.attributes or {}).get("stallwatch.stall.waited") == error.waited
    ]
    attributes = dict(span.attributes or {})
    assert (attributes["stallwatch.outcome"], attributes["stallwatch.stall.phase"]) == ("stalled", phase), (
        where
    )
    assert attributes.get("gen_ai.request.model") in (row, None), where


def alike(seen: list[str], before: list[str]) -> bool:
    """Tell whether what came begins as what the bare SDK delivers; what carries nothing may follow."""
    if len(seen) == 1 and len(before) == 1 and seen[0].startswith(("builtins.bytes", "builtins.str")):
        # Read as one piece; the rest of a piece of fixed size is lost with any error.
        return seen[0].startswith(before[0][:-12]) or before[0].startswith(seen[0][:-1])
    return seen[: len(before)] == before[: len(seen)]
