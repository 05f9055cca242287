"""Ties the model calls of a web request to the client who waits for the answer: ASGI middleware.

* Each HTTP request is one run. When the client leaves before the answer is complete, the run is cancelled, so that the
  upstream requests stop. Once it is complete, nothing is cancelled, and what is called after that (background tasks)
  is outside of the run.
* A client's leaving is a message like any other, and no server tells it to who does not ask. So one task reads in the
  app's stead. It is never ahead by more than one message, or an upload would be read faster than the app wants it;
  after the last message of the body only the disconnect can follow, so there it goes on waiting.
* A request with ``Expect: 100-continue`` asks whether its body is wanted, and the server says yes as soon as somebody
  reads. There the task begins when the app first reads, or begins to answer.
* What the app raises passes as it is, with one exception: the error of a run that was cancelled because the client has
  left. Nobody would get an answer, and the server would log a traceback for every closed tab.

Websockets and lifespan pass untouched. Off asyncio (trio) no task is started: a disconnect is seen when the app reads.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

from stallwatch.asgi_inbox import Inbox, Message, Receive
from stallwatch.durations import Duration, seconds
from stallwatch.errors import RunCancelledError
from stallwatch.logs import log
from stallwatch.run import Run

__all__ = ["StallwatchMiddleware"]

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


_LEFT = "client disconnected"
_LEFT_STATUS = 499
"""Nobody gets it, but middlewares count it: nginx's number for a client that closed its request."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"})

_STREAMED = frozenset(
    {
        b"text/event-stream",
        b"application/x-ndjson",
        b"application/ndjson",
        b"application/jsonl",
        b"application/json-seq",
    }
)
"""Media types made for answers that come in pieces. Plain text cannot be told from a download, which wants buffers."""

