"""One call through the SDK's ``request``: open the run, let the SDK work, hand over or end.

A response whose body is still open when ``request`` returns is handed over: the byte seam is in place since
``_process_response``, the event seam since the ``Stream`` was built, and from then on the run ends where the body
does. Everything else ends here. The span is current while the SDK sends, so that spans of the HTTP client nest in it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import openai._streaming as streaming
from openai import BaseModel

from stallwatch.clock import monotonic
from stallwatch.core.classify import Failure
from stallwatch.core.phases import Stall
from stallwatch.core.words import Mode, Phase, RetryDecision
from stallwatch.policy_blocks import call_layers
from stallwatch.runtime import registry, retrying, sweeper, waker
from stallwatch.runtime.async_guard import AsyncGuard
from stallwatch.runtime.bytestream import guarded_bytes
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.interrupt import BoundedReads
from stallwatch.runtime.pools import run_of, socket_of_body, socket_under
from stallwatch.runtime.settling import cause_of, settle
from stallwatch.runtime.sync_guard import SyncGuard
from stallwatch.runtime.task_waiter import waiter_of
from stallwatch.runtime.waiter import Broken, Waiter
from stallwatch.sdk.attempts import (
    longest_silence,
    note_transport_timeout,
    restore_read_timeout,
    run_of_answer,
)
from stallwatch.sdk.chunks import Reader, read_whole
from stallwatch.sdk.current import executing, place
from stallwatch.sdk.owners import watch_owner
from stallwatch.sdk.requests import body_of, call_of, choices_of, effort_of, endpoint_of
from stallwatch.sdk.resending import Resend, encoding_of
from stallwatch.sdk.wiring import Wiring
from stallwatch.telemetry.values import text_of

__all__ = [
    "attach_again",
    "attach_bytes",
    "attach_events",
    "call_async",
    "call_sync",
    "guard_below",
    "open_run",
]


def open_run(wiring: Wiring, client: Any, options: Any, *, stream: bool) -> InFlight | None:
    """Open the run of a call, or return None when this client is not governed or the policy is off."""
    client_policy = wiring.policy_of(client)
    if client_policy is None and not wiring.everywhere:
        return None
    endpoint, asked = endpoint_of(client), body_of(options)
    call = call_of(endpoint, options, asked, stream=stream)
    policy = wiring.resolver.resolve(
        model=call.model,
        base_url=endpoint.base_url,
        effort=effort_of(asked),
        client=client_policy,
        calls=call_layers(),
        stream=stream,
    )
    if policy.mode is Mode.OFF:
        return None
    where = place()
    run = InFlight(call, policy, wiring.recorders, choices_of(asked), None if where is None else where.leg)
    if where is not None:
        where.run = run
    if stream or run.scope is not None:
        sweeper.ensure_running()
    if run.scope is not None:
        waker.ensure_running()
    return run


def call_sync(run: InFlight, send: Callable[[], Any], attached: Callable[[], bool]) -> Any:
    """Perform a synchronous call as ``run``; ``attached`` tells whether the patches still are."""
    active = run.recorders.activate(run)
    try:
        with executing(run):
            result = send()
    except BaseException as error:
        note_transport_timeout(run, error.__cause__)
        raised = settle(run, error) or error
        if raised is error:
            raise
        raise raised from cause_of(error)
    finally:
        run.recorders.deactivate(active)
    _hand_over(run, result, attached)
    return result


async def call_async(
    run: InFlight, send: Callable[[int | None], Awaitable[Any]], attached: Callable[[], bool]
) -> Any:
    """Perform an asynchronous call as ``run``; ``send`` takes the number of retries if it is not to be the call's."""
    active = run.recorders.activate(run)
    waiter = waiter_of(run)
    waiter.before_headers = True
    try:
        result = await waiter.watched(_answered(run, waiter, send))
    finally:
        waiter.headers_are_in()
        run.recorders.deactivate(active)
        if run.ended:
            waiter.stop()
    _hand_over(run, result, attached)
    if run.ended:
        waiter.stop()
    return result


async def _answered(run: InFlight, waiter: Waiter, send: Callable[[int | None], Awaitable[Any]]) -> Any:
    """Return what the SDK's ``request`` returns; where the transport sees no timeout and the watch has to end the wait
    for headers, the SDK cannot try again, so it is done here."""
    retries: int | None = None
    while True:
        before = run.tracker.attempts if retries is not None else None
        try:
            with executing(run, before=before):
                return await waiter.breakable(send(retries))
        except (asyncio.CancelledError, Broken):
            if not await _follows(run, waiter):
                raise
        except Exception as error:
            note_transport_timeout(run, error.__cause__)
            raise
        retries = max(run.retries.allowed - run.tracker.attempts, 0)
        await anyio.sleep(0.0 if run.decided is None else run.decided.delay)


async def _follows(run: InFlight, waiter: Waiter) -> bool:
    """Tell whether another attempt follows a wait for headers that was ended by the watch."""
    stall = run.pending
    if not waiter.fired or waiter.cancelled_by_user or run.over:
        return False
    if not isinstance(stall, Stall) or stall.phase is Phase.TOTAL:
        return False
    following = retrying.after_failure(run, Failure(stalled=True), replayable=not run.call.uploads)
    return following.decision is RetryDecision.RETRY and await waiter.reclaim()


