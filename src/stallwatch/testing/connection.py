"""One client connection: bytes in, requests out, and the end of the connection noticed at once.

The loop reads all the time, also while an answer waits or is silent, so a FIN or RST shows the moment it
arrives. It is then written to the ledger and the task that answers is cancelled.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Awaitable, Callable

import h11

from stallwatch.testing.calls import Incoming
from stallwatch.testing.entries import ConnectionEntry
from stallwatch.testing.journal import Journal
from stallwatch.testing.ledger import ClosedHow

_MAX_BODY = 64 * 1024 * 1024
_MAX_HEAD = 64 * 1024
_MAX_AHEAD = 1024 * 1024

# struct linger: on, zero seconds; Windows has shorts.
_LINGER_NOT = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)

Answer = Callable[["Connection", Incoming], Awaitable[bool]]


class Connection(asyncio.Protocol):
    """Reads requests one after the other and has each answered; the answer says whether to go on."""

    def __init__(self, entry: ConnectionEntry, journal: Journal, answer: Answer) -> None:
        self.entry = entry
        self._journal = journal
        self._answer = answer
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._received = bytearray()
        self._more = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.gone = asyncio.Event()

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # With next to no buffer of our own, "sent" means that the kernel has it. Not 0: the TLS transport would
        # pause on an empty buffer and never resume.
        transport.set_write_buffer_limits(high=1, low=0)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._more.set()
        if len(self._received) > _MAX_AHEAD and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._went_away("fin")
        if self._transport is not None:
            self._transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._went_away("fin" if exc is None else "rst")
        self.gone.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _went_away(self, how: ClosedHow) -> None:
        self._journal.connection_closed(self.entry, how)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    # --- used by the exchange ---

    def write(self, data: bytes) -> None:
        # A closing transport would log a warning for what the client no longer takes.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        if not self._writable.is_set():
            await self._writable.wait()

    async def close(self) -> None:
        """Close without another byte: the client sees FIN."""
        await self.drain()
        self._journal.connection_closed(self.entry, "server")
        self._abort()

    async def reset(self) -> None:
        """Close so that the client sees RST."""
        await self.drain()
        self._journal.connection_closed(self.entry, "server")
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self._abort()

    def stop(self) -> None:
        """Drop the connection because the gateway stops."""
        self._journal.connection_closed(self.entry, "server")
        if self._task is not None:
            self._task.cancel()
        self._abort()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- the conversation ---

    async def _serve(self) -> None:
        try:
            reusable = True
            while reusable:
                incoming = await self._next_request()
                reusable = await self._answer(self, incoming)
            await self.close()
        except h11.RemoteProtocolError:
            self.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await self.close()
        except asyncio.CancelledError:
            # Only this class cancels the task, and only when the connection is gone.
            pass

    async def _next_request(self) -> Incoming:
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        head: h11.Request | None = None
        body = bytearray()
        continued = False
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                if parser.they_are_waiting_for_100_continue and not continued:
                    continued = True
                    self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                parser.receive_data(await self._read())
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MAX_BODY:
                    raise h11.RemoteProtocolError("body too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                ahead = parser.trailing_data[0]
                self._received[:0] = ahead
                return Incoming(
                    method=head.method.decode(),
                    target=head.target.decode(),
                    headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
                    body=bytes(body),
                )

    async def _read(self) -> bytes:
        while not self._received:
            self._more.clear()
            await self._more.wait()
        data = bytes(self._received)
        self._received.clear()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        return data
