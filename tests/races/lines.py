"""Connections without a network: a real socket pair below the real HTTP library, read as the test allows."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable
from typing import Any

from benchmarks.feed import event, http_library

__all__ = ["ANSWER_ENDS", "FIRST", "HEAD", "Line", "SyncBackend", "core", "http"]

http: Any = http_library()
core: Any = importlib.import_module(http.__name__.replace("httpx", "httpcore"))

HEAD = b"\r\n".join(
    (
        b"HTTP/1.1 200 OK",
        b"content-type: text/event-stream",
        b"x-request-id: req_1",
        b"transfer-encoding: chunked",
        b"\r\n",
    )
)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


FIRST = _chunk(event({"role": "assistant", "content": "a"}))
ANSWER_ENDS = _chunk(event({"content": "b"}) + event({}, "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n"

Wait = Callable[[Callable[[], bool], float | None], bool]


class Line(core.NetworkStream):  # type: ignore[misc]
    """One connection: ``server`` is the far end. ``wait`` waits for a condition, at most until an instant."""

    def __init__(self, wait: Wait, now: Callable[[], float]) -> None:
        self.near, self.server = socket.socketpair()
        self.near.setblocking(False)
        self.closes = 0
        self.reading = self.waits = 0
        self.closed_under_a_read = False
        self._wait, self._now = wait, now

    def _readable(self) -> bool:
        try:
            self.near.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read as the library's own does."""
        until = None if timeout is None else self._now() + timeout
        self.reading += 1
        self.waits += 1
        try:
            if not self._wait(self._readable, until):
                raise core.ReadTimeout("The read operation timed out")
            return self.near.recv(max_bytes)
        except OSError as error:
            raise core.ReadError(str(error)) from error
        finally:
            self.reading -= 1

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Nobody looks at requests here."""

    def close(self) -> None:
        """Close, and count; a socket that is closed already is not closed again."""
        self.closes += self.near.fileno() >= 0
        self.closed_under_a_read = self.closed_under_a_read or self.reading > 0
        self.near.close()

    def get_extra_info(self, info: str) -> Any:
        """Tell what the library asks for."""
        return {"socket": self.near, "is_readable": self.closes or self._readable()}.get(info)


class SyncBackend(core.NetworkBackend):  # type: ignore[misc]
    """Connects to a server that has already answered: headers and the first event."""

    def __init__(self, wait: Wait, now: Callable[[], float]) -> None:
        self.lines: list[Line] = []
        self._wait, self._now = wait, now

    def connect_tcp(self, *_: Any, **__: Any) -> Line:
        """Connect."""
        line = Line(self._wait, self._now)
        line.server.sendall(HEAD + FIRST)
        self.lines.append(line)
        return line
