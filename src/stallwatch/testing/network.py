"""Addresses that fail before HTTP begins: refused, never accepted, accepted but mute."""

from __future__ import annotations

import select
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

# Linux drops the SYN of a full queue silently; a connect to a queue with room on loopback takes well under this.
_CERTAINLY_PENDING = 0.2
_MAX_FILLERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to connect to."""

    host: str
    port: int

    @property
    def base_url(self) -> str:
        """What an OpenAI client wants as ``base_url``."""
        return f"http://{self.host}:{self.port}/v1"

    @property
    def tls_base_url(self) -> str:
        """The same for a client that begins with TLS."""
        return f"https://{self.host}:{self.port}/v1"


def _bound(stack: ExitStack, host: str) -> tuple[socket.socket, Address]:
    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    sock.bind((host, 0))
    return sock, Address(host=host, port=sock.getsockname()[1])


@contextmanager
def refusing_address(host: str = "127.0.0.1") -> Generator[Address]:
    """Give an address where every connect is refused; the port stays reserved meanwhile."""
    with ExitStack() as stack:
        _, address = _bound(stack, host)
        yield address


@contextmanager
def unaccepting_server(host: str = "127.0.0.1") -> Generator[Address]:
    """Give an address where a connect never completes: the queue of waiting connections is full.

    Raises `RuntimeError` on systems that let every connect through.
    """
    with ExitStack() as stack:
        listener, address = _bound(stack, host)
        listener.listen(0)
        for _ in range(_MAX_FILLERS):
            filler = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            filler.setblocking(False)
            filler.connect_ex((address.host, address.port))
            _, connected, _ = select.select([], [filler], [], _CERTAINLY_PENDING)
            if not connected:
                break
        else:
            raise RuntimeError(f"this system still accepts after {_MAX_FILLERS} unanswered connections")
        yield address


@contextmanager
def mute_server(host: str = "127.0.0.1") -> Generator[Address]:
    """Give an address where connects succeed and nothing is ever read or said, so that a TLS handshake stalls."""
    with ExitStack() as stack:
        listener, address = _bound(stack, host)
        # The kernel completes connects on its own; nobody needs to accept.
        listener.listen(128)
        yield address
