"""The private names of the HTTP library by which one stream of an HTTP/2 connection can be ended.

No public call resets a stream: closing a response leaves it open at the server, and it holds one of the connection's
slots for good. So its connection is governed over the names below. They have been the same in all releases of httpcore
1.x and httpcore2 that were looked at; where one is missing the feature is off, told by one warning, and our own call is
all that could be ended.
"""

from __future__ import annotations

from typing import Any

from stallwatch.logs import log

__all__ = ["missing_names", "tell_missing"]

_METHODS = (
    "_read_incoming_data",
    "_receive_stream_event",
    "_response_closed",
    "_send_request_headers",
    "_wait_for_outgoing_flow",
    "_write_outgoing_data",
    "handle_request",
)
_ATTRIBUTES = ("_connection_error", "_events", "_h2_state", "_network_stream", "_read_lock", "_state_lock")

_told: list[bool] = []


def missing_names(kind: Any) -> list[str]:
    """Return what a class of HTTP/2 connections lacks; empty when its streams can be ended one by one."""
    made = getattr(getattr(kind.__init__, "__code__", None), "co_names", ())
    methods = (name.replace("handle_", "handle_async_") if _is_async(kind) else name for name in _METHODS)
    lacking = [name for name in methods if not callable(getattr(kind, name, None))]
    return lacking + [name for name in _ATTRIBUTES if name not in made]


def _is_async(kind: Any) -> bool:
    return hasattr(kind, "handle_async_request")


def tell_missing(kind: type, lacking: list[str]) -> None:
    """Say once that streams of this kind of connection cannot be ended one by one."""
    if not _told:
        _told.append(True)
        log.warning(
            "stallwatch: %s.%s has no %s, so a silent call on HTTP/2 cannot be ended by itself: a synchronous one "
            "waits for its own timeout, and the server is not told of an asynchronous one",
            kind.__module__,
            kind.__name__,
            ", ".join(lacking),
        )
