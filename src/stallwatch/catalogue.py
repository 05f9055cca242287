"""Every name stallwatch emits, once: span attributes, events, metrics with units and buckets, closed value lists.

The ``gen_ai`` names are those emitted today by the released conventions; they are development-stage and live here
only, so that following a rename is a change of this file. Own names are prefixed ``stallwatch.``, carry no unit and
no ``total``, and counters use brace units, so that one dashboard serves every export path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stallwatch.core.words import (
    AttemptRole,
    Diagnosis,
    FailureKind,
    FailureReason,
    HedgeResult,
    Outcome,
    Phase,
    RaceResult,
    RetryDecision,
    StallAction,
    Wire,
)

__all__ = ["ATTRIBUTES", "EVENTS", "METRICS", "SCOPE", "Attr", "Event", "Instrument", "MetricSpec"]

SCOPE = "stallwatch"
"""The instrumentation scope; stable, because configuration selects scopes by name."""

OTHER = "_OTHER"
"""What an unbounded value is folded into past its cap."""

MODEL_CAP = 100
"""Combinations of operation, provider and model per process before further models are folded into ``OTHER``; with
the presets of each, the telemetry SDK's limit of 2000 series an instrument is not far."""

ERROR_CAP = 50
"""Values of ``error.type`` on metrics before further ones are folded into ``OTHER``: more than programs have."""


class Attr:
    """Attribute names, on spans and (the short list in ``MetricSpec.attributes``) on metrics.

    Plain strings, not an enum: the names go into the telemetry SDK, which must not see types of ours.
    """

    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    REQUEST_MODEL = "gen_ai.request.model"
    REQUEST_STREAM = "gen_ai.request.stream"
    REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
    REQUEST_TEMPERATURE = "gen_ai.request.temperature"
    REQUEST_TOP_P = "gen_ai.request.top_p"
    REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
    REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
    REQUEST_SEED = "gen_ai.request.seed"
    REQUEST_CHOICE_COUNT = "gen_ai.request.choice.count"
    REQUEST_REASONING_LEVEL = "gen_ai.request.reasoning.level"
    OUTPUT_TYPE = "gen_ai.output.type"
    RESPONSE_ID = "gen_ai.response.id"
    RESPONSE_MODEL = "gen_ai.response.model"
    RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
    RESPONSE_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    USAGE_INPUT = "gen_ai.usage.input_tokens"
    USAGE_OUTPUT = "gen_ai.usage.output_tokens"
    USAGE_CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
    USAGE_REASONING = "gen_ai.usage.reasoning.output_tokens"
    TOKEN_TYPE = "gen_ai.token.type"
    OPENAI_API_TYPE = "openai.api.type"
    OPENAI_REQUEST_TIER = "openai.request.service_tier"
    OPENAI_RESPONSE_TIER = "openai.response.service_tier"
    OPENAI_FINGERPRINT = "openai.response.system_fingerprint"
    SERVER_ADDRESS = "server.address"
    SERVER_PORT = "server.port"
    ERROR_TYPE = "error.type"
    HTTP_STATUS = "http.response.status_code"

    OUTCOME = "stallwatch.outcome"
    STALLED = "stallwatch.stalled"
    STALL_PHASE = "stallwatch.stall.phase"
    STALL_WIRE = "stallwatch.stall.wire"
    STALL_LIMIT = "stallwatch.stall.limit"
    STALL_WAITED = "stallwatch.stall.waited"
    STALL_ACTION = "stallwatch.stall.action"
    STALL_COUNT = "stallwatch.stalls"
    CHUNKS = "stallwatch.chunks"
    HEARTBEATS = "stallwatch.heartbeats"
    TIME_TO_FIRST_TOKEN = "stallwatch.time_to_first_token"
    TIME_TO_VISIBLE = "stallwatch.time_to_visible_output"
    GAP_MAX = "stallwatch.gap.max"
    ATTEMPTS = "stallwatch.attempts"
    ATTEMPT_NUMBER = "stallwatch.attempt.number"
    ATTEMPT_ROLE = "stallwatch.attempt.role"
    ATTEMPT_RACE = "stallwatch.attempt.race"
    ATTEMPT_DURATION = "stallwatch.attempt.duration"
    RETRY_KIND = "stallwatch.retry.kind"
    RETRY_DIAGNOSIS = "stallwatch.retry.diagnosis"
    RETRY_REASON = "stallwatch.retry.reason"
    RETRY_TRANSPORT_CODE = "stallwatch.retry.transport_code"
    RETRY_DECISION = "stallwatch.retry.decision"
    RETRY_DELAY = "stallwatch.retry.delay"
    RETRY_SERVER_WAIT = "stallwatch.retry.server_wait"
    RETRY_PACED = "stallwatch.retry.paced"
    OUTPUT_CHARACTERS = "stallwatch.output.characters"
    USAGE_KNOWN = "stallwatch.usage_known"
    FALLBACK_FROM = "stallwatch.fallback.from"
    FALLBACK_TO = "stallwatch.fallback.to"
    HEDGE_RESULT = "stallwatch.hedge.result"
    HEDGE_DELAY = "stallwatch.hedge.delay"
    RUN_NAME = "stallwatch.run.name"
    CANCEL_REASON = "stallwatch.cancel.reason"
    POLICY_RULE = "stallwatch.policy.rule"
    POLICY_MODE = "stallwatch.policy.mode"
    INTERRUPT = "stallwatch.interrupt"
    BACKSTOP = "stallwatch.backstop"
    REQUEST_ID = "stallwatch.request.id"
    PHASE = "stallwatch.phase"


