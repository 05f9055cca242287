"""The instruments, recorded by the rules that keep them cheap and truthful.

One attribute dictionary per (operation, provider, model) is shared by all records, and so are those with one value of a
closed list more; models past a cap fold into one. Ordinary gaps and token counts are recorded outside any span, so that
exemplars point at what one wants to look into: the longest gap, the stalls, the durations. Counters a dashboard divides
by are preset to zero outside any span when a model is first seen, because the first increment of a series born at one
is invisible to ``increase``.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import INVALID_SPAN, set_span_in_context

from stallwatch import catalogue
from stallwatch.catalogue import Attr, MetricSpec
from stallwatch.clock import monotonic
from stallwatch.core.phases import Stall
from stallwatch.core.words import (
    AttemptRole,
    Diagnosis,
    FailureKind,
    HedgeResult,
    Mode,
    Outcome,
    Phase,
    RetryDecision,
    StallAction,
    Wire,
)
from stallwatch.telemetry.recorder import AttemptView, RunView
from stallwatch.telemetry.spans import Trace
from stallwatch.telemetry.values import TEXT_CAP

__all__ = ["MetricRecorder"]

NO_SPAN = set_span_in_context(INVALID_SPAN, Context())
"""Passed where no exemplar is wanted; an empty Context would not do: it is falsy, and the current one is taken then."""

LiveRuns = Callable[[], Iterable[RunView]]
Labels = dict[str, Any]

_COMMON_RETRIES = (
    *itertools.product(
        (AttemptRole.FIRST, AttemptRole.RETRY),
        (FailureKind.TRANSPORT, FailureKind.RATE_LIMIT, FailureKind.CAPACITY, FailureKind.SERVER),
        (RetryDecision.RETRY, RetryDecision.EXHAUSTED),
    ),
    (AttemptRole.FIRST, FailureKind.TRANSPORT, RetryDecision.PARTIAL_OUTPUT),
    (AttemptRole.FIRST, FailureKind.TRANSPORT, RetryDecision.BUDGET_EXHAUSTED),
)
"""What dashboards divide by; all others are too many to be preset."""

_COMMON_FALLBACKS = (
    *(
        (AttemptRole.FIRST, kind, RetryDecision.FALLBACK)
        for kind in (FailureKind.TRANSPORT, FailureKind.CAPACITY)
    ),
)

_STREAM_PHASES = (Phase.FIRST_TOKEN, Phase.THINKING, Phase.IDLE)


class MetricRecorder:
    """Records the catalogue's metrics of each run; ``live`` lists the streams open now."""

    __slots__ = (
        "_attempt_duration",
        "_closed",
        "_duration",
        "_errors",
        "_gap",
        "_hedges",
        "_labels",
        "_live",
        "_longest_gap",
        "_retries",
        "_routed",
        "_stall_wait",
        "_stalls",
        "_streams",
        "_time_to_first_chunk",
        "_time_to_first_token",
        "_tokens",
        "active",
    )

    def __init__(self, meter: Meter, live: LiveRuns) -> None:
        self._live = live
        self._labels: dict[tuple[str, str, str | None], Labels] = {}
        self._closed: dict[tuple[int, str], Labels] = {}
        self._routed: set[int] = set()
        self._errors: set[str] = set()
        self.active = True
        self._duration = _histogram(meter, catalogue.DURATION)
        self._time_to_first_chunk = _histogram(meter, catalogue.TIME_TO_FIRST_CHUNK)
        self._gap = _histogram(meter, catalogue.TIME_PER_OUTPUT_CHUNK)
        self._tokens = _histogram(meter, catalogue.TOKEN_USAGE)
        self._time_to_first_token = _histogram(meter, catalogue.TIME_TO_FIRST_TOKEN)
        self._longest_gap = _histogram(meter, catalogue.LONGEST_GAP)
        self._attempt_duration = _histogram(meter, catalogue.ATTEMPT_DURATION)
        self._stall_wait = _histogram(meter, catalogue.STALL_WAIT)
        self._stalls = _counter(meter, catalogue.STALLS)
        self._streams = _counter(meter, catalogue.STREAMS)
        self._retries = _counter(meter, catalogue.RETRIES)
        self._hedges = _counter(meter, catalogue.HEDGES)
        _observe(meter, self)

    def labels(self, run: RunView) -> Labels:
        """Return the shared attributes of a run; the first sight of them presets the counters."""
        call = run.call
        key = (call.operation, call.provider, call.model)
        found = self._labels.get(key)
        if found is not None:
            return found
        model = call.model
        if model is not None and len(self._labels) >= catalogue.MODEL_CAP:
            model = catalogue.OTHER
        labels: Labels = {Attr.OPERATION: call.operation, Attr.PROVIDER: call.provider}
        if model is not None:
            labels[Attr.REQUEST_MODEL] = model
        # Of two threads that see a model first at once, one makes it: what is kept by identity must be kept for good.
        kept = self._labels.setdefault((call.operation, call.provider, model), labels)
        if kept is labels:
            self._preset(labels, run)
        return kept

    def _labelled(self, labels: Labels, name: str, value: str) -> Labels:
        """Return ``labels`` with one more, whose value is of a closed list; the values of no two names are the same."""
        key = (id(labels), value)
        found = self._closed.get(key)
        if found is None:
            found = self._closed[key] = {**labels, name: value}
        return found

    def _error(self, kind: str) -> str:
        """Return an ``error.type`` if it is one of the first, which are all where no program makes up classes."""
        if kind not in self._errors:
            if len(self._errors) >= catalogue.ERROR_CAP or len(kind) > TEXT_CAP:
                return catalogue.OTHER
            self._errors.add(kind)
        return kind

    def _preset(self, labels: Labels, run: RunView) -> None:
        self._preset_retries(labels, _COMMON_RETRIES)
        if not run.call.stream:
            return
        for outcome in Outcome:
            self._streams.add(0, {**labels, Attr.OUTCOME: outcome.value}, NO_SPAN)
        action = StallAction.OBSERVE if run.policy.mode is Mode.OBSERVE else StallAction.ABORT
        wires = {Phase.CONNECT: (Wire.DEAD_WIRE,)}
        for phase in (Phase.CONNECT, *_STREAM_PHASES, Phase.TOTAL):
            for wire in wires.get(phase, tuple(Wire)):
                self._stalls.add(0, _stall_labels(labels, phase, wire, action), NO_SPAN)

    def _preset_retries(
        self, labels: Labels, common: Iterable[tuple[AttemptRole, FailureKind, RetryDecision]]
    ) -> None:
        for role, kind, decision in common:
            self._retries.add(0, _retry_labels(labels, role, kind, Diagnosis.RETRYABLE, decision), NO_SPAN)

    def start(self, run: RunView) -> None:
        """Make sure the counters exist before the first event."""
        if run.trace is None:
            return
        labels = self.labels(run)
        if run.routed and id(labels) not in self._routed:
            self._routed.add(id(labels))
            self._preset_retries(labels, _COMMON_FALLBACKS)
            for result in HedgeResult:
                self._hedges.add(0, {**labels, Attr.HEDGE_RESULT: result.value}, NO_SPAN)

    def gaps(self, run: RunView, gaps: array[float]) -> None:
        """Record the waits between chunks; in one go, which costs half of one by one."""
        held: Trace | None = run.trace
        if held is None or not held.standard:
            return
        labels, record = self.labels(run), self._gap.record
        for gap in gaps:
            record(gap, labels, NO_SPAN)

    def stall(self, run: RunView, stall: Stall, action: StallAction) -> None:
        """Count the stall and its wait, with the run's span as exemplar."""
        held: Trace | None = run.trace
        if held is None:
            return
        labels, context = self.labels(run), held.context
        self._stalls.add(1, _stall_labels(labels, stall.phase, stall.wire, action), context)
        self._stall_wait.record(stall.waited, {**labels, Attr.STALL_PHASE: stall.phase.value}, context)

    def attempt(self, run: RunView, attempt: AttemptView) -> None:
        """Record an attempt, and what was decided after it if it failed."""
        held: Trace | None = run.trace
        if held is None or attempt.outcome is None:
            return
        labels, context, following = self.labels(run), held.context, attempt.following
        timed = self._labelled(labels, Attr.OUTCOME, attempt.outcome.value)
        if following is not None and attempt.outcome is not Outcome.CANCELLED:
            verdict = following.verdict
            timed = {
                **timed,
                Attr.RETRY_KIND: verdict.kind.value,
                Attr.RETRY_DIAGNOSIS: verdict.diagnosis.value,
            }
            self._retries.add(
                1,
                _retry_labels(labels, attempt.role, verdict.kind, verdict.diagnosis, following.decision),
                context,
            )
        # Where there was but one and it went well, the run's own duration leads to the same span.
        alone = following is None and attempt.number == 1
        self._attempt_duration.record(attempt.duration, timed, NO_SPAN if alone else context)

    def fallback(self, run: RunView, failed: AttemptView, route: str, to: str) -> None:
        """Counted with the decision after the attempt that failed."""

    def hedge(self, run: RunView, result: HedgeResult, delay: float) -> None:
        """Count a race."""
        held: Trace | None = run.trace
        if held is not None:
            self._hedges.add(1, {**self.labels(run), Attr.HEDGE_RESULT: result.value}, held.context)

    def backstop(self, run: RunView, now: float) -> None:
        """Numbers wait for the real end."""

    def end(self, run: RunView, now: float) -> None:
        """Record what the run amounted to."""
        held: Trace | None = run.trace
        outcome = run.tracker.outcome
        if held is None or outcome is None:
            return
        labels, context, tracker = self.labels(run), held.context, run.tracker
        if held.standard:
            self._record_standard(run, now, labels, context)
        if not run.call.stream:
            return
        self._streams.add(1, self._labelled(labels, Attr.OUTCOME, outcome.value), context)
        if tracker.first_token_at is not None:
            self._time_to_first_token.record(tracker.first_token_at - tracker.started, labels, context)
        if tracker.longest_gap is not None:
            self._longest_gap.record(tracker.longest_gap, labels, context)

    def _record_standard(self, run: RunView, now: float, labels: Labels, context: Context) -> None:
        tracker = run.tracker
        kind = run.error_type
        timed = labels if kind is None else {**labels, Attr.ERROR_TYPE: self._error(kind)}
        self._duration.record(now - tracker.started, timed, context)
        if run.call.stream and tracker.first_chunk_at is not None:
            self._time_to_first_chunk.record(tracker.first_chunk_at - tracker.started, labels, context)
        response = run.response
        if response is not None:
            for kind, count in (("input", response.usage.input), ("output", response.usage.output)):
                if count is not None:
                    self._tokens.record(count, self._labelled(labels, Attr.TOKEN_TYPE, kind), NO_SPAN)

    # Observed at collection

    def observe_active(self, _: CallbackOptions) -> Iterable[Observation]:
        """Return the number of open streams by call; zero for calls seen before."""
        counts = {id(labels): (labels, 0) for labels in list(self._labels.values())}
        for run in self._open():
            labels = self.labels(run)
            counts[id(labels)] = (labels, counts.get(id(labels), (labels, 0))[1] + 1)
        return [Observation(count, labels) for labels, count in counts.values()] if self.active else []

    def observe_silent(self, _: CallbackOptions) -> Iterable[Observation]:
        """Return the number of open streams that wait and have been silent for long, by call and phase."""
        if not self.active:
            return []
        now = monotonic()
        counts: dict[tuple[int, Phase], tuple[Labels, int]] = {}
        for labels in list(self._labels.values()):
            for phase in _STREAM_PHASES:
                counts[(id(labels), phase)] = ({**labels, Attr.PHASE: phase.value}, 0)
        for run in self._open():
            if run.tracker.waiting and run.tracker.silence(now) > catalogue.SILENT_AFTER:
                labels, phase = self.labels(run), run.tracker.phase
                kept, count = counts.get((id(labels), phase), ({**labels, Attr.PHASE: phase.value}, 0))
                counts[(id(labels), phase)] = (kept, count + 1)
        return [Observation(count, labels) for labels, count in counts.values()]

    def observe_oldest(self, _: CallbackOptions) -> Iterable[Observation]:
        """Return the longest present wait by call; zero when nobody waits."""
        if not self.active:
            return []
        now = monotonic()
        oldest = {id(labels): (labels, 0.0) for labels in list(self._labels.values())}
        for run in self._open():
            labels = self.labels(run)
            wait = run.tracker.silence(now) if run.tracker.waiting else 0.0
            oldest[id(labels)] = (labels, max(wait, oldest.get(id(labels), (labels, 0.0))[1]))
        return [Observation(wait, labels) for labels, wait in oldest.values()]

    def _open(self) -> list[RunView]:
        return [run for run in self._live() if run.trace is not None and run.call.stream]


