"""The right values of a story, each stated once: what the caller, the span, the metrics and the ledger must say."""

from __future__ import annotations

import copy
import errno
import pickle
from typing import Any

import openai
import pytest
from opentelemetry.trace import SpanKind, StatusCode

import stallwatch
from stallwatch.testing import FaultGateway
from support.bounds import CLOSE_SEEN, EARLY, LATE
from support.telemetry import Captured

__all__ = ["Histogram", "bare_shape", "ended", "in_time", "released", "stalled", "timeout_error"]

ERRORS = ("failed", "truncated", "stalled")


def in_time(seconds: float, limit: float) -> None:
    """A wait ended at its limit: not early, and not late."""
    assert limit - EARLY <= seconds <= limit + LATE, f"{seconds:.3f} s, limit {limit:g} s"


class Histogram:
    """The points of one histogram together."""

    def __init__(self, captured: Captured, name: str, **attributes: Any) -> None:
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        points = [
            point
            for point in captured.metrics().get(name, [])
            if wanted.items() <= dict(point.attributes).items()
        ]
        self.count = sum(point.count for point in points)
        self.sum = sum(point.sum for point in points)
        self.max = max((point.max for point in points), default=0.0)


def timeout_error(
    error: BaseException | None,
    *,
    phase: str,
    limit: float,
    wire: str | None = "dead_wire",
    chunks: int = 0,
    allowed: float | None = None,
    attempt: int = 1,
) -> stallwatch.StreamTimeoutError:
    """The caller got the timeout error of this phase, with every field right; ``wire=None`` where nothing sees it."""
    kind = stallwatch.TotalTimeoutError if phase == "total" else stallwatch.StreamInactivityTimeoutError
    assert type(error) is kind, repr(error)
    assert isinstance(error, kind)
    assert isinstance(error, openai.APITimeoutError)
    assert isinstance(error, TimeoutError)
    assert (error.code, error.errno) == ("ETIMEDOUT", errno.ETIMEDOUT)
    assert (error.phase, error.limit) == (phase, limit)
    assert (error.chunks_received, error.attempt) == (chunks, attempt)
    assert wire in (error.wire, None)
    in_time(error.waited, limit if allowed is None else allowed)
    # The total began before the attempt did.
    assert phase == "total" or error.stream_lifetime >= error.waited - EARLY
    text = str(error)
    assert f"limit {limit:g} s" in text
    assert f"{error.waited:.2f} s" in text
    # Which setting it names depends on the layer that decided; tests/test_errors.py has them all.
    assert f"stallwatch.policy({phase}=...)" in text or "stallwatch.policy(...) around the call" in text
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is kind
        assert (str(again), again.phase, again.waited) == (text, phase, error.waited)
    return error


def stalled(
    captured: Captured,
    error: BaseException | None,
    *,
    phase: str,
    limit: float,
    wire: str | None = "dead_wire",
    chunks: int = 0,
    stream: bool = True,
    interrupt: str | None = "proven",
    **more: Any,
) -> dict[str, Any]:
    """The call ended as this stall, on error, span and metrics alike; returns the span's attributes."""
    raised = timeout_error(error, phase=phase, limit=limit, wire=wire, chunks=chunks, **more)
    attributes = _span(captured, "stalled", raised)
    stall = {
        "stallwatch.stall.phase": phase,
        "stallwatch.stall.wire": raised.wire,
        "stallwatch.stall.limit": limit,
        "stallwatch.stall.waited": raised.waited,
    }
    assert stall.items() <= attributes.items()
    assert attributes["stallwatch.stalls"] == 1
    assert attributes["error.type"] == type(raised).__name__
    assert attributes["stallwatch.retry.decision"] == _why_not_again(phase, chunks), attributes
    assert attributes["stallwatch.retry.kind"] == "transport"
    assert attributes["stallwatch.retry.transport_code"] == "ETIMEDOUT"
    if interrupt is not None:
        assert attributes["stallwatch.interrupt"] == interrupt
    (event,) = captured.events()
    assert dict(event.attributes or {}) == {**stall, "stallwatch.stall.action": "abort"}

    _streams(captured, "stalled" if stream else None)
    labels = {"stallwatch__stall__phase": phase}
    closed = {**labels, "stallwatch__stall__wire": raised.wire, "stallwatch__stall__action": "abort"}
    assert captured.total("stallwatch.stalls") == captured.total("stallwatch.stalls", **closed) == 1
    wait = Histogram(captured, "stallwatch.stall.wait", **labels)
    assert (wait.count, wait.sum) == (1, pytest.approx(raised.waited))
    if stream:
        assert attributes["stallwatch.chunks"] == chunks
        longest = Histogram(captured, "stallwatch.stream.longest_gap")
        assert (longest.count, longest.max) == (1, pytest.approx(attributes["stallwatch.gap.max"]))
        if phase != "total":
            # The fatal gap is never missing from the picture.
            assert longest.max >= raised.waited - EARLY
    _durations(captured, "stalled", type(raised).__name__)
    return attributes


