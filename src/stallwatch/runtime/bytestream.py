"""The byte seam: a transparent proxy of a response's byte stream.

It sees every body byte, comments included, and every close, whichever path closes. Where nothing above it reads
events (raw lines or bytes), it is also the guard: then each piece of the body is the unit of waiting. It must be an
instance of the HTTP library's own stream base class, which that library checks; the base is found in the inner
stream's ancestry, so that no HTTP library is ever imported here.

As long as nothing has been handed on, a failed attempt can be followed by another under the same response: the request
is sent again and the new body read in place of the old one, so that no object the user holds changes. See ``splicing``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from types import NoneType
from typing import Any

import anyio

from stallwatch.clock import monotonic
from stallwatch.core.chunks import VISIBLE, only_comments
from stallwatch.core.words import Outcome
from stallwatch.runtime import sweeper, task_waiter, waker
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.settling import cause_of, settle
from stallwatch.runtime.splicing import AsyncSplice, SyncSplice
from stallwatch.runtime.waiter import Waiter

__all__ = ["guarded_bytes"]


_CLOSING = 0.1
"""Seconds that closing a body whose reading has failed may take; the error waits for it."""


class _Proxy:
    """What both kinds of proxy share: they look like the stream they stand for."""

    _run: InFlight
    _body: Any
    """The splice of either kind."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body.inner, name)

    def _took(self, data: bytes | None) -> None:
        """A reader of raw bytes gets ``data``, and waits no more; comments are bytes, but no chunk; None is the end."""
        if data is None:
            self._end()
        elif self._body.event_stream and only_comments(data):
            self._run.tracker.on_pause(monotonic())
        else:
            self._run.on_facts(VISIBLE)

    def _end(self) -> None:
        """The body is over, for a reader of raw bytes; raises if it only ended because the run was cancelled."""
        run = self._run
        if run.cancelled and not run.ended and not run.tracker.whole:
            # A body that only the end of its connection delimits ends cleanly when the socket is shut down.
            run.end(Outcome.CANCELLED)
            raise run.cancel_error()
        run.end_of_body()

    def _closed(self, *, inside: bool) -> None:
        """The response is closed; ``inside`` when it was the waiting reader itself that closed it."""
        run = self._run
        if inside or run.ended or run.resending:
            # The guard that waits sees how it ended and says so.
            return
        if run.orphaned:
            # Possibly inside a finaliser: only the sweep may speak to telemetry.
            sweeper.orphan(run, None)
            return
        # What is no Exception is a cancel, of whichever event loop, or an end of the whole program.
        left_by = sys.exc_info()[1]
        cancelled = not isinstance(left_by, (Exception, GeneratorExit, NoneType))
        # Or the task that reads has been cancelled, and is still giving its body up.
        waiter = run.waiter
        run.end_by_close(cancelled=cancelled or (isinstance(waiter, Waiter) and waiter.cancelled_by_user))


class SyncProxy(_Proxy):
    """The proxy of a synchronous byte stream."""

    def __init__(self, inner: Any, run: InFlight, **options: Any) -> None:
        self._run = run
        self._body: SyncSplice = SyncSplice(inner, run, **options)

    def __iter__(self) -> Iterator[bytes]:
        run, body = self._run, self._body
        tracker = run.tracker
        try:
            while True:
                if run.ended or tracker.waiting:
                    # A guard above waits; it tells how this ends.
                    piece = body.read()
                    if piece is None:
                        return
                    yield piece
                    if not body.settled:
                        continue
                    for piece in body.pieces:
                        run.on_bytes(piece)
                        yield piece
                        if run.scope is not None or (tracker.wait_from is None and tracker.outcome is None):
                            # It may be cancelled, or the reader has changed.
                            break
                    continue
                data = self._read_alone()
                if data is None:
                    return
                yield data
        except Exception:
            # Not every transport gives up a body whose reading has failed, and not every release of the SDK closes it.
            body.abandon()
            raise
        finally:
            body.leave()

    def _read_alone(self) -> bytes | None:
        """Wait for bytes with no guard above; None when the body is over."""
        run = self._run
        run.waiter = threading.get_ident()
        run.wait()
        try:
            data = self._body.read()
        except BaseException as error:
            raised = settle(run, error)
            if raised is error:
                raise
            if raised is None:
                return None
            raise raised from cause_of(error)
        self._took(data)
        return data

    def close(self) -> None:
        """Close the live body, then tell how the run ended if nobody else will."""
        run = self._run
        inside = run.tracker.waiting and run.waiter == threading.get_ident()
        if inside and (run.resending or (run.shadow is not None and run.shadow.reading)):
            # The reader cannot close while it is blocked in a read: this is a signal handler of the user's.
            inside = False
        if not inside:
            run.closed = True
            if run.resending:
                # The request is being sent again, and there is no body yet that could be closed. Not woken from here:
                # this may be a signal handler in the very thread that waits.
                waker.soon(partial(waker.insist, run.wake))
        try:
            self._body.close()
        finally:
            self._closed(inside=inside)


class AsyncProxy(_Proxy):
    """The proxy of an asynchronous byte stream."""

    def __init__(self, inner: Any, run: InFlight, **options: Any) -> None:
        self._run = run
        self._body: AsyncSplice = AsyncSplice(inner, run, **options)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        run, body = self._run, self._body
        tracker = run.tracker
        try:
            guard = task_waiter.waiter_of(run)
            while True:
                if run.ended or tracker.waiting:
                    # A guard above waits; it tells how this ends.
                    piece = await body.read()
                    if piece is None:
                        return
                    if tracker.end_marked:
                        guard.look_ahead()
                    yield piece
                    if not body.settled:
                        continue
                    async for piece in body.pieces:
                        run.on_bytes(piece)
                        if tracker.end_marked:
                            guard.look_ahead()
                        yield piece
                        if run.scope is not None or (tracker.wait_from is None and tracker.outcome is None):
                            # It may be cancelled, or the reader has changed.
                            break
                    continue
                run.wait()
                try:
                    data = await guard.watched(body.read())
                except task_waiter.Quiet:
                    return
                self._took(data)
                if data is None:
                    return
                yield data
        except BaseException as error:
            await self._close_after(error)
            raise
        finally:
            await body.leave()

    def _took(self, data: bytes | None) -> None:
        """As in the synchronous case; after the end mark the watch has to look earlier than it was to."""
        super()._took(data)
        if data is not None and self._run.tracker.end_marked:
            task_waiter.waiter_of(self._run).look_ahead()

    async def _close_after(self, error: BaseException) -> None:
        """As in the synchronous case; shielded, because an enclosing scope that is cancelled would cut it short."""
        if isinstance(error, Exception) or (
            not isinstance(error, GeneratorExit) and isinstance(error, anyio.get_cancelled_exc_class())
        ):
            with anyio.move_on_after(_CLOSING, shield=True):
                await self._body.abandon()

    async def aclose(self) -> None:
        """Close the live body, then tell how the run ended if nobody else will."""
        run = self._run
        inside = run.tracker.waiting and task_waiter.is_waiting_here(run)
        if not inside:
            run.closed = True
            if run.resending:
                waker.soon(partial(waker.insist, run.wake))
        try:
            await self._body.close()
        finally:
            self._closed(inside=inside)


_KINDS: dict[type, type] = {}


def guarded_bytes(inner: Any, run: InFlight, **options: Any) -> Any:
    """Return a proxy of ``inner`` that is of the same stream family, or None when the family is unknown.

    ``options`` are those of ``Splice``.
    """
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
    return made(inner, run, **options)
