"""The network stream under a synchronous HTTP/2 connection: several threads use it, and one of them may wait on it.

``read``, ``write`` and ``close`` of the one instance are shadowed:

* The reader waits on the socket together with a bell, and reads only when something is there; what it has read is held
  until the library asks for it.
* The timeout of a socket is one for all its users. On TLS a record may have come in part only, so there reads have a
  short timeout, and writes are repeated that were cut short by it.
* A close while others are at the socket only shuts it down, which wakes them; the last of them closes. Else the number
  of the descriptor, free to be taken by any file opened next, would be used by those still there.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.runtime.interrupt import is_readable, shut_down
from stallwatch.runtime.own_deadline import of_library
from stallwatch.runtime.pools import socket_under

__all__ = ["SharedStream"]

_PART = 0.05
"""Seconds a read waits for the rest of a TLS record before deadlines are looked at again."""


class SharedStream:
    """Shadows ``stream``, a network stream over a socket."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._read, self._close = stream.read, stream.close
        self._socket = socket_under(stream)
        self._tls = isinstance(self._socket, ssl.SSLSocket) and not hasattr(stream, "ssl_obj")
        self._held: bytes | Exception | None = None
        # Reentrant: a signal handler may close the stream in here.
        self._lock = threading.RLock()
        self._busy = 0
        self._closed = False
        self._bell: tuple[socket.socket, socket.socket] | None = None
        stream.read, stream.close = self.read, self.close
        if self._tls:
            stream.write = self.write

    # --- reading ahead, under the connection's read lock ---

    @property
    def holds(self) -> bool:
        """Whether something has been read, or has failed, that the library has not been told of."""
        return self._held is not None

    def has_bytes(self) -> bool:
        """Tell whether there is something to read."""
        return self._decrypted() or is_readable(self._socket)

    def await_bytes(self, timeout: float | None) -> bool:
        """Wait until there may be something to read; False when the bell rang first, or the time is over."""
        with self._using():
            if self._closed or self._decrypted():
                return True
            bell = self._bell
            if bell is None:
                bell = self._bell = socket.socketpair()
                for end in bell:
                    end.setblocking(False)
            found = _readable(self._socket, bell[0], timeout)
            if bell[0] in found:
                _empty(bell[0])
            return self._socket in found

    def hold(self, max_bytes: int, timeout: float | None) -> None:
        """Read what is there, for the library to ask for."""
        with self._using():
            try:
                self._held = self._read(max_bytes, _PART if self._tls else timeout)
            except Exception as error:
                if self._tls and type(error).__name__ == "ReadTimeout":
                    return
                self._held = error

    def ring(self) -> None:
        """Wake the reader, if there is one; from any thread."""
        with self._lock:
            if self._bell is not None:
                try:
                    self._bell[1].send(b"\0")
                except OSError:
                    # Full: it is ringing already.
                    pass

    def _decrypted(self) -> bool:
        try:
            incoming = getattr(self._stream, "_incoming", None)
            return bool(
                (incoming is not None and incoming.pending)
                or self._stream.get_extra_info("ssl_object").pending()
                or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending())
            )
        except (AttributeError, ValueError, OSError):
            return False

    # --- in place of the stream's own ---

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what is held, or read."""
        held, self._held = self._held, None
        if isinstance(held, Exception):
            raise held
        if held is not None:
            return held
        with self._using():
            data: bytes = self._read(max_bytes, timeout)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it; raises the library's errors."""
        if not buffer:
            return
        with self._using():
            view = memoryview(buffer)
            started = monotonic()
            while view:
                try:
                    self._socket.settimeout(timeout)
                    view = view[self._socket.send(view) :]
                except TimeoutError as error:
                    if timeout is None or monotonic() - started < timeout:
                        # A read's timeout, set between our two calls. What TLS has begun to send is sent on.
                        continue
                    raise of_library(self._stream, "WriteTimeout", TimeoutError)(str(error)) from error
                except OSError as error:
                    raise of_library(self._stream, "WriteError", OSError)(str(error)) from error
                started = monotonic()

    def close(self) -> None:
        """Close now, or wake those at the socket and let the last of them close."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._busy:
                shut_down(self._socket)
                return
        self._close_all()

    @contextmanager
    def _using(self) -> Generator[None]:
        with self._lock:
            if self._closed and not self._busy:
                raise of_library(self._stream, "ReadError", OSError)("The connection has been closed")
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1
                close_now = self._closed and not self._busy
            if close_now:
                self._close_all()

    def _close_all(self) -> None:
        bell, self._bell = self._bell, None
        self._close()
        for end in bell or ():
            end.close()


def _readable(one: socket.socket, other: socket.socket, timeout: float | None) -> list[socket.socket]:
    if not hasattr(select, "poll"):
        return select.select([one, other], [], [], timeout)[0]
    poll = select.poll()
    for each in (one, other):
        poll.register(each, select.POLLIN)
    # Rounded up: a wait that ends a moment too early is judged, and then waits again.
    ready = {number for number, _ in poll.poll(None if timeout is None else int(timeout * 1000) + 1)}
    return [each for each in (one, other) if each.fileno() in ready]


def _empty(bell: socket.socket) -> None:
    try:
        while bell.recv(64):
            pass
    except OSError:
        pass
