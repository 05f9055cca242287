"""One HTTP request of a run: its marks on the request, and the watch over it before its headers.

``extensions`` is the one place that survives from the SDK's request into the HTTP library and on to
``response.request``; the run travels there. The SDK's per-request timeout is tightened, never loosened. The library's
public ``trace`` extension tells when a connection is opened and when headers are awaited: in the synchronous case the
stream is then shadowed (see ``runtime.interrupt``), because a read timeout counts from one ``recv`` to the next and
would let dripping bytes go on for ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.core.phases import Stall
from stallwatch.core.words import Mode
from stallwatch.runtime import retrying
from stallwatch.runtime.connecting import BoundedConnects
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.interrupt import BoundedReads
from stallwatch.runtime.patience import PatientReads
from stallwatch.runtime.pools import EXTENSION, is_aiohttp, pool_of, run_of, transport_for
from stallwatch.runtime.waiter import Waiter
from stallwatch.sdk import breaking
from stallwatch.sdk.current import current_run

__all__ = [
    "begin_attempt",
    "longest_silence",
    "note_transport_timeout",
    "restore_read_timeout",
    "run_of_answer",
]

_FLOOR = 0.001
"""Seconds; the least a timeout is set to."""

_EARLY = 0.005
"""Seconds; a transport may report a timeout that much before our clock has reached it."""


def run_of_answer(request: Any, client: Any) -> InFlight | None:
    """Return the run of a request that has been answered; one that no seam has seen being sent is marked only now."""
    run = run_of(request)
    sending = current_run() if run is None else None
    if sending is None or sending.attempt is not None or sending.ended:
        return run
    begin_attempt(sending, client, request, is_async=isinstance(sending.waiter, Waiter))
    return sending


def begin_attempt(run: InFlight, client: Any, request: Any, *, is_async: bool) -> None:
    """Mark ``request`` as the next attempt of ``run`` and bound it."""
    now = monotonic()
    run.tracker.on_attempt(now)
    retrying.open_attempt(run)
    run.pending = None
    run.headers_in = False
    run.tunnel = None
    run.request = request
    # It may be a new one with each attempt.
    run.secret = getattr(client, "api_key", None)
    extensions = request.extensions
    extensions[EXTENSION] = run
    if run.policy.mode is Mode.OFF:
        return
    transport, pool = _transport(client, request)
    run.interrupt = "proven" if pool is not None or is_aiohttp(transport) else _least(run)
    breaking.govern_pool(pool, is_async=is_async)
    if run.policy.mode is Mode.ENFORCE:
        multiplexed = bool(getattr(pool, "_http2", False))
        # The pools look the read timeout up anew when they begin with the body.
        timeout = extensions.get("timeout")
        _tighten(run, timeout, now, multiplexed=multiplexed, looks_again=pool is not None)
    if not is_async:
        run.break_off = partial(breaking.break_off, weakref.ref(client), request)
        if pool is not None:
            BoundedConnects.install(pool, _governing)
    theirs = extensions.get("trace")
    extensions["trace"] = (_AsyncTrace if is_async else _SyncTrace)(run, client, theirs)
    _look_ahead(run)


def _transport(client: Any, request: Any) -> tuple[Any, Any]:
    """Return the transport that ``request`` goes through, and its pool, where there are such."""
    try:
        transport = transport_for(client._client, request.url)
        return transport, pool_of(transport)
    except Exception:
        return None, None


def _tighten(run: InFlight, timeout: Any, now: float, *, multiplexed: bool, looks_again: bool) -> None:
    if not isinstance(timeout, dict):
        return
    limits = run.policy.limits
    run.read_timeout = timeout.get("read")
    due = run.tracker.due()
    left = None if due is None else max(due.at - now, _FLOOR)
    for name, limit in (
        ("connect", _smaller(limits.connect, left)),
        ("pool", left),
        ("write", left),
        ("read", left if looks_again else _for_the_whole_call(run, left)),
    ):
        # On HTTP/2 one stream's read timeout kills its neighbours on the connection.
        if not (multiplexed and name in ("read", "write")):
            timeout[name] = _smaller(timeout.get(name), limit)


def _for_the_whole_call(run: InFlight, left: float | None) -> float | None:
    """The read timeout for a transport that takes it once (those on aiohttp do): its body's reads must fit in, too."""
    if isinstance(run.waiter, Waiter) and run.waiter.task is not None:
        # The watch ends the wait for the headers; a timeout of the transport's own would cut gaps that are allowed.
        return None
    return longest_silence(run) if run.call.stream else left


