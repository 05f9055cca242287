"""What becomes of the doctor's own calls: kept here, and told to no exporter."""

from __future__ import annotations

from array import array
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.trace import NoOpTracer

from stallwatch.core.phases import Stall
from stallwatch.core.words import HedgeResult, StallAction
from stallwatch.governing import in_force
from stallwatch.telemetry.recorder import AttemptView, Recorders, RunView
from stallwatch.telemetry.spans import SpanRecorder

__all__ = ["Measured", "Notes", "noting", "quiet"]

quiet = suppress_instrumentation
"""Around a call: other instrumentors that follow OpenTelemetry's conventions leave it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One call: when its phases were over by the monotonic clock, and how it went, as it stands on a span."""

    outcome: str
    interrupt: str
    first_chunk_at: float | None
    first_token_at: float | None
    longest_gap: float | None
    chunks: int


class Notes:
    """A recorder that remembers the last call of each model."""

    def __init__(self) -> None:
        self.by_model: dict[str | None, Measured] = {}

    def start(self, run: RunView) -> None:
        """See Recorder.start."""

    def gaps(self, run: RunView, gaps: array[float]) -> None:
        """See Recorder.gaps."""

    def stall(self, run: RunView, stall: Stall, action: StallAction) -> None:
        """See Recorder.stall."""

    def attempt(self, run: RunView, attempt: AttemptView) -> None:
        """See Recorder.attempt."""

    def fallback(self, run: RunView, failed: AttemptView, route: str, to: str) -> None:
        """See Recorder.fallback."""

    def hedge(self, run: RunView, result: HedgeResult, delay: float) -> None:
        """See Recorder.hedge."""

    def backstop(self, run: RunView, now: float) -> None:
        """See Recorder.backstop."""

    def end(self, run: RunView, now: float) -> None:
        """Remember how the run ended."""
        tracker = run.tracker
        self.by_model[run.call.model] = Measured(
            outcome=str(tracker.outcome),
            interrupt=run.interrupt,
            first_chunk_at=tracker.first_chunk_at,
            first_token_at=tracker.first_token_at,
            longest_gap=tracker.longest_gap,
            chunks=tracker.chunks,
        )


@contextmanager
def noting() -> Generator[Notes]:
    """Take notes of the calls made inside, in place of spans and metrics; the process must be instrumented."""
    wiring: Any = in_force()
    notes, before = Notes(), wiring.recorders
    wiring.recorders = Recorders(SpanRecorder(NoOpTracer()), notes)
    try:
        yield notes
    finally:
        wiring.recorders = before
