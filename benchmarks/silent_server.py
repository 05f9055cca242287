"""A server that answers every stream with a few chunks and then says nothing: ``python -m benchmarks.silent_server``.

It keeps thousands of connections in one process for next to nothing, which the fault gateway, with its ledger of
everything, is not made for. ``GET /open`` tells how many streams are open. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.feed import answer

SPOKEN = 3
"""Chunks that each stream gets."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Silent(asyncio.Protocol):
    """One connection: a request, the beginning of an answer, silence."""

    open = 0

    def __init__(self) -> None:
        self._received = b""
        self._streaming = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once a request is whole."""
        assert self._transport is not None
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._received = b""
        if head.startswith(b"GET"):
            told = str(Silent.open).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told))
            return
        Silent.open += 1
        self._streaming = True
        self._transport.write(HEAD + BODY)

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone."""
        Silent.open -= self._streaming


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


BODY = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in answer(SPOKEN)[:SPOKEN])


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Silent, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    from benchmarks.limits import allow_many_files

    allow_many_files()
    asyncio.run(_serve())
