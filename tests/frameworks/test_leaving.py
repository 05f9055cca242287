"""A user who leaves, by breaking off a loop or cancelling a task or a run, is let go at once, and the server told."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

import stallwatch
from frameworks.catalog import SURFACES, patiently
from frameworks.surface import MODEL, Ask, Surface, chain, tell
from stallwatch.testing import FaultGateway
from support.bounds import CLOSE_SEEN, LIMITS
from support.leaks import wait_until
from support.telemetry import Captured, instrumented

STREAMS = [surface for surface in SURFACES if surface.streams]
ASYNC = [surface for surface in SURFACES if surface.is_async]


def gone(gateway: FaultGateway, requests: int = 1) -> None:
    ledger = gateway.wait_for(lambda ledger: ledger.requests[-1].closed_how in ("fin", "rst"), CLOSE_SEEN)
    assert len(ledger.requests) == requests


def outcome(captured: Captured) -> str:
    (span,) = captured.spans
    told: str = span.attributes["stallwatch.outcome"]
    return told


@pytest.mark.parametrize("surface", STREAMS, ids=str)
def test_a_loop_that_is_left_early_ends_the_request(
    surface: Surface, gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script(MODEL, "endless:gap=0.02")
    told = tell(surface, Ask(base_url=gateway.base_url), stop_after=2)
    assert told.pieces == ["t0 ", "t1 "]
    assert told.error is None
    # Some synchronous streams lie in a cycle, with us and without, and are closed by the collector only.
    until = time.monotonic() + 5
    while gateway.ledger().requests[0].closed_how is None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.1)
    gone(gateway)
    wait_until(lambda: captured.spans, lambda: "no span")
    assert outcome(captured) in ("closed_early", "cancelled", "abandoned")


@pytest.mark.parametrize("surface", ASYNC, ids=str)
def test_a_cancelled_task_is_cancelled(surface: Surface, gateway: FaultGateway, captured: Captured) -> None:
    gateway.script(MODEL, "never-responds" if not surface.streams else "silent")
    with instrumented(**{**LIMITS, "first_token": 5}):
        told = tell(
            surface,
            Ask(base_url=gateway.base_url, retries=None),
            cancel_when=lambda: gateway.ledger().requests,
        )
    assert isinstance(told.error, asyncio.CancelledError)
    gone(gateway)
    assert outcome(captured) == "cancelled"


@pytest.mark.parametrize("surface", patiently(SURFACES))
def test_a_cancelled_run_ends_the_call_and_nobody_asks_again(surface: Surface, gateway: FaultGateway) -> None:
    gateway.script(MODEL, "never-responds" if not surface.streams else "silent")
    with instrumented(**{**LIMITS, "first_token": 5}) as captured, stallwatch.Run() as run:

        def leave() -> None:
            gateway.wait_for(lambda ledger: ledger.requests)
            run.cancel("the user left")

        leaver = threading.Thread(target=leave)
        leaver.start()
        told = tell(surface, Ask(base_url=gateway.base_url, retries=None))
        leaver.join()
    assert any(isinstance(error, stallwatch.RunCancelledError) for error in chain(told.error)), told.error
    gone(gateway)
    assert {span.attributes["stallwatch.outcome"] for span in captured.spans} == {"cancelled"}