def longest_silence(run: InFlight) -> float | None:
    """The longest wait for progress that any phase of a stream allows; None when none is bounded."""
    limits = run.policy.limits
    silences = [limit for limit in (limits.first_token, limits.thinking, limits.idle) if limit is not None]
    return max(silences, default=None)


def _governing() -> InFlight | None:
    """Return the run that connects now, if its connects are to be bounded or may be broken off."""
    run = current_run()
    return run if run is not None and (run.policy.mode is Mode.ENFORCE or run.wakeable) else None


def _smaller(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def note_transport_timeout(run: InFlight, error: BaseException | None) -> None:
    """If ``error`` is the transport's timeout at one of our deadlines, record the stall it stands for."""
    if run.pending is not None or error is None or "Timeout" not in type(error).__name__:
        return
    if (
        type(error).__name__ == "ConnectTimeout"
        and type(error.__cause__).__name__ == "ConnectionTimeoutError"
    ):
        # Of aiohttp, which tells nobody that it connects; the clock is set by what it says itself.
        run.tracker.on_connecting(run.tracker.attempt_started)
    found = run.tracker.judge(monotonic() + _EARLY)
    if isinstance(found, Stall):
        run.note(replace(found, waited=max(found.waited - _EARLY, found.allowed)))


def _look_ahead(run: InFlight) -> None:
    if isinstance(run.waiter, Waiter):
        run.waiter.look_ahead()


def _on_event(run: InFlight, name: str, info: dict[str, Any]) -> None:
    """Follow the connection: ``connection.connect_tcp.started`` and so on."""
    component, _, event = name.partition(".")
    if event in ("connect_tcp.started", "connect_unix_socket.started"):
        # A socket of this attempt's own, so that ending the attempt ends the connection.
        run.interrupt = "proven"
        run.tracker.on_connecting(monotonic())
        _look_ahead(run)
        _shorten(run, info)
    elif event.endswith("start_tls.started"):
        _shorten(run, info)
    elif event == "send_request_headers.started" and _is_tunnel(info):
        # To a proxy, for a tunnel: the connection is still being made, and gets what is left for that.
        run.tunnel = (run.request.extensions.get("timeout", {}).get("read"),)
    elif event == "send_request_headers.started":
        # On HTTP/2 it is governed streams that are proven; see ``runtime.http2_streams``.
        run.interrupt = "proven" if component != "http2" else _least(run)
        run.tracker.on_connected(monotonic())
        _look_ahead(run)
    elif name == "http11.receive_response_headers.started":
        _tighten_headers(run, info["request"])
    elif event == "receive_response_headers.complete" and run.tunnel is not None:
        _leave_tunnel(run, *run.tunnel)
    elif event == "receive_response_headers.complete":
        # The body of an error or a redirect is read inside the request and is no answer, however it drips.
        _, status, *_ = info["return_value"]
        run.headers_in = 200 <= status < 300
        restore_read_timeout(run, run.request)


def _leave_tunnel(run: InFlight, read_timeout: float | None) -> None:
    """The proxy has answered; what bounded the wait for it goes, and TLS with the server follows."""
    run.tunnel = None
    timeout = run.request.extensions.get("timeout")
    if run.policy.mode is Mode.ENFORCE and isinstance(timeout, dict):
        timeout["read"] = read_timeout
    if run.shadow is not None:
        run.shadow.remove()
        run.shadow = None


def _is_tunnel(info: dict[str, Any]) -> bool:
    return bool(getattr(info.get("request"), "method", None) == b"CONNECT")


def _shorten(run: InFlight, info: dict[str, Any]) -> None:
    """A connect gets what queueing left, TLS what TCP left: the library would grant each the whole timeout anew."""
    due = run.due()
    if run.policy.mode is not Mode.ENFORCE or "timeout" not in info:
        return
    if isinstance(run.pending, Stall):
        info["timeout"] = _FLOOR
    elif due is not None:
        info["timeout"] = _smaller(info["timeout"], max(due.at - monotonic(), _FLOOR))


def _tighten_headers(run: InFlight, request: Any) -> None:
    """What was computed when the attempt began counts from here on; only what connecting and sending left is due."""
    timeout, due = request.extensions.get("timeout"), run.due()
    if run.policy.mode is Mode.ENFORCE and isinstance(timeout, dict) and due is not None:
        timeout["read"] = _smaller(timeout.get("read"), max(due.at - monotonic(), _FLOOR))


def restore_read_timeout(run: InFlight, request: Any) -> None:
    """What was left for the headers must not bound the body: each of its reads would count from anew, and unjudged."""
    timeout = request.extensions.get("timeout")
    if run.policy.mode is Mode.ENFORCE and isinstance(timeout, dict):
        timeout["read"] = run.read_timeout


def _least(run: InFlight) -> str:
    """What can be said of a transport that nothing is known of: a waiting task can be ended, a thread cannot."""
    return "unproven" if isinstance(run.waiter, Waiter) else "none"


class _Trace:
    """The transport's ``trace`` callback of one attempt; it lives as long as the request, hence as an open stream."""

    __slots__ = ("_owner", "_run", "_theirs")

    def __init__(self, run: InFlight, client: Any, theirs: Callable[..., Any] | None) -> None:
        self._run = run
        # Weak: the run is listed while its stream is open, and must not keep a dropped client from closing.
        self._owner = weakref.ref(client)
        self._theirs = theirs


class _SyncTrace(_Trace):
    __slots__ = ()

    def __call__(self, name: str, info: dict[str, Any]) -> None:
        run = self._run
        try:
            _on_event(run, name, info)
            if run.wakeable:
                breaking.watch_handshake(run, self._owner(), name, info)
            if name == "http2.send_connection_init.started":
                breaking.govern_streams(self._owner(), run.request, is_async=False)
            elif name == "http11.receive_response_headers.started":
                BoundedReads.install(breaking.stream_of(self._owner(), run.request), run)
            elif name == "http11.response_closed.started" and run.shadow is not None and run.shadow.release():
                run.shadow = None
            tunnel = breaking.failed_tunnel(self._owner(), run.request, name)
            if tunnel is not None:
                tunnel.close()
        except Exception:
            pass
        if self._theirs is not None:
            self._theirs(name, info)


class _AsyncTrace(_Trace):
    __slots__ = ()

    async def __call__(self, name: str, info: dict[str, Any]) -> None:
        run = self._run
        try:
            _on_event(run, name, info)
            if name == "http2.send_connection_init.started":
                breaking.govern_streams(self._owner(), run.request, is_async=True)
            elif name == "http11.receive_response_headers.started" and run.policy.mode is Mode.ENFORCE:
                PatientReads.install(breaking.stream_of(self._owner(), run.request), run)
            elif name == "http11.response_closed.started" and run.shadow is not None:
                run.shadow.remove()
                run.shadow = None
            tunnel = breaking.failed_tunnel(self._owner(), run.request, name)
            if tunnel is not None:
                await tunnel.aclose()
        except Exception:
            pass
        if self._theirs is not None:
            await self._theirs(name, info)
