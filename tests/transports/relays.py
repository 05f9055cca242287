"""What stands between a client and the gateway: proxies that tunnel, and a Unix socket; bytes pass as they come."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

from transports.loop_thread import LoopThread

__all__ = ["TunnelProxy", "UnixRelay"]


class _Relay(LoopThread):
    """Passes bytes on to a port of 127.0.0.1, and the end of either side to the other."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._target = port
        self._tasks: set[asyncio.Task[Any]] = set()

    async def _join(self, reader: asyncio.StreamReader, writer: Any, first: bytes = b"") -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        try:
            far_writer.write(first)
            pumps = [
                asyncio.ensure_future(_pump(reader, far_writer)),
                asyncio.ensure_future(_pump(far_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
        finally:
            for each in (writer, far_writer):
                each.transport.abort() if each is writer else each.close()


class UnixRelay(_Relay):
    """A Unix socket in front of a port."""

    def __init__(self, port: int, path: Path) -> None:
        super().__init__(port)
        self.path = str(path)

    async def serve(self) -> Any:
        """Begin to listen."""
        return await asyncio.start_unix_server(self._join, self.path)


class TunnelProxy(_Relay):
    """An HTTP proxy that tunnels to one port, whatever it is asked for; spoken to in TLS if given a context.

    ``silent`` makes it answer no CONNECT; with ``deaf`` it answers and then passes nothing on.
    """

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        super().__init__(port)
        self._context = context
        self.silent = self.deaf = False
        self.asked = self.left = 0

    @property
    def url(self) -> str:
        """What a client wants as ``proxy``."""
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self.port}"

    async def serve(self) -> Any:
        """Begin to listen."""
        return await asyncio.start_server(self._tunnel, "127.0.0.1", 0, ssl=self._context)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: Any) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, OSError):
            writer.close()
            return
        self.asked += 1
        try:
            if not self.silent:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            if self.silent or self.deaf:
                with contextlib.suppress(OSError):
                    while await reader.read(65536):
                        pass
                writer.close()
            else:
                await self._join(reader, writer)
        finally:
            writer.transport.abort()
            self.left += 1


async def _pump(reader: asyncio.StreamReader, writer: Any) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
