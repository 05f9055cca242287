"""A web app on a real server, and browsers that leave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import uvicorn

from support.places import eventually

__all__ = ["Browser", "Wire", "served"]


@contextmanager
def served(app: Any, loop: Any = "asyncio", lifespan: Any = "off") -> Iterator[int]:
    """Serve an ASGI app from a thread and yield its port; what the server has to say goes to the loggers."""
    config = uvicorn.Config(app, port=0, loop=loop, lifespan=lifespan, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    listener = config.bind_socket()
    thread = threading.Thread(target=server.run, args=([listener],), name="uvicorn")
    thread.start()
    try:
        eventually(lambda: server.started, within=10)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
        assert not thread.is_alive(), "the server did not end"


class Wire:
    """A connection spoken to in bytes; leaving the block closes it."""

    def __init__(self, port: int) -> None:
        self.answer = b""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def asks(self, *head: str, body: bytes = b"") -> None:
        """Send a request."""
        self._socket.sendall("\r\n".join([*head, "Host: app", "", ""]).encode() + body)

    def sends(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def reads(self, what: bytes = b"data: ", count: int = 1) -> Self:
        """Read until this has come so many times since the beginning."""
        while self.answer.count(what) < count:
            more = self._socket.recv(65536)
            assert more, self.answer
            self.answer += more
        return self


class Browser(Wire):
    """One request over a connection of its own; leaving the block closes the tab."""

    def __init__(self, port: int, path: str, *headers: str) -> None:
        super().__init__(port)
        self.asks(f"GET {path} HTTP/1.1", *headers)

    @property
    def status(self) -> int:
        """The status of the answer."""
        self.reads(b"\r\n\r\n")
        return int(self.answer.split()[1])

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        head = self.reads(b"\r\n\r\n").answer.partition(b"\r\n\r\n")[0].decode("latin-1")
        pairs = (line.partition(": ") for line in head.split("\r\n")[1:])
        return {name.lower(): value for name, _, value in pairs}