def _hand_over(run: InFlight, result: Any, attached: Callable[[], bool]) -> None:
    """The SDK's ``request`` returned: the caller waits no more, until it reads."""
    if run.ended:
        return
    if run.source is None and not isinstance(result, BaseModel) and attached():
        _attach_late(run, result)
    if run.source is None:
        run.reader = _read_result(result, generates=run.call.operation in _GENERATE)
        run.end_of_body()
        return
    run.tracker.on_pause(monotonic())
    registry.add(run)
    sweeper.ensure_running()


_GENERATE = ("chat", "text_completion", "embeddings")
"""Operations whose answer is new; a response that is fetched may be one that failed long ago."""


def _read_result(result: Any, *, generates: bool) -> Reader | None:
    try:
        if isinstance(result, BaseModel):
            return read_whole(result, generates=generates)
        raw = getattr(result, "http_response", None)
        return read_whole(result if raw is None else raw.json(), generates=generates)
    except Exception:
        return None


def _attach_late(run: InFlight, result: Any) -> None:
    """Put the byte seam under an answer that no seam has seen come, if its body is still open."""
    response = getattr(result, "http_response", None) or getattr(result, "response", None)
    if getattr(response, "is_closed", True) is False and run_of(getattr(response, "request", None)) is run:
        attach_bytes(response, None, None, bool)


def attach_bytes(response: Any, client: Any, options: Any, attached: Callable[[], bool]) -> None:
    """Put the byte seam under ``response``, whose body is still open, and bound its reads.

    ``attached`` tells whether the patches still are.
    """
    run = run_of_answer(getattr(response, "request", None), client)
    if run is None or run.ended:
        return
    _note_headers(run, response)
    if response.is_closed or response.is_stream_consumed:
        return
    kind = response.headers.get("content-type", "")
    encoding = encoding_of(response)
    again = None
    if run.call.stream and run.retries.allowed and run.policy.mode is Mode.ENFORCE and options is not None:
        again = Resend(run, client, options, response, encoding, attached)
    inner = response.stream
    proxy = guarded_bytes(
        inner,
        run,
        event_stream=kind.startswith("text/event-stream"),
        encoded=encoding != "",
        again=again,
    )
    if proxy is None:
        return
    response.stream = proxy
    _watch_body(run, response, inner)
    watch_owner(run, response, close=True)


def attach_again(response: Any, client: Any) -> None:
    """The request was sent again; its response will be read in place of the first one's body."""
    run = run_of_answer(getattr(response, "request", None), client)
    if run is not None and not run.ended:
        _note_headers(run, response)
        _watch_body(run, response, response.stream)


def _note_headers(run: InFlight, response: Any) -> None:
    run.request_id = text_of(response.headers.get("x-request-id"))
    run.status_code = response.status_code


def _watch_body(run: InFlight, response: Any, inner: Any) -> None:
    run.source = getattr(inner, "_stream", inner)
    run.survived()
    restore_read_timeout(run, response.request)
    _bound_reads(run, response)


def _bound_reads(run: InFlight, response: Any) -> None:
    extensions = response.extensions
    network = extensions.get("network_stream")
    http1 = extensions.get("http_version", b"HTTP/1.1").startswith(b"HTTP/1")
    if isinstance(run.waiter, Waiter) and run.waiter.has_watch:
        run.waiter.socket = socket_of_body(run.source) if network is None else socket_under(network)
        if http1 and run.waiter.socket is not None:
            run.interrupt = "proven"
        return
    if http1 and run.shadow is None and not isinstance(run.waiter, Waiter):
        BoundedReads.install(network, run)
    if run.shadow is None and http1:
        _rely_on_read_timeout(run, response)


def _rely_on_read_timeout(run: InFlight, response: Any) -> None:
    """Nothing to shadow: the transport's own read timeout, read anew when the body starts, is the last line."""
    silence = longest_silence(run)
    timeout = response.request.extensions.get("timeout")
    if run.policy.mode is Mode.ENFORCE and silence is not None and isinstance(timeout, dict):
        present = timeout.get("read")
        timeout["read"] = silence if present is None else min(present, silence)


def attach_events(stream: Any, *, is_async: bool) -> bool:
    """Put the event seam into a ``Stream`` the SDK has just built; True when ``guard_below`` is to be asked for it."""
    run = run_of(getattr(stream.response, "request", None))
    if run is None or run.ended:
        return False
    reader = Reader()
    run.reader = reader
    kind = AsyncGuard if is_async else SyncGuard
    goes_on_below = _goes_on_below(stream)
    if goes_on_below:
        below: Any = (streaming.AsyncStream if is_async else streaming.Stream).__stream__(stream)
        guard = vars(stream)[_BELOW] = kind(below, run, reader)
    else:
        guard = stream._iterator = kind(stream._iterator, run, reader)
    run.events = weakref.ref(guard)
    watch_owner(run, stream, close=False)
    return goes_on_below


_BELOW = "_stallwatch_events"


def _goes_on_below(stream: Any) -> bool:
    """Whether a tool has made a stream class whose own events are those of the SDK's, passed on.

    Its code shall see what the caller will see, a stall by its name, so the guard is put below it.
    """
    names = getattr(getattr(type(stream).__stream__, "__code__", None), "co_names", ())
    return "super" in names and "__stream__" in names


def guard_below(stream: Any) -> Any:
    """Return the guard that was made for the SDK's events of ``stream``, once; None when there is none."""
    return vars(stream).pop(_BELOW, None)
