"""The closed vocabularies of the package, each once.

The values are also the metric label values, so telemetry cannot drift from behaviour.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "AttemptRole",
    "Diagnosis",
    "FailureKind",
    "FailureReason",
    "HedgeResult",
    "Mode",
    "Outcome",
    "Phase",
    "RaceResult",
    "RetryDecision",
    "StallAction",
    "Wire",
]


class Phase(StrEnum):
    """Where an attempt stands; ``total`` is the run's own clock."""

    CONNECT = "connect"
    FIRST_TOKEN = "first_token"
    THINKING = "thinking"
    IDLE = "idle"
    DONE = "done"
    TOTAL = "total"


class Wire(StrEnum):
    """What the wire did during a stall."""

    DEAD_WIRE = "dead_wire"
    """No body byte arrived."""

    KEEPALIVE_ONLY = "keepalive_only"
    """Bytes arrived, but no chunk: comments or blank lines."""

    HEARTBEAT_ONLY = "heartbeat_only"
    """Chunks arrived, but none of them was progress."""


class Outcome(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    CLOSED_EARLY = "closed_early"
    ABANDONED = "abandoned"
    FAILED = "failed"


class Mode(StrEnum):
    """What the watchdog may do."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    OFF = "off"


class StallAction(StrEnum):
    """What was done about a stall."""

    ABORT = "abort"
    OBSERVE = "observe"


class FailureKind(StrEnum):
    """What sort of thing made an attempt fail."""

    CANCEL = "cancel"
    """The user ended it."""

    PROVIDER = "provider"
    """The provider's own word against this request or account: quota, content, context length, permission."""

    RATE_LIMIT = "rate_limit"
    TRANSPORT = "transport"
    """The connection, or the silence on it; a stall is of this kind."""

    CAPACITY = "capacity"
    AUTH = "auth"
    CLIENT = "client"
    SERVER = "server"
    STREAM = "stream"
    """A body that is no answer: an error frame without status, an empty, cut or foreign body."""

    UNKNOWN = "unknown"


class Diagnosis(StrEnum):
    """Whether trying again may help."""

    RETRYABLE = "retryable"
    FAIL_FAST = "fail_fast"
    UNKNOWN = "unknown"


class FailureReason(StrEnum):
    """Why, one step finer than the kind."""

    CANCELLED = "cancelled"
    STALL = "stall"
    QUOTA = "quota"
    CONTENT_FILTER = "content_filter"
    CONTEXT_LENGTH = "context_length"
    PERMANENT_CODE = "permanent_code"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    NAME_RESOLUTION = "name_resolution"
    TLS = "tls"
    PROTOCOL = "protocol"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    REQUEST_TIMEOUT = "request_timeout"
    CONFLICT = "conflict"
    BAD_REQUEST = "bad_request"
    SERVER_ERROR = "server_error"
    HTTP_STATUS = "http_status"
    ERROR_FRAME = "error_frame"
    EMPTY_STREAM = "empty_stream"
    TRUNCATED_STREAM = "truncated_stream"
    NOT_EVENT_STREAM = "not_event_stream"
    UNCLASSIFIED = "unclassified"


class RetryDecision(StrEnum):
    """What was decided after a failed attempt: to go on, or why not."""

    RETRY = "retry"
    FALLBACK = "fallback"
    """Go on with another route."""

    CANCELLED = "cancelled"
    PARTIAL_OUTPUT = "partial_output"
    """Something has reached the caller, and nothing is delivered twice."""

    FAIL_FAST = "fail_fast"
    """Trying again would give the same answer, or nobody knows that it would not."""

    RETRIES_OFF = "retries_off"
    """None are allowed: by the client, the call or the policy."""

    EXHAUSTED = "exhausted"
    """All that are allowed have been made."""

    NOT_REPLAYABLE = "not_replayable"
    """The request cannot be sent again as it was."""

    DEADLINE = "deadline"
    """The total is spent, or would be by the wait."""

    SERVER_WAIT = "server_wait"
    """The server asks for a longer wait than is ever slept."""

    BUDGET_EXHAUSTED = "budget_exhausted"
    """Too many retries on this route, in proportion to its calls."""


class AttemptRole(StrEnum):
    """Why an attempt was made."""

    FIRST = "first"
    RETRY = "retry"
    FALLBACK = "fallback"
    HEDGE = "hedge"


class RaceResult(StrEnum):
    """How an attempt came out of a race with another."""

    WINNER = "winner"
    LOSER = "loser"


class HedgeResult(StrEnum):
    """How a race of two attempts went for the hedge, which is the later one."""

    WON = "won"
    LOST = "lost"
    FAILED = "failed"
    """Both failed."""

    REFUSED = "refused"
    """Due, but not started: the share of calls that may be hedged is used up."""
