"""How a blocked synchronous read is ended: the reader bounds itself.

``response.extensions["network_stream"]`` is the very object an HTTP/1.1 connection reads through. Its ``read`` is
shadowed on that instance for the length of one attempt, with the smaller of the user's timeout and what the deadlines
leave. The owner thread then wakes by itself and closes by itself: no second thread, no descriptor that could have been
reused meanwhile, and the end surfaces as a timeout, which cannot look like a clean end of the body.

``close`` is shadowed with it. A close from another thread while a read is blocked would free the descriptor under the
reader, and the number may be taken by any file or socket opened next; so such a close only shuts the socket down, which
wakes the reader, and the reader closes. (The bare SDK has this hazard; shadowing cures it.) In a forked child the
socket belongs to the parent, so there a close never shuts down.

The shadows are removed before the connection goes back to its pool; the instance is then as it was.
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import socket
import threading
from typing import Any

from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.own_deadline import FLOOR, OverError, OwnDeadline, of_library

__all__ = ["BoundedReads", "is_readable", "shut_down"]

_BAD_DESCRIPTOR = OSError(errno.EBADF, os.strerror(errno.EBADF))
"""What the bare library says of a read on a closed socket."""


class BoundedReads:
    """The shadow of one network stream, for one attempt of ``run``."""

    __slots__ = (
        "_close",
        "_closed",
        "_closing",
        "_deadline",
        "_lock",
        "_read",
        "_reading",
        "_run",
        "_stream",
    )

    def __init__(self, stream: Any, run: InFlight) -> None:
        self._stream = stream
        self._run = run
        self._read = stream.read
        self._close = stream.close
        self._deadline = OwnDeadline(run)
        # Reentrant: a signal handler may close the stream while its thread is in here.
        self._lock = threading.RLock()
        self._reading = 0
        self._closing = False
        self._closed = False

    @classmethod
    def install(cls, stream: Any, run: InFlight) -> BoundedReads | None:
        """Shadow ``stream`` for ``run``; None when this is not a stream over a socket or cannot be shadowed."""
        if stream is None or not isinstance(_socket_of(stream), socket.socket):
            return None
        present = getattr(getattr(stream, "__dict__", {}).get("read"), "__self__", None)
        if isinstance(present, cls):
            present.remove()
        shadow = cls(stream, run)
        try:
            stream.read = shadow.read
            stream.close = shadow.close
        except AttributeError:
            return None
        run.shadow = shadow
        run.interrupt = "proven"
        return shadow

    @property
    def reading(self) -> bool:
        """Whether somebody is in a read just now."""
        return self._reading > 0

    def release(self) -> bool:
        """Let go of the stream before its connection is pooled; False while somebody reads, which is then closed."""
        run = self._run
        with self._lock:
            # A close in the middle of the body closes the connection, too: whoever comes to read meanwhile must meet
            # the shadow, and not the descriptor that is about to be freed.
            if self._reading or (run.closed and not run.ended):
                return False
        self.remove()
        return True

    def remove(self) -> None:
        """Make the stream what it was, unless it has been shadowed anew."""
        attributes = self._stream.__dict__
        for name, ours in (("read", self.read), ("close", self.close)):
            if attributes.get(name) == ours:
                del attributes[name]

    def wake(self) -> bool:
        """Wake the reader, for what was recorded before; False when nobody reads. The reader closes, as ever."""
        with self._lock:
            if not self._reading or self._closed:
                return False
            if not self._run.forgotten:
                shut_down(_socket_of(self._stream))
            return True

    def forget(self) -> None:
        """This is a forked child: hold nobody's lock and never shut the parent's socket down."""
        self._lock = threading.RLock()
        self._reading = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read at most until the run's deadline; raises the HTTP library's own errors."""
        with self._lock:
            closed = self._closed
            if closed:
                # By another thread, which may be about to free the descriptor: a read that began now would be on it.
                raise of_library(self._stream, "ReadError", OSError)(str(_BAD_DESCRIPTOR))
            self._reading += 1
        try:
            return self._bounded(max_bytes, timeout)
        finally:
            with self._lock:
                self._reading -= 1
                close_now = self._closing and not self._reading and not self._closed
                self._closed = self._closed or close_now
            if close_now:
                self._close()

    def close(self) -> None:
        """Close now, or wake the reader and let it close."""
        with self._lock:
            if self._reading:
                self._closing = True
                wake = not self._run.forgotten
                if wake:
                    shut_down(_socket_of(self._stream))
                return
            if self._closed:
                return
            self._closed = True
        self._close()

    def _bounded(self, max_bytes: int, timeout: float | None) -> bytes:
        while True:
            try:
                mine = self._deadline.left(self._is_readable)
            except OverError:
                raise of_library(self._stream, "ReadTimeout", TimeoutError)(
                    "The read operation timed out"
                ) from None
            if mine is None or (timeout is not None and timeout <= mine):
                return self._plain(max_bytes, timeout)
            try:
                return self._plain(max_bytes, mine)
            except Exception as error:
                if type(error).__name__ != "ReadTimeout":
                    raise
                # Ours, not the user's: judge it in the next turn.
                timeout = None if timeout is None else max(timeout - mine, FLOOR)

    def _is_readable(self) -> bool:
        return is_readable(_socket_of(self._stream))

    def _plain(self, max_bytes: int, timeout: float | None) -> bytes:
        data: bytes = self._read(max_bytes, timeout=timeout)
        run = self._run
        if run.headers_in and run.source is None and not run.ended:
            run.on_bytes_below(data)
        return data


def _socket_of(stream: Any) -> Any:
    return stream.get_extra_info("socket")


def shut_down(sock: socket.socket) -> None:
    """Wake whoever is blocked on ``sock``, and let the server see the end; its owner closes it."""
    try:
        if hasattr(socket.socket, "shutdown"):
            # The plain method also for TLS: SSLSocket's own would speak the protocol, and block.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        else:
            # eventlet's class has no methods of that kind; its objects hold the socket proper.
            _socket.socket.shutdown(sock.fd, socket.SHUT_RDWR)  # type: ignore[attr-defined]
    except OSError:
        # Not connected any more: the reader wakes anyway.
        pass


def is_readable(sock: Any) -> bool:
    """Tell whether bytes (or an end) lie in the kernel for ``sock``, without reading; False when it cannot be told."""
    pending = getattr(sock, "pending", None)
    try:
        if pending is not None and pending():
            return True
        number = sock.fileno()
        if number < 0:
            return False
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(number, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([number], [], [], 0)[0])
    except (AttributeError, OSError, ValueError):
        return False
