"""The byte seam: a transparent proxy of a response's byte stream.

It sees every body byte, comments included, and every close, whichever path closes. Where nothing above it reads
events (raw lines or bytes), it is also the guard: then each piece of the body is the unit of waiting. It must be an
instance of the HTTP library's own stream base class, which that library checks; the base is found in the inner
stream's ancestry, so that no HTTP library is ever imported here.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.core.chunks import VISIBLE, only_comments
from stallwatch.runtime import async_guard, sweeper
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.settling import cause_of, settle

__all__ = ["guarded_bytes"]

_CANCELS = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)


class _Proxy:
    """What both kinds of proxy share: they look like the stream they stand for."""

    _inner: Any
    _run: InFlight

    def __init__(self, inner: Any, run: InFlight, *, event_stream: bool) -> None:
        self._inner = inner
        self._run = run
        self._event_stream = event_stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _hand_on(self, data: bytes) -> None:
        """A reader of raw bytes gets ``data``, and waits no more; comments are bytes, but no chunk."""
        if self._event_stream and only_comments(data):
            self._run.tracker.on_pause(monotonic())
        else:
            self._run.on_facts(VISIBLE)

    def _closed(self, *, inside: bool) -> None:
        """The response is closed; ``inside`` when it was the waiting reader itself that closed it."""
        run = self._run
        if inside or run.ended:
            # The guard that waits sees how it ended and says so.
            return
        if run.orphaned:
            # Possibly inside a finaliser: only the sweep may speak to telemetry.
            sweeper.orphan(run, None)
            return
        run.end_by_close(cancelled=isinstance(sys.exc_info()[1], _CANCELS))


class SyncProxy(_Proxy):
    """The proxy of a synchronous byte stream."""

    def __iter__(self) -> Iterator[bytes]:
        run = self._run
        pieces = iter(self._inner)
        while True:
            if run.ended or run.tracker.waiting:
                # A guard above waits; it tells how this ends.
                piece = next(pieces, None)
                if piece is None:
                    return
                run.on_bytes(piece)
                yield piece
                continue
            run.waiter = threading.get_ident()
            run.wait()
            try:
                data = next(pieces)
            except StopIteration:
                run.end_of_body()
                return
            except BaseException as error:
                raised = settle(run, error)
                if raised is error:
                    raise
                if raised is None:
                    return
                raise raised from cause_of(error)
            run.on_bytes(data)
            self._hand_on(data)
            yield data

    def close(self) -> None:
        """Close the inner stream, then tell how the run ended if nobody else will."""
        run = self._run
        inside = run.tracker.waiting and run.waiter == threading.get_ident()
        if inside and run.shadow is not None and run.shadow.reading:
            # The reader cannot close while it is blocked in a read: this is a signal handler of the user's.
            inside = False
        if not inside:
            self._run.closed = True
        try:
            self._inner.close()
        finally:
            self._closed(inside=inside)


class AsyncProxy(_Proxy):
    """The proxy of an asynchronous byte stream."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        run = self._run
        pieces = aiter(self._inner)
        try:
            guard = async_guard.waiter_of(run)
            while True:
                if run.ended or run.tracker.waiting:
                    # A guard above waits; it tells how this ends.
                    piece = await anext(pieces, None)
                    if piece is None:
                        return
                    run.on_bytes(piece)
                    if run.tracker.end_marked:
                        guard.look_ahead()
                    yield piece
                    continue
                run.wait()
                try:
                    data = await guard.watched(pieces.__anext__())
                except StopAsyncIteration:
                    run.end_of_body()
                    return
                except async_guard.Quiet:
                    return
                run.on_bytes(data)
                self._hand_on(data)
                yield data
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()

    async def aclose(self) -> None:
        """Close the inner stream, then tell how the run ended if nobody else will."""
        inside = self._run.tracker.waiting and async_guard.is_waiting_here(self._run)
        if not inside:
            self._run.closed = True
        try:
            await self._inner.aclose()
        finally:
            self._closed(inside=inside)


_KINDS: dict[type, type] = {}


def guarded_bytes(inner: Any, run: InFlight, *, event_stream: bool) -> Any:
    """Return a proxy of ``inner`` that is of the same stream family, or None when the family is unknown."""
    kind = type(inner)
    made = _KINDS.get(kind)
    if made is None:
        for name, proxy in (("AsyncByteStream", AsyncProxy), ("SyncByteStream", SyncProxy)):
            base = next((each for each in kind.__mro__ if each.__name__ == name), None)
            if base is not None:
                made = _KINDS[kind] = type(f"Guarded{name}", (proxy, base), {})
                break
        else:
            return None
    return made(inner, run, event_stream=event_stream)
