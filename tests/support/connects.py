"""HTTP clients of the library that the SDK uses: quick to make, or with connects that take as long as a test says."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import openai

from support.drivers import Driver

__all__ = ["DEAD", "http", "http_client", "quick_client", "with_connects"]

DEAD = float("inf")
"""The latency of a connect that nobody answers."""

http: Any = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]
"""The HTTP library that this release of the SDK uses."""

Latency = Callable[[int], float]
"""What the connect with this number, counted from 0, takes."""


class _Connects:
    """A network backend in place of a pool's own."""

    def __init__(self, pool: Any, latency: Latency) -> None:
        self._inner = pool._network_backend
        self._library = sys.modules[type(pool).__module__.partition(".")[0]]
        self._latency = latency
        self._number = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _next(self, timeout: float | None) -> float:
        """Return the latency of this connect, which is more than ``timeout`` when it fails."""
        self._number += 1
        latency = self._latency(self._number)
        assert timeout is not None or latency < DEAD, "nobody would end this connect"
        return latency


class _SyncConnects(_Connects):
    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:
        latency = self._next(timeout)
        if timeout is not None and latency >= timeout:
            time.sleep(timeout)
            raise self._library.ConnectTimeout("timed out")
        time.sleep(latency)
        return self._inner.connect_tcp(host, port, timeout=timeout, **options)


class _AsyncConnects(_Connects):
    async def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:
        latency = self._next(timeout)
        if timeout is not None and latency >= timeout:
            await asyncio.sleep(timeout)
            raise self._library.ConnectTimeout("timed out")
        if latency:
            await asyncio.sleep(latency)
        return await self._inner.connect_tcp(host, port, timeout=timeout, **options)


def with_connects(transport: Any, latency: Latency, *, is_async: bool) -> Any:
    """Give a transport of the HTTP library these connects, and return it."""
    kind = _AsyncConnects if is_async else _SyncConnects
    transport._pool._network_backend = kind(transport._pool, latency)
    return transport


def quick_client(*, is_async: bool, **options: Any) -> Any:
    """Make an HTTP client that trusts nobody: to load the system's authorities takes longer than most tests."""
    if is_async:
        return http.AsyncClient(transport=http.AsyncHTTPTransport(verify=False), **options)
    return http.Client(transport=http.HTTPTransport(verify=False), **options)


def http_client(driver: Driver, latency: Latency, **options: Any) -> Any:
    """Make an HTTP client for ``driver`` with these connects; ``options`` are its transport's."""
    if driver.is_async:
        transport = http.AsyncHTTPTransport(verify=False, **options)
        return http.AsyncClient(transport=with_connects(transport, latency, is_async=True))
    transport = http.HTTPTransport(verify=False, **options)
    return http.Client(transport=with_connects(transport, latency, is_async=False))
