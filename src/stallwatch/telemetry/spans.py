"""One span per run.

Request attributes go on at the start, where samplers see them; everything else in one call at the end. The span is
current only while the SDK's own request code runs, never across a yield. Beside another OpenAI instrumentor no second
``gen_ai`` span is opened: the one in scope is enriched with ``stallwatch.*`` and left for its owner to end.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from stallwatch.catalogue import ATTEMPT_EVENT_CAP, STALL_EVENT_CAP, Attr, Event
from stallwatch.clock import monotonic
from stallwatch.core.phases import Stall
from stallwatch.core.words import HedgeResult, Outcome, StallAction
from stallwatch.telemetry.neighbours import suppressed, theirs
from stallwatch.telemetry.recorder import AttemptView, RunView
from stallwatch.telemetry.span_attributes import (
    attempt_attributes,
    end_attributes,
    known,
    only_own,
    request_attributes,
    stall_attributes,
    verdict_attributes,
)
from stallwatch.telemetry.values import text_of

__all__ = ["SpanRecorder", "Trace"]


class Trace:
    """What spans keep of a run: the span, and whether the standard telemetry of this call is ours to emit."""

    __slots__ = ("attempts", "ended", "events", "owned", "span", "standard", "turns")

    def __init__(self, span: Span, *, owned: bool, standard: bool) -> None:
        self.span = span
        self.owned = owned
        self.standard = standard
        self.events = self.attempts = self.turns = 0
        self.ended = False

    @property
    def context(self) -> Context:
        """A context in which the span is current; built on demand, because keeping one per open stream is dear."""
        return set_span_in_context(self.span, Context())

    def add_event(self, name: str, attributes: dict[str, Any]) -> None:
        """Add an event, unless the span has been ended, which the backstop may do in another thread at any time."""
        with _state["lock"]:
            if not self.ended:
                self.span.add_event(name, attributes)

    def claim_end(self) -> bool:
        """True for the one who is to end the span."""
        with _state["lock"]:
            ended, self.ended = self.ended, True
        return not ended


_state = {"lock": threading.RLock()}
"""One for all spans: it is held for moments, and never while processors and exporters work. Reentrant, because a signal
handler may close the stream whose event is being added."""


def _forget() -> None:
    # A forked child holds nobody's lock.
    _state["lock"] = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class SpanRecorder:
    """Opens, enriches and ends the span of each run."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def start(self, run: RunView) -> None:
        """Open the span, or adopt the one a neighbour opened for this call."""
        if suppressed():
            run.trace = None
            return
        span = theirs()
        if span is not None:
            run.trace = Trace(span, owned=False, standard=False)
            return
        call = run.call
        name = call.operation if call.model is None else f"{call.operation} {call.model}"
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=request_attributes(run))
        run.trace = Trace(span, owned=True, standard=True)

    def go_on(self, run: RunView) -> None:
        """Adopt the span a neighbour opened for this route of the call; what is ours is one for all routes."""
        held: Trace | None = run.trace
        if held is not None and not held.owned:
            span = theirs()
            if span is not None:
                run.trace = Trace(span, owned=False, standard=False)

    def activate(self, run: RunView) -> object | None:
        """Make the run's own span current."""
        held: Trace | None = run.trace
        if held is None or not held.owned:
            return None
        return otel_context.attach(set_span_in_context(held.span))

    def deactivate(self, token: Any) -> None:
        """Make the span that was current before so again."""
        otel_context.detach(token)

    def gaps(self, run: RunView, gaps: array[float]) -> None:
        """Spans carry only the longest gap, at the end."""

    def attempt(self, run: RunView, attempt: AttemptView) -> None:
        """Add an attempt event."""
        self._add(run, Event.ATTEMPT, lambda: attempt_attributes(attempt, run))

    def fallback(self, run: RunView, failed: AttemptView, route: str, to: str) -> None:
        """Add a fallback event."""
        self._add(
            run,
            Event.FALLBACK,
            lambda: known(
                {
                    **verdict_attributes(failed.following),
                    Attr.FALLBACK_FROM: text_of(route),
                    Attr.FALLBACK_TO: text_of(to),
                }
            ),
        )

    def hedge(self, run: RunView, result: HedgeResult, delay: float) -> None:
        """Add a hedge event."""
        self._add(run, Event.HEDGE, lambda: {Attr.HEDGE_RESULT: result.value, Attr.HEDGE_DELAY: delay})

    def _add(self, run: RunView, name: str, attributes: Callable[[], dict[str, Any]]) -> None:
        held: Trace | None = run.trace
        if held is None or held.ended or not held.span.is_recording():
            return
        count = held.attempts if name == Event.ATTEMPT else held.turns
        if count >= ATTEMPT_EVENT_CAP:
            return
        if name == Event.ATTEMPT:
            held.attempts += 1
        else:
            held.turns += 1
        held.add_event(name, attributes())

    def stall(self, run: RunView, stall: Stall, action: StallAction) -> None:
        """Add a stall event; capped, because a span that overflows drops its oldest events."""
        held: Trace | None = run.trace
        if held is None or held.ended or held.events >= STALL_EVENT_CAP or not held.span.is_recording():
            # A neighbour may have ended its span already, and an event on an ended span is a warning in the log.
            return
        held.events += 1
        held.add_event(Event.STALL, {**stall_attributes(stall), Attr.STALL_ACTION: action.value})

    def whole(self, run: RunView, outcome: Outcome) -> None:
        """Tell a neighbour's span what is known; some end theirs at the last event, before the end of the body."""
        held: Trace | None = run.trace
        if held is not None and not held.owned and held.span.is_recording():
            held.span.set_attributes(only_own(end_attributes(run, outcome, standard=False)))

    def backstop(self, run: RunView, now: float) -> None:
        """End the span of a run that nobody ends."""
        self._close(run, now, Outcome.ABANDONED)

    def end(self, run: RunView, now: float) -> None:
        """End the span with everything that was learned."""
        outcome = run.tracker.outcome
        if outcome is not None:
            self._close(run, now, outcome)

    def _close(self, run: RunView, now: float, outcome: Outcome) -> None:
        held: Trace | None = run.trace
        if held is None or not held.claim_end():
            return
        span = held.span
        if span.is_recording():
            attributes = end_attributes(run, outcome, standard=held.standard)
            span.set_attributes(attributes if held.owned else only_own(attributes))
            if outcome in _FAILURES and held.owned:
                span.set_status(Status(StatusCode.ERROR, run.error_text))
        if held.owned:
            end = time.time_ns() - int((monotonic() - now) * 1e9)
            # The wall clock may have been put back meanwhile, or stand still; no span ends before it began.
            span.end(max(end, getattr(span, "start_time", None) or 0))


_FAILURES = frozenset({Outcome.STALLED, Outcome.FAILED, Outcome.TRUNCATED})