ATTRIBUTES: tuple[str, ...] = tuple(value for name, value in vars(Attr).items() if name.isupper())


class Event:
    """Span event names."""

    STALL = "stallwatch.stall"
    ATTEMPT = "stallwatch.attempt"
    FALLBACK = "stallwatch.fallback"
    HEDGE = "stallwatch.hedge"


EVENTS: tuple[str, ...] = tuple(value for name, value in vars(Event).items() if name.isupper())

INTERRUPTS = ("proven", "unproven", "none")
"""How sure an abort is: at the socket, of our own call only, or only by the transport's read timeout."""

_SECONDS_TO_HOUR = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
_GAPS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
)
_LONG_GAPS = (*_GAPS, 1800.0, 3600.0)
_TOKENS = tuple(float(4**power) for power in range(14))

_CALL = (Attr.OPERATION, Attr.PROVIDER, Attr.REQUEST_MODEL)


class Instrument(StrEnum):
    """Instrument kinds."""

    HISTOGRAM = "histogram"
    COUNTER = "counter"
    GAUGE = "observable_gauge"
    UP_DOWN = "observable_up_down_counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One instrument: what it measures and with which attributes."""

    name: str
    kind: Instrument
    unit: str
    description: str
    attributes: tuple[str, ...] = _CALL
    buckets: tuple[float, ...] | None = None


def _histogram(
    name: str, description: str, *extra: str, unit: str = "s", buckets: tuple[float, ...]
) -> MetricSpec:
    return MetricSpec(
        name=name,
        kind=Instrument.HISTOGRAM,
        unit=unit,
        description=description,
        attributes=(*_CALL, *extra),
        buckets=buckets,
    )


