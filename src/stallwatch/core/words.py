"""The closed vocabularies of the package, each once.

The values are also the metric label values, so telemetry cannot drift from behaviour.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Mode", "Outcome", "Phase", "StallAction", "Wire"]


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
