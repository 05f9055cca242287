"""A server that sends one known answer and breaks it at one known byte; the path of the request says how and where.

It stands for a network between a server and its client: what it sends is what a server has sent, up to the byte at
which the network does something to it. The answers are fixed, so that two clients get the same bytes.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ANSWERS", "ByteServer", "byte_server"]


def _chunk(text: str) -> bytes:
    body = text.encode()
    return b"%x\r\n%b\r\n" % (len(body), body)


_STREAM = b"".join(
    (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n",
        b"transfer-encoding: chunked\r\n\r\n",
        # A character of two bytes, so that a cut may fall into one.
        _chunk('data: {"id":"a","choices":[{"index":0,"delta":{"content":"é"}}]}\n\n'),
        _chunk('data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'),
        _chunk("data: [DONE]\n\n"),
        b"0\r\n\r\n",
    )
)
_JSON = (
    '{"id":"a","choices":[{"index":0,"message":{"role":"assistant","content":"é"},"finish_reason":"stop"}]}'
)
_PLAIN = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
    % (len(_JSON.encode()), _JSON.encode())
)

ANSWERS = {"stream": _STREAM, "plain": _PLAIN}

_PATH = re.compile(rb"POST /(\w+)/(\w+)/(\d+)/(\d+)/")
_LINGER_NOT = struct.pack("ii", 1, 0)


class ByteServer:
    """Serves in a thread of its own until stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stallwatch-fault-gateway-bytes")
        self._thread.start()
        self._server: Any = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000), self._loop
        ).result(5)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def base_url(self, answer: str, fault: str, at: int, pause_ms: int = 0) -> str:
        """What a client wants as ``base_url``: the answer, what happens to it, at which byte, after which pause."""
        return f"http://127.0.0.1:{self.port}/{answer}/{fault}/{at}/{pause_ms}"

    def stop(self) -> None:
        """Drop everything."""
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _drop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if length := re.search(rb"content-length: (\d+)", head.lower()):
                await reader.readexactly(int(length[1]))
            asked = _PATH.match(head)
            assert asked is not None, head
            answer, fault = ANSWERS[asked[1].decode()], asked[2].decode()
            await _FAULTS[fault](reader, writer, answer, int(asked[3]), int(asked[4]) / 1000)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            # After `_reset` this resets the connection.
            writer.close()


async def _split(_: Any, writer: Any, answer: bytes, at: int, pause: float) -> None:
    writer.write(answer[:at])
    await writer.drain()
    await asyncio.sleep(pause)
    writer.write(answer[at:])
    await writer.drain()


async def _drip(_: Any, writer: Any, answer: bytes, at: int, pause: float) -> None:
    for start in range(0, len(answer), at):
        writer.write(answer[start : start + at])
        await writer.drain()
        await asyncio.sleep(pause)


async def _truncate(_: Any, writer: Any, answer: bytes, at: int, __: float) -> None:
    writer.write(answer[:at])
    await writer.drain()


async def _reset(_: Any, writer: Any, answer: bytes, at: int, pause: float) -> None:
    writer.write(answer[:at])
    await writer.drain()
    # What lies unread in the client's kernel is lost when a reset comes.
    await asyncio.sleep(pause)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)


async def _halt(reader: Any, writer: Any, answer: bytes, at: int, __: float) -> None:
    writer.write(answer[:at])
    await writer.drain()
    await reader.read()


_FAULTS: dict[str, Any] = {
    "split": _split,
    "drip": _drip,
    "truncate": _truncate,
    "reset": _reset,
    "halt": _halt,
}


@contextmanager
def byte_server() -> Iterator[ByteServer]:
    """A server for the length of the block."""
    server = ByteServer()
    try:
        yield server
    finally:
        server.stop()
