"""An HTTP/2 server in front of a fault gateway: each stream is a request of its own to the gateway.

What the gateway plays comes through piece by piece, and a stream that is reset closes its connection to the gateway, so
that scenarios and the ledger mean on HTTP/2 what they mean on HTTP/1.1. What only HTTP/2 has is told here: which
streams were reset and how, and which connections stand.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import h11

from transports.loop_thread import LoopThread

__all__ = ["CANCEL", "H2Front"]

CANCEL = 8
"""The error code of a stream that is no longer wanted."""

_HOP = {"connection", "transfer-encoding", "keep-alive", "host"}


@dataclass
class Seen:
    """What the server saw."""

    connections: int = 0
    closed: int = 0
    streams: int = 0
    done: int = 0
    """Streams that were answered to their end."""
    resets: list[int] = field(default_factory=list)
    """The error codes of the streams that the client reset."""
    most_at_once: int = 0


class H2Front(LoopThread):
    """The server; ``deaf`` makes it neither read nor write any more, as a dead wire would; with
    ``keeps_windows_shut`` it takes no more of a request than what may be sent unasked."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None, max_streams: int = 100) -> None:
        super().__init__()
        self._upstream = port
        self._context = context
        if context is not None:
            context.set_alpn_protocols(["h2"])
        self.max_streams = max_streams
        self.seen = Seen()
        self.deaf = False
        self.keeps_windows_shut = False
        self.live: set[_Connection] = set()

    @property
    def base_url(self) -> str:
        """What a client wants as ``base_url``."""
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self.port}/v1"

    async def serve(self) -> asyncio.AbstractServer:
        """Begin to listen."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, ssl=self._context)

    def go_away(self) -> None:
        """Tell every connection that no further streams are taken."""
        self.call(lambda: [connection.go_away() for connection in list(self.live)])


class _Connection(asyncio.Protocol):
    def __init__(self, front: H2Front) -> None:
        self._front = front
        self._state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self._requests: dict[int, tuple[Any, bytearray]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._window = asyncio.Event()
        self._transport: Any = None
        self._left = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._front.seen.connections += 1
        self._front.live.add(self)
        # From the first frame on: to take slots back that were offered is a race in the library.
        self._state.local_settings = h2.settings.Settings(
            client=False,
            initial_values={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self._front.max_streams},
        )
        self._state.initiate_connection()
        # So that it is each stream's own window that closes.
        self._state.increment_flow_control_window(2**20)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.seen.closed += 1
        self._front.live.discard(self)
        for task in self._tasks.values():
            task.cancel()

    def go_away(self) -> None:
        self._left = True
        self._state.close_connection(last_stream_id=max(self._tasks, default=0))
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._front.deaf or self._left:
            return
        try:
            events = self._state.receive_data(data)
        except h2.exceptions.ProtocolError:
            self._flush()
            self._transport.close()
            raise
        for event in events:
            self._on(event)
        self._flush()

    def _on(self, event: Any) -> None:
        seen = self._front.seen
        if isinstance(event, h2.events.RequestReceived):
            seen.streams += 1
            self._requests[event.stream_id] = (event.headers, bytearray())
            seen.most_at_once = max(seen.most_at_once, self._state.open_inbound_streams)
        elif isinstance(event, h2.events.DataReceived):
            self._requests[event.stream_id][1].extend(event.data)
            if not self._front.keeps_windows_shut:
                self._state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            headers, body = self._requests.pop(event.stream_id)
            task = asyncio.get_running_loop().create_task(self._answer(event.stream_id, headers, bytes(body)))
            self._tasks[event.stream_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(event.stream_id, None))
        elif isinstance(event, h2.events.StreamReset):
            seen.resets.append(int(event.error_code))
            if event.stream_id in self._tasks:
                self._tasks[event.stream_id].cancel()
        elif isinstance(event, h2.events.WindowUpdated):
            self._window.set()

    def _flush(self) -> None:
        if not self._front.deaf:
            self._transport.write(self._state.data_to_send())

    async def _answer(self, stream_id: int, headers: Any, body: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._front._upstream)
        try:
            await self._relay(stream_id, headers, body, reader, writer)
        except (OSError, h11.RemoteProtocolError, h2.exceptions.ProtocolError):
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._state.reset_stream(stream_id, error_code=2)
            self._flush()
        finally:
            # Not waited for: the gateway is to see it even if this task has been cancelled.
            writer.close()

    async def _relay(
        self, stream_id: int, headers: Any, body: bytes, reader: asyncio.StreamReader, writer: Any
    ) -> None:
        upstream = h11.Connection(h11.CLIENT)
        given = {_text(name): _text(value) for name, value in headers}
        plain = [(name, value) for name, value in given.items() if name[0] != ":" and name not in _HOP]
        request = h11.Request(
            method=given[":method"], target=given[":path"], headers=[("host", "127.0.0.1"), *plain]
        )
        writer.write(upstream.send(request))
        if body:
            writer.write(upstream.send(h11.Data(data=body)))
        writer.write(upstream.send(h11.EndOfMessage()))
        while True:
            event = upstream.next_event()
            if event is h11.NEED_DATA:
                upstream.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Response):
                kept = [(_text(name), _text(value)) for name, value in event.headers]
                kept = [(name, value) for name, value in kept if name not in _HOP]
                self._state.send_headers(stream_id, [(":status", str(event.status_code)), *kept])
                self._flush()
            elif isinstance(event, h11.Data):
                await self._send(stream_id, bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._state.end_stream(stream_id)
                self._flush()
                self._front.seen.done += 1
                return

    async def _send(self, stream_id: int, data: bytes) -> None:
        while data:
            room = min(self._state.local_flow_control_window(stream_id), self._state.max_outbound_frame_size)
            if room <= 0:
                self._window.clear()
                await self._window.wait()
                continue
            self._state.send_data(stream_id, data[:room])
            data = data[room:]
            self._flush()


def _text(value: bytes | str) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