_UNBUFFERED = (
    (b"x-accel-buffering", b"no"),
    # A proxy that compresses holds back small pieces, too; no-transform forbids it (RFC 9111, 5.2.2.6).
    (b"cache-control", b"no-cache, no-transform"),
)

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A field name (RFC 9110, 5.1)."""

_ZERO = re.compile(r"\s*\+?(0+\.?0*|\.0+)\s*(ms|s|m|h)?\s*", re.ASCII)
_SPENT = 0.001
"""Seconds: a total that is over before any call can be made; 0 would switch it off."""

_LONGEST_TEXT = 32
"""Characters of a duration that are looked at; the longest sensible one has 12."""

_told = threading.Event()


class StallwatchMiddleware:
    """Makes each HTTP request a run, which the client's leaving cancels.

    ``total`` bounds each request's model calls (wall clock from its beginning; None or 0 for no limit).
    ``deadline_header`` names a request header that holds how long the client will wait (``2.5``, ``500ms``; plain
    numbers are seconds, or milliseconds if the name ends in ``-ms``): it can shorten ``total`` and never lengthen it;
    0 means that no time is left, and what is no duration is ignored. ``no_buffering`` tells proxies not to hold back
    answers of streaming media types. Raises ValueError for a bad ``total`` or ``deadline_header``.
    """

    def __init__(
        self,
        app: App,
        *,
        total: Duration | None = None,
        deadline_header: str | None = None,
        no_buffering: bool = True,
    ) -> None:
        self.app = app
        self.total = seconds("total", total)
        self.deadline_header = _header_name(deadline_header)
        self.no_buffering = no_buffering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # The name stands on spans. A path may hold ids, the client chooses the method, so only known ones are told.
        method = scope.get("method")
        name = f"http {method}" if method in _METHODS else "http"
        total, set_by = self._limit(scope)
        run = Run(total=total, name=name)
        run.set_by = set_by
        with run:
            exchange = _Exchange(run, receive, send, no_buffering=self.no_buffering)
            if next(_values(_headers(scope), b"expect"), None) is None:
                exchange.inbox.open()
            await self._serve(scope, exchange)

    async def _serve(self, scope: Scope, exchange: _Exchange) -> None:
        inbox = exchange.inbox
        try:
            await self.app(scope, inbox.receive, exchange.send)
        except (Exception, asyncio.CancelledError) as error:
            try:
                await inbox.stop()
            except asyncio.CancelledError:
                # Nothing is waited for once the client has left, so the error goes on; it says more than the cancel.
                pass
            if not exchange.explains(error):
                raise
            await exchange.answer_nobody()
        else:
            await inbox.stop()
        finally:
            # Left without a chance to wait: the coroutine was closed, or the program is ending.
            inbox.drop()

    def _limit(self, scope: Scope) -> tuple[float | None, str]:
        """Return the total, and who has set it."""
        limits = [] if self.total is None else [(self.total, "middleware")]
        name = self.deadline_header
        if name is not None:
            given = (_duration(name, value) for value in _values(_headers(scope), name.encode("ascii")))
            limits += ((left, "header") for left in given if left is not None)
        return min(limits, default=(None, "run"))


class _Exchange:
    """One request and its answer."""

    def __init__(self, run: Run, receive: Receive, send: Send, *, no_buffering: bool) -> None:
        self.inbox = Inbox(receive, self._client_left)
        self._run = run
        self._send = send
        self._no_buffering = no_buffering
        self._begun = False
        self._trailers = False
        self._complete = False
        self._cancelled = False

    def _client_left(self) -> None:
        if not self._complete:
            self._cancelled = True
            self._run.cancel(_LEFT)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            self._trailers = bool(message.get("trailers", False))
            if self._no_buffering:
                message = _unbuffered(message)
        elif self._completes(message):
            # Before it is sent: servers tell the disconnect from here on, and that of a whole answer is none.
            self._complete = True
            self._run.__exit__(None, None, None)
        await self._send(message)
        self.inbox.open()

    def _completes(self, message: Message) -> bool:
        match message["type"]:
            case "http.response.body" | "http.response.zerocopysend":
                return not message.get("more_body", False) and not self._trailers
            case "http.response.pathsend":
                return not self._trailers
            case "http.response.trailers":
                return not message.get("more_trailers", False)
            case _:
                return False

    async def answer_nobody(self) -> None:
        """Begin and end an empty answer if there is none: some middlewares fail when an app gives none."""
        if self._begun:
            return
        try:
            await self.send({"type": "http.response.start", "status": _LEFT_STATUS, "headers": []})
            await self.send({"type": "http.response.body", "body": b""})
        except Exception:
            # Servers may refuse what is sent after a disconnect, and nobody was to read it.
            pass

    def explains(self, error: BaseException) -> bool:
        """Whether the client's leaving is all that this error says."""
        if not self._cancelled:
            return False
        if isinstance(error, ExceptionGroup):
            return all(self.explains(each) for each in error.exceptions)
        return isinstance(error, RunCancelledError) and error.reason == _LEFT


def _headers(holder: Scope | Message) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in holder.get("headers", ())]


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> Iterator[bytes]:
    """Yield the values of all headers of this name."""
    return (value for found, value in headers if found.lower() == name)


def _unbuffered(message: Message) -> Message:
    """Return the beginning of an answer, with what keeps proxies from buffering it if it comes in pieces."""
    headers = _headers(message)
    kinds = _values(headers, b"content-type")
    if next(kinds, b"").partition(b";")[0].strip().lower() not in _STREAMED:
        return message
    present = {name.lower() for name, _ in headers}
    return {**message, "headers": [*headers, *(added for added in _UNBUFFERED if added[0] not in present)]}


def _header_name(name: object) -> str | None:
    if name is None:
        return None
    if isinstance(name, str) and _TOKEN.fullmatch(name):
        return name.lower()
    raise ValueError(f"deadline_header={name!r} is not allowed: give the name of a header, or None for none")


def _duration(name: str, value: bytes) -> float | None:
    """Return the seconds that a deadline header leaves; None if it holds no duration."""
    text = value.decode("latin-1").strip()
    if len(text) > _LONGEST_TEXT:
        # Not even looked at: patterns may take their time over what a stranger makes long.
        text = ""
    if _ZERO.fullmatch(text):
        return _SPENT
    if name.endswith("-ms") and not text[-1:].isalpha():
        text += "ms"
    try:
        left = seconds(name, text)
    except ValueError:
        left = None
    if left is None and not _told.is_set():
        _told.set()
        # Without the value, which anybody on the network may choose.
        log.warning("stallwatch: header %s is no duration and was ignored; this is said once", name)
    return left