def _retry_labels(
    labels: Labels, role: AttemptRole, kind: FailureKind, diagnosis: Diagnosis, decision: RetryDecision
) -> Labels:
    return {
        **labels,
        Attr.ATTEMPT_ROLE: role.value,
        Attr.RETRY_KIND: kind.value,
        Attr.RETRY_DIAGNOSIS: diagnosis.value,
        Attr.RETRY_DECISION: decision.value,
    }


def _stall_labels(labels: Labels, phase: Phase, wire: Wire, action: StallAction) -> Labels:
    return {
        **labels,
        Attr.STALL_PHASE: phase.value,
        Attr.STALL_WIRE: wire.value,
        Attr.STALL_ACTION: action.value,
    }


def _histogram(meter: Meter, spec: MetricSpec) -> Any:
    return meter.create_histogram(
        spec.name,
        unit=spec.unit,
        description=spec.description,
        explicit_bucket_boundaries_advisory=spec.buckets,
    )


def _counter(meter: Meter, spec: MetricSpec) -> Any:
    return meter.create_counter(spec.name, unit=spec.unit, description=spec.description)


def _observe(meter: Meter, recorder: MetricRecorder) -> None:
    for spec, callback, create in (
        (catalogue.STREAMS_ACTIVE, recorder.observe_active, meter.create_observable_up_down_counter),
        (catalogue.STREAMS_SILENT, recorder.observe_silent, meter.create_observable_up_down_counter),
        (catalogue.OLDEST_WAIT, recorder.observe_oldest, meter.create_observable_gauge),
    ):
        create(spec.name, callbacks=[callback], unit=spec.unit, description=spec.description)
