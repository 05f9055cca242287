"""What an HTTP/2 connection must know to end one of its streams and leave the others alone.

A connection is shared by calls that know nothing of each other. The library has no call that resets a stream: a
response that is closed early stays open at the server, which sends on, and its slot is lost to the connection for good.
It reads for all streams under one lock, and keeps whatever goes wrong in a read for all of them, so that one call's
timeout ends every other. And whoever holds the lock may hold up an answer that has long arrived.

So the connection's class is replaced, on that one instance, by a subclass of the same name (``http2_sync``,
``http2_async``), in which

* the read lock lets a waiter pass whose own events have come, and a waiter leaves it at its own deadline;
* a read that is over for its own call alone raises in that call alone, and leaves the connection as it was;
* every stream that is closed before its end is reset, and the reset is sent at once if the socket takes it;
* a connection on which nothing at all has come while a call stalled takes no further calls, and is closed with the last
  of those it has. Else a dead connection would be given to one call after the other.

What belongs to both kinds is here. Nothing waits here.
"""

from __future__ import annotations

import contextlib
import select
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.core.phases import Stall
from stallwatch.runtime.http2_names import missing_names, tell_missing
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.pools import run_of, socket_under

__all__ = ["Streams", "governed_class", "is_writable"]

_CANCEL = 8
"""The error code by which a reset says that its stream is no longer wanted."""


class Streams:
    """The streams of one governed connection."""

    def __init__(self) -> None:
        self.requests: dict[int, Any] = {}
        """The request of each stream that is open."""
        self.entering: set[int] = set()
        """The requests, by identity, that have been given this connection and have no stream yet."""
        self.heard_at = monotonic()
        """The last instant at which anything came."""
        self.given_up = False
        """Whether the connection takes no further calls."""

    def begin(self, stream_id: int, request: Any) -> None:
        """A stream is opened for ``request``."""
        self.requests[stream_id] = request
        self.entering.discard(id(request))
        run = run_of(request)
        if run is not None:
            run.interrupt = "proven"

    def stream_of(self, run: InFlight) -> tuple[int, Any] | None:
        """Return the number and the request of a run's stream."""
        for stream_id, request in list(self.requests.items()):
            if run_of(request) is run:
                return stream_id, request
        return None

    def reset(self, connection: Any, stream_id: int) -> bool:
        """Queue the reset of a stream that is not over; False when it is, or the connection is."""
        state = connection._h2_state
        try:
            unread = sum(
                getattr(event, "flow_controlled_length", None) or 0
                for event in list(connection._events.get(stream_id) or ())
            )
            if unread:
                # Else the connection's window would shrink by what nobody reads any more, until nothing fits through.
                state.acknowledge_received_data(unread, stream_id)
            state.reset_stream(stream_id, error_code=_CANCEL)
        except Exception:
            return False
        return True

    def close(self, connection: Any, stream_id: int) -> tuple[Any, InFlight | None, bool]:
        """A stream is closed: its request, its run, and whether a reset of it is now to be sent."""
        request = self.requests.pop(stream_id, None)
        run = run_of(request)
        wanted = request is not None and self.reset(connection, stream_id)
        if run is not None and self._was_silent(run):
            self.give_up(connection)
        return request, run, wanted

    def give_up(self, connection: Any) -> None:
        """Nothing has come for too long: the connection takes no further calls."""
        self.given_up = connection._connection_error = True

    def settle(self, connection: Any, run: InFlight | None, *, sent: bool) -> bool:
        """Note how sure the end of a stream is. True when the connection is to be closed with it."""
        last = self.given_up and not connection._events and not self.entering
        if run is not None and not last and (not sent or self._was_silent(run)):
            run.interrupt = "unproven"
        return last

    def _was_silent(self, run: InFlight) -> bool:
        stall = run.pending
        return isinstance(stall, Stall) and self.heard_at <= monotonic() - stall.waited


_classes: dict[tuple[type, type], type | None] = {}


def governed_class(connection: Any, mixin: type) -> type | None:
    """Return the class that ``connection`` is to have; None when it has it, or lacks a name that is needed."""
    kind = type(connection)
    if issubclass(kind, mixin):
        return None
    if (kind, mixin) not in _classes:
        lacking = missing_names(kind)
        if lacking:
            tell_missing(kind, lacking)
            _classes[kind, mixin] = None
        else:
            _classes[kind, mixin] = type(kind.__name__, (mixin, kind), {"__module__": kind.__module__})
    return _classes[kind, mixin]


def is_writable(stream: Any) -> bool:
    """Tell whether the socket under ``stream`` takes bytes now; False when it cannot be told."""
    with contextlib.suppress(Exception):
        number = socket_under(stream).fileno()
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(number, select.POLLOUT)
            return any(events & select.POLLOUT for _, events in poll.poll(0))
        return bool(select.select([], [number], [], 0)[1])
    return False
