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
from stallwatch.core.words import HedgeResult, Outcome, RetryDecision, StallAction
from stallwatch.telemetry.neighbours import suppressed, theirs
from stallwatch.telemetry.recorder import AttemptView, FollowingView, RunView
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
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=_request_attributes(run))
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
        self._add(run, Event.ATTEMPT, lambda: _attempt_attributes(attempt, run))

    def fallback(self, run: RunView, failed: AttemptView, route: str, to: str) -> None:
        """Add a fallback event."""
        self._add(
            run,
            Event.FALLBACK,
            lambda: _known(
                {
                    **_verdict(failed.following),
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
        held.add_event(Event.STALL, {**_stall_attributes(stall), Attr.STALL_ACTION: action.value})

    def whole(self, run: RunView, outcome: Outcome) -> None:
        """Tell a neighbour's span what is known; some end theirs at the last event, before the end of the body."""
        held: Trace | None = run.trace
        if held is not None and not held.owned and held.span.is_recording():
            held.span.set_attributes(_own(_end_attributes(run, outcome, standard=False)))

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
            attributes = _end_attributes(run, outcome, standard=held.standard)
            span.set_attributes(attributes if held.owned else _own(attributes))
            if outcome in _FAILURES and held.owned:
                span.set_status(Status(StatusCode.ERROR, run.error_text))
        if held.owned:
            end = time.time_ns() - int((monotonic() - now) * 1e9)
            # The wall clock may have been put back meanwhile, or stand still; no span ends before it began.
            span.end(max(end, getattr(span, "start_time", None) or 0))


def _own(attributes: dict[str, Any]) -> dict[str, Any]:
    """What a neighbour's span is given: none of the names that are the neighbour's to set."""
    return {name: value for name, value in attributes.items() if name.startswith("stallwatch.")}


_FAILURES = frozenset({Outcome.STALLED, Outcome.FAILED, Outcome.TRUNCATED})


def _request_attributes(run: RunView) -> dict[str, Any]:
    call = run.call
    attributes: dict[str, Any] = {Attr.OPERATION: call.operation, Attr.PROVIDER: call.provider}
    if call.model is not None:
        attributes[Attr.REQUEST_MODEL] = call.model
    if call.stream:
        attributes[Attr.REQUEST_STREAM] = True
    if call.server_address is not None:
        attributes[Attr.SERVER_ADDRESS] = call.server_address
        if call.server_port is not None:
            attributes[Attr.SERVER_PORT] = call.server_port
    attributes.update(call.attributes)
    return attributes


def _stall_attributes(stall: Stall) -> dict[str, Any]:
    return {
        Attr.STALL_PHASE: stall.phase.value,
        Attr.STALL_WIRE: stall.wire.value,
        Attr.STALL_LIMIT: stall.limit,
        Attr.STALL_WAITED: stall.waited,
    }


def _verdict(following: FollowingView | None) -> dict[str, Any]:
    if following is None:
        return {}
    verdict = following.verdict
    attributes: dict[str, Any] = {
        Attr.RETRY_KIND: verdict.kind.value,
        Attr.RETRY_DIAGNOSIS: verdict.diagnosis.value,
        Attr.RETRY_REASON: verdict.reason.value,
        Attr.RETRY_DECISION: following.decision.value,
    }
    if verdict.transport_code is not None:
        attributes[Attr.RETRY_TRANSPORT_CODE] = verdict.transport_code
    return attributes


def _attempt_attributes(attempt: AttemptView, run: RunView) -> dict[str, Any]:
    following, request_id = attempt.following, attempt.request_id
    quoted = request_id is not None and run.quotes_secret(request_id)
    attributes: dict[str, Any] = {
        Attr.ATTEMPT_NUMBER: attempt.number,
        Attr.ATTEMPT_ROLE: attempt.role.value,
        Attr.ATTEMPT_DURATION: attempt.duration,
        Attr.ATTEMPT_RACE: None if attempt.race is None else attempt.race.value,
        Attr.OUTCOME: None if attempt.outcome is None else attempt.outcome.value,
        Attr.REQUEST_MODEL: attempt.model,
        Attr.SERVER_ADDRESS: attempt.server_address,
        Attr.SERVER_PORT: attempt.server_port,
        Attr.HTTP_STATUS: attempt.status_code,
        Attr.REQUEST_ID: None if quoted else request_id,
        Attr.CHUNKS: attempt.chunks if run.call.stream else None,
        Attr.OUTPUT_CHARACTERS: attempt.characters,
        Attr.USAGE_KNOWN: attempt.usage_known,
    }
    if following is not None:
        attributes.update(_verdict(following))
        attributes[Attr.RETRY_SERVER_WAIT] = following.server_wait
        if following.decision in _GOING_ON:
            attributes[Attr.RETRY_DELAY] = following.delay
            attributes[Attr.RETRY_PACED] = following.paced
    return _known(attributes)


_SAID = (
    Attr.REQUEST_ID,
    Attr.RESPONSE_ID,
    Attr.RESPONSE_MODEL,
    Attr.RESPONSE_FINISH_REASONS,
    Attr.OPENAI_RESPONSE_TIER,
    Attr.OPENAI_FINGERPRINT,
)
"""What servers say of themselves, in whatever words they like."""


def _withhold(run: RunView, attributes: dict[str, Any]) -> None:
    """Leave out what a server says of itself if it gives the client's key back."""
    response = run.response
    said = f"{run.request_id}"
    if response is not None:
        reasons = attributes.get(Attr.RESPONSE_FINISH_REASONS)
        said = (
            f"{said} {response.id} {response.model} {reasons} {response.service_tier} {response.fingerprint}"
        )
    if run.quotes_secret(said):
        for name in _SAID:
            if run.quotes_secret(f"{attributes.get(name)}"):
                attributes[name] = None


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return those that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


_GOING_ON = frozenset({RetryDecision.RETRY, RetryDecision.FALLBACK})


def _end_attributes(run: RunView, outcome: Outcome, *, standard: bool) -> dict[str, Any]:
    tracker = run.tracker
    response, policy, name, error = run.response, run.policy, run.scope_name, run.error_type
    attributes: dict[str, Any] = {
        Attr.OUTCOME: outcome.value,
        Attr.STALLED: outcome is Outcome.STALLED,
        Attr.ATTEMPTS: run.attempts,
        Attr.POLICY_RULE: text_of(policy.rule),
        Attr.POLICY_MODE: policy.mode.value,
        Attr.INTERRUPT: run.interrupt,
        Attr.STALL_COUNT: run.stalls or None,
        Attr.RUN_NAME: None if name is None else text_of(name),
        Attr.CANCEL_REASON: text_of(run.cancel_reason) if outcome is Outcome.CANCELLED else None,
        Attr.ERROR_TYPE: None if error is None else text_of(error),
        Attr.HTTP_STATUS: run.status_code,
        Attr.REQUEST_ID: run.request_id,
        Attr.BACKSTOP: run.backstopped or None,
        Attr.USAGE_KNOWN: response is not None and response.usage.known,
    }
    if run.call.stream:
        first, visible = tracker.first_token_at, tracker.first_visible_at
        attributes[Attr.CHUNKS] = tracker.chunks
        attributes[Attr.HEARTBEATS] = tracker.heartbeats
        attributes[Attr.TIME_TO_FIRST_TOKEN] = None if first is None else first - tracker.started
        attributes[Attr.TIME_TO_VISIBLE] = None if visible is None else visible - tracker.started
    # Of a stall also where the call was not streamed.
    attributes[Attr.GAP_MAX] = tracker.longest_gap
    if run.stall is not None:
        attributes.update(_stall_attributes(run.stall))
    if run.following is not None:
        attributes.update(_verdict(run.following))
    if response is not None:
        attributes[Attr.OUTPUT_CHARACTERS] = response.characters
    if standard:
        _add_response(run, attributes)
    _withhold(run, attributes)
    return _known(attributes)


def _add_response(run: RunView, attributes: dict[str, Any]) -> None:
    tracker, response = run.tracker, run.response
    if run.call.stream and tracker.first_chunk_at is not None:
        attributes[Attr.RESPONSE_TIME_TO_FIRST_CHUNK] = tracker.first_chunk_at - tracker.started
    if response is None:
        return
    usage = response.usage
    attributes[Attr.RESPONSE_ID] = response.id
    attributes[Attr.RESPONSE_MODEL] = response.model
    attributes[Attr.RESPONSE_FINISH_REASONS] = response.finish_reasons(tracker.choices)
    attributes[Attr.OPENAI_RESPONSE_TIER] = response.service_tier
    attributes[Attr.OPENAI_FINGERPRINT] = response.fingerprint
    attributes[Attr.USAGE_INPUT] = usage.input
    attributes[Attr.USAGE_OUTPUT] = usage.output
    attributes[Attr.USAGE_CACHE_READ] = usage.cache_read or None
    attributes[Attr.USAGE_REASONING] = usage.reasoning or None
