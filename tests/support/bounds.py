"""How exact "in time" is, and the deadlines most stories are played with."""

from __future__ import annotations

from typing import Any

__all__ = ["CLOSE_SEEN", "EARLY", "LATE", "LIMITS"]

LATE = 0.25
"""Seconds a call may end after its deadline: 0.1 s is the promise, the rest is for a busy test machine."""

EARLY = 0.02
"""Seconds a call may end before its deadline."""

CLOSE_SEEN = 0.5
"""Seconds within which the server must see the connection close."""

LIMITS: dict[str, Any] = {
    "connect": 0.25,
    "first_token": 0.35,
    "thinking": 0.3,
    "idle": 0.2,
    "total": 5.0,
    "keepalive_factor": 1,
}
"""Each phase has its own number, so that a wrong one shows."""