DURATION = _histogram(
    "gen_ai.client.operation.duration",
    "Duration of a logical call, all attempts included, until its response was read or it ended otherwise.",
    Attr.ERROR_TYPE,
    buckets=_SECONDS_TO_HOUR,
)
TIME_TO_FIRST_CHUNK = _histogram(
    "gen_ai.client.operation.time_to_first_chunk",
    "Time from the request to the first chunk of any kind, role and empty chunks included.",
    buckets=_SECONDS_TO_HOUR,
)
TIME_PER_OUTPUT_CHUNK = _histogram(
    "gen_ai.client.operation.time_per_output_chunk",
    "Server wait between two chunks that carried progress; the reader's own pauses are not part of it.",
    buckets=_LONG_GAPS,
)
TOKEN_USAGE = _histogram(
    "gen_ai.client.token.usage",
    "Tokens as the server reported them; no sample when it reported none.",
    Attr.TOKEN_TYPE,
    unit="{token}",
    buckets=_TOKENS,
)
TIME_TO_FIRST_TOKEN = _histogram(
    "stallwatch.time_to_first_token",
    "Time from the request to the first generated output, reasoning included; role, empty and usage chunks are not.",
    buckets=_SECONDS_TO_HOUR,
)
LONGEST_GAP = _histogram(
    "stallwatch.stream.longest_gap",
    "Longest server wait without progress of a stream, the one that ended in a stall included.",
    buckets=_LONG_GAPS,
)
ATTEMPT_DURATION = _histogram(
    "stallwatch.attempt.duration",
    "Duration of an attempt, from its request to the end of its response or its failure.",
    Attr.OUTCOME,
    Attr.RETRY_KIND,
    Attr.RETRY_DIAGNOSIS,
    buckets=_SECONDS_TO_HOUR,
)
STALL_WAIT = _histogram(
    "stallwatch.stall.wait",
    "Wait that was judged a stall.",
    Attr.STALL_PHASE,
    buckets=_LONG_GAPS,
)
STALLS = MetricSpec(
    name="stallwatch.stalls",
    kind=Instrument.COUNTER,
    unit="{stall}",
    description="Waits that passed their deadline.",
    attributes=(*_CALL, Attr.STALL_PHASE, Attr.STALL_WIRE, Attr.STALL_ACTION),
)
STREAMS = MetricSpec(
    name="stallwatch.streams",
    kind=Instrument.COUNTER,
    unit="{stream}",
    description="Streams that ended, by outcome.",
    attributes=(*_CALL, Attr.OUTCOME),
)
RETRIES = MetricSpec(
    name="stallwatch.retries",
    kind=Instrument.COUNTER,
    unit="{retry}",
    description="Failed attempts, by what was decided: to try again, to fall back, or why neither.",
    attributes=(*_CALL, Attr.ATTEMPT_ROLE, Attr.RETRY_KIND, Attr.RETRY_DIAGNOSIS, Attr.RETRY_DECISION),
)
HEDGES = MetricSpec(
    name="stallwatch.hedges",
    kind=Instrument.COUNTER,
    unit="{hedge}",
    description="Races of a second attempt against a slow first one, by how they went for the second.",
    attributes=(*_CALL, Attr.HEDGE_RESULT),
)
STREAMS_ACTIVE = MetricSpec(
    name="stallwatch.streams.active",
    kind=Instrument.UP_DOWN,
    unit="{stream}",
    description="Streams open now.",
)
STREAMS_SILENT = MetricSpec(
    name="stallwatch.streams.silent",
    kind=Instrument.UP_DOWN,
    unit="{stream}",
    description="Streams open now whose reader has waited longer than 10 s without progress.",
    attributes=(*_CALL, Attr.PHASE),
)
OLDEST_WAIT = MetricSpec(
    name="stallwatch.stream.oldest_wait",
    kind=Instrument.GAUGE,
    unit="s",
    description="Longest wait without progress among the streams open now.",
)

METRICS = (
    DURATION,
    TIME_TO_FIRST_CHUNK,
    TIME_PER_OUTPUT_CHUNK,
    TOKEN_USAGE,
    TIME_TO_FIRST_TOKEN,
    LONGEST_GAP,
    ATTEMPT_DURATION,
    STALL_WAIT,
    STALLS,
    STREAMS,
    RETRIES,
    HEDGES,
    STREAMS_ACTIVE,
    STREAMS_SILENT,
    OLDEST_WAIT,
)

VALUES: dict[str, tuple[str, ...]] = {
    Attr.OUTCOME: tuple(Outcome),
    Attr.STALL_PHASE: tuple(phase for phase in Phase if phase is not Phase.DONE),
    Attr.STALL_WIRE: tuple(Wire),
    Attr.STALL_ACTION: tuple(StallAction),
    Attr.PHASE: tuple(Phase),
    Attr.INTERRUPT: INTERRUPTS,
    Attr.TOKEN_TYPE: ("input", "output"),
    Attr.ATTEMPT_ROLE: tuple(AttemptRole),
    Attr.ATTEMPT_RACE: tuple(RaceResult),
    Attr.RETRY_KIND: tuple(FailureKind),
    Attr.RETRY_DIAGNOSIS: tuple(Diagnosis),
    Attr.RETRY_REASON: tuple(FailureReason),
    Attr.RETRY_DECISION: tuple(RetryDecision),
    Attr.HEDGE_RESULT: tuple(HedgeResult),
}
"""The closed value lists."""

SILENT_AFTER = 10.0
"""Seconds of waiting without progress from which a stream counts as silent."""

STALL_EVENT_CAP = 8
"""Stall events kept on one span; the count attribute stays exact."""

ATTEMPT_EVENT_CAP = 16
"""Attempt events kept on one span, and as many of fallbacks and hedges together; the count attribute stays exact."""
