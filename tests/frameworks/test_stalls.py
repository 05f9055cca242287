"""A stall ends in time through every surface of every framework, as an error that can be caught, and tells why."""

from __future__ import annotations

import openai
import pytest

from frameworks.catalog import SURFACES
from frameworks.surface import MODEL, Ask, Surface, Told, chain, tell
from stallwatch import StreamTimeoutError
from stallwatch.testing import FaultGateway
from support.bounds import CLOSE_SEEN, EARLY, LATE, LIMITS
from support.telemetry import Captured, instrumented

STREAMS = [surface for surface in SURFACES if surface.streams]
PLAIN = [surface for surface in SURFACES if not surface.streams]

SLACK = 0.3
"""Seconds that a framework may need for itself, before it asks and after it is told, on its first call too."""


def as_told(told: Told, surface: Surface) -> StreamTimeoutError:
    """The error that came out is the framework's own or ours, and ours is in its chain."""
    found = (
        type(told.error).__name__,
        isinstance(told.error, openai.APITimeoutError),
        isinstance(told.error, TimeoutError),
    )
    caught = surface.caught
    assert found == (caught.name, caught.openai_timeout, caught.builtin_timeout), repr(told.error)
    (ours,) = [error for error in chain(told.error) if isinstance(error, StreamTimeoutError)]
    return ours


def closed(gateway: FaultGateway, requests: int) -> None:
    ledger = gateway.wait_for(
        lambda ledger: all(request.closed_how in ("fin", "rst") for request in ledger.requests), CLOSE_SEEN
    )
    assert len(ledger.requests) == requests, ledger


@pytest.mark.parametrize("surface", STREAMS, ids=str)
@pytest.mark.parametrize(
    ("model", "phase", "wire", "text"),
    [
        ("silent", "first_token", "dead_wire", ""),
        ("stall-after:tokens=2", "idle", "dead_wire", "t0 t1 "),
        ("keepalive:tokens=2,every=0.05", "idle", "keepalive_only", "t0 t1 "),
    ],
    ids=["first", "idle", "keepalives"],
)
def test_a_stream_that_stalls_is_ended(
    surface: Surface, model: str, phase: str, wire: str, text: str, gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script(MODEL, model)
    told = tell(surface, Ask(base_url=gateway.base_url))
    ours = as_told(told, surface)
    assert (ours.phase, ours.wire, told.text) == (phase, wire, text)
    assert LIMITS[phase] - EARLY <= told.after_last <= LIMITS[phase] + LATE + SLACK
    closed(gateway, requests=1)
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "stalled"
    assert attributes["stallwatch.stall.phase"] == phase


@pytest.mark.parametrize("surface", PLAIN, ids=str)
def test_a_call_that_is_not_streamed_ends_with_its_total(surface: Surface, gateway: FaultGateway) -> None:
    gateway.script(MODEL, "never-responds")
    with instrumented(**{**LIMITS, "total": 0.4}) as captured:
        told = tell(surface, Ask(base_url=gateway.base_url))
    ours = as_told(told, surface)
    assert (ours.phase, told.text) == ("total", "")
    assert 0.4 - EARLY <= told.seconds <= 0.4 + LATE + SLACK
    closed(gateway, requests=1)
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


# Each way of trying again once.
TYPICAL = [
    surface
    for surface in STREAMS
    if "responses" not in surface.name.lower() and not (surface.slow and not surface.is_async)
]


@pytest.mark.slow
@pytest.mark.parametrize("surface", TYPICAL, ids=str)
def test_with_its_defaults_a_silent_server_gets_no_more_requests_than_documented(
    surface: Surface, gateway: FaultGateway
) -> None:
    gateway.script(MODEL, "silent")
    with instrumented(**{**LIMITS, "first_token": 0.15}) as captured:
        told = tell(surface, Ask(base_url=gateway.base_url, retries=None))
    as_told(told, surface)
    closed(gateway, requests=surface.silent)
    assert {span.attributes["stallwatch.outcome"] for span in captured.spans} == {"stalled"}
    assert sum(span.attributes["stallwatch.attempts"] for span in captured.spans) == surface.silent