def _why_not_again(phase: str, chunks: int) -> str:
    if chunks:
        return "partial_output"
    return "deadline" if phase == "total" else "retries_off"


def ended(
    captured: Captured,
    outcome: str,
    *,
    chunks: int | None = None,
    error_type: str | None = None,
    stream: bool = True,
) -> dict[str, Any]:
    """The call ended otherwise: one span with this outcome, no stall anywhere; returns the span's attributes."""
    attributes = _span(captured, outcome)
    assert attributes.get("error.type") == error_type
    assert not [name for name in attributes if name.startswith("stallwatch.stall.")]
    assert "stallwatch.stalls" not in attributes
    assert not captured.events()
    if chunks is not None:
        assert attributes["stallwatch.chunks"] == chunks
    assert captured.total("stallwatch.stalls") == 0
    assert Histogram(captured, "stallwatch.stall.wait").count == 0
    _streams(captured, outcome if stream else None)
    _durations(captured, outcome, error_type)
    return attributes


def _span(captured: Captured, outcome: str, error: BaseException | None = None) -> dict[str, Any]:
    span = captured.span
    attributes = captured.attributes()
    assert span.kind is SpanKind.CLIENT
    assert attributes["stallwatch.outcome"] == outcome
    assert attributes["stallwatch.stalled"] is (outcome == "stalled")
    assert (span.status.status_code is StatusCode.ERROR) is (outcome in ERRORS), span.status
    if outcome in ERRORS:
        assert span.status.description
        assert "error.type" in attributes
    else:
        assert span.status.status_code is StatusCode.UNSET
        assert span.status.description is None
    if error is not None:
        # The error goes on to say why it was not tried again, which the span has as an attribute.
        assert str(error).startswith(span.status.description or "?")
    assert attributes["stallwatch.attempts"] >= 1
    assert "stallwatch.backstop" not in attributes
    return attributes


def _streams(captured: Captured, outcome: str | None) -> None:
    """Count one stream with this outcome and none with another, and none still open."""
    if outcome is not None:
        assert captured.total("stallwatch.streams", stallwatch__outcome=outcome) == 1
    assert captured.total("stallwatch.streams") == (outcome is not None)
    assert captured.total("stallwatch.streams.active") == 0


def _durations(captured: Captured, outcome: str, error_type: str | None) -> None:
    whole = "gen_ai.client.operation.duration"
    assert Histogram(captured, whole).count == 1
    if error_type is not None:
        assert Histogram(captured, whole, error__type=error_type).count == 1
    assert Histogram(captured, "stallwatch.attempt.duration", stallwatch__outcome=outcome).count == 1


def released(gateway: FaultGateway, requests: int = 1) -> None:
    """The gateway got this many requests and has seen the client close the last one's connection."""
    ledger = gateway.wait_for(
        lambda ledger: ledger.requests and ledger.requests[-1].closed_how in ("fin", "rst"), CLOSE_SEEN
    )
    assert len(ledger.requests) == requests, ledger


_CHANGING = frozenset({"id", "created", "created_at", "completed_at", "item_id"})


def bare_shape(chunks: list[Any]) -> list[Any]:
    """Return chunks as plain data without what differs from answer to answer."""
    return [_plain(chunk.model_dump() if hasattr(chunk, "model_dump") else repr(chunk)) for chunk in chunks]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key not in _CHANGING}
    return [_plain(each) for each in value] if isinstance(value, list) else value
