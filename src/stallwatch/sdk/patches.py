"""Where stallwatch attaches to the SDK, and how it lets go again.

The seams are the client's choke points, the same in every supported release: ``request`` (a run), ``_build_request``
(an attempt), ``_should_retry``, ``_calculate_retry_timeout`` and the sleep after it (the pause before the next),
``_process_response`` (the byte seam) and the stream classes' ``__init__`` (the event seam). Nothing users hold is
wrapped. A seam that a release lacks switches its feature off with one warning. When the patches are removed each
attribute is the original again, or what another tool has put over it; a patch buried under another tool's becomes a
plain pass-through. Where it can be, the function itself is changed (``grafting``): ``request`` is what other tools
wrap, too, and of all of them users may hold and copy bound methods, which are to be what they were.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import openai._base_client as base
import openai._streaming as streaming
from wrapt import FunctionWrapper

from stallwatch.clock import monotonic
from stallwatch.core.words import Mode
from stallwatch.foreign_errors import told_of
from stallwatch.logs import log
from stallwatch.runtime.connecting import BoundedConnects
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.retrying import may_sdk_retry
from stallwatch.sdk.attempts import begin_attempt
from stallwatch.sdk.calls import (
    attach_again,
    attach_bytes,
    attach_events,
    call_async,
    call_sync,
    guard_below,
    open_run,
)
from stallwatch.sdk.current import current_run, executing, resent_before
from stallwatch.sdk.grafting import Graft, graft
from stallwatch.sdk.sdk_retries import (
    before_back_off,
    raise_if_over,
    sleep_between,
    with_fewer_retries,
    with_retries,
)
from stallwatch.sdk.seams import carried_by
from stallwatch.sdk.wiring import Wiring

__all__ = ["Patches"]


_UNLIKE = (AttributeError, KeyError, TypeError)
"""What a release raises whose methods or parameters have other names; not what ends a call on purpose."""

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]


class Patches:
    """The patches of this process; ``install`` and ``remove`` may be called any number of times."""

    def __init__(self) -> None:
        self._installed: list[tuple[type, str, Any, Any]] = []
        self._grafts: list[tuple[type, str, Graft]] = []
        self._active = False
        self._generation = 0
        self._below: set[type] = set()
        # Reentrant: a collection may build a stream of the user's anywhere.
        self._lock = threading.RLock()
        self._sees_sending = False
        self.wiring: Wiring | None = None

    @property
    def installed(self) -> list[tuple[type, str]]:
        """The patched attributes."""
        grafted = [(owner, name) for owner, name, _ in self._grafts]
        return grafted + [(owner, name) for owner, name, _, _ in self._installed]

    def install(self, wiring: Wiring) -> None:
        """Attach, or attach with other wiring."""
        self.wiring = wiring
        if self._active:
            return
        self._active = True
        self._generation += 1
        for owner, name, wrapper in self._seams():
            if not self._graft(owner, name, wrapper):
                self._patch(owner, name, wrapper)
        self._sees_sending = (base.BaseClient, "_build_request") in self.installed

    def remove(self) -> None:
        """Let go: restore what is still ours, and pass through where somebody patched over it."""
        with self._lock:
            self._active = False
            self._below.clear()
        for owner, name, original, ours in reversed(self._installed):
            if owner.__dict__.get(name) is ours:
                setattr(owner, name, original)
        self._installed.clear()
        for _, _, made in self._grafts:
            made.remove()
        self._grafts.clear()
        BoundedConnects.remove_all()

    def _is_active(self) -> bool:
        return self._active

    def _seams(self) -> list[tuple[type, str, Wrapper]]:
        return [
            (base.SyncAPIClient, "request", self._request),
            (base.AsyncAPIClient, "request", self._request_async),
            (base.BaseClient, "_build_request", self._build_request),
            (base.BaseClient, "_should_retry", self._should_retry),
            (base.BaseClient, "_calculate_retry_timeout", self._calculate_retry_timeout),
            (base.SyncAPIClient, *self._sleeping_seam()),
            (base.SyncAPIClient, "_process_response", self._process_response),
            (base.AsyncAPIClient, "_process_response", self._process_response),
            (streaming.Stream, "__init__", self._stream_init),
            (streaming.AsyncStream, "__init__", self._async_stream_init),
        ]

    def _graft(self, owner: type, name: str, wrapper: Wrapper) -> bool:
        module = base if issubclass(owner, base.BaseClient) else streaming
        made = graft(owner.__dict__.get(name), module, wrapper)
        if made is not None:
            self._grafts.append((owner, name, made))
        return made is not None

    def _patch(self, owner: type, name: str, wrapper: Wrapper) -> None:
        original = owner.__dict__.get(name)
        if original is None:
            log.warning(
                "%s.%s is missing in this openai release, so this is off: %s",
                owner.__name__,
                name,
                carried_by(owner, name),
            )
            return
        # One of ours that another tool has buried stays inert for good: the next installation puts a new one on top.
        generation = self._generation
        ours = FunctionWrapper(
            original, wrapper, enabled=lambda: self._active and self._generation == generation
        )
        setattr(owner, name, ours)
        self._installed.append((owner, name, original, ours))

    # The wrappers

    def _open(
        self, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[InFlight | None, Any, Any]:
        try:
            options = args[1] if len(args) > 1 else kwargs["options"]
            wiring = self.wiring
            run = (
                None
                if wiring is None
                else open_run(wiring, client, options, stream=bool(kwargs.get("stream")))
            )
        except Exception as error:
            _warn_once("a call goes on unguarded", error)
            return None, args, kwargs
        if run is not None:
            if not self._sees_sending:
                # No attempt would stop the clocks of an earlier one: until there is an answer only the total runs.
                run.tracker.on_back_off(monotonic())
            try:
                args, kwargs = with_fewer_retries(run, client, options, args, kwargs)
            except Exception as error:
                _warn_once("the SDK keeps its own number of retries", error)
        return run, args, kwargs

    def _request(self, wrapped: Callable[..., Any], client: Any, args: Any, kwargs: Any) -> Any:
        if resent_before() is not None:
            return wrapped(*args, **kwargs)
        run, args, kwargs = self._open(client, args, kwargs)
        if run is None:
            if current_run() is None:
                return wrapped(*args, **kwargs)
            with executing(None):
                return wrapped(*args, **kwargs)
        return call_sync(run, lambda: wrapped(*args, **kwargs), self._is_active)

    async def _request_async(self, wrapped: Callable[..., Any], client: Any, args: Any, kwargs: Any) -> Any:
        if resent_before() is not None:
            return await wrapped(*args, **kwargs)
        run, args, kwargs = self._open(client, args, kwargs)
        if run is None:
            if current_run() is None:
                return await wrapped(*args, **kwargs)
            with executing(None):
                return await wrapped(*args, **kwargs)

        def send(retries: int | None) -> Any:
            ours, named = (args, kwargs) if retries is None else with_retries(retries, args, kwargs)
            return wrapped(*ours, **named)

        return await call_async(run, send, self._is_active)

    def _build_request(self, wrapped: Callable[..., Any], client: Any, args: Any, kwargs: Any) -> Any:
        before = resent_before()
        if before and "retries_taken" in kwargs:
            # The server is told which attempt of the run this is, whoever makes it.
            kwargs = {**kwargs, "retries_taken": kwargs["retries_taken"] + before}
        request = wrapped(*args, **kwargs)
        run = current_run()
        if run is not None:
            raise_if_over(run)
            try:
                begin_attempt(run, client, request, is_async=isinstance(client, base.AsyncAPIClient))
            except Exception as error:
                _warn_once("an attempt goes on unguarded", error)
        return request

    def _should_retry(self, wrapped: Callable[..., Any], client: Any, args: Any, kwargs: Any) -> Any:
        wanted = wrapped(*args, **kwargs)
        run = current_run()
        if run is None:
            return wanted
        try:
            response = args[0] if args else kwargs["response"]
            allowed = may_sdk_retry(run, response.headers, response.status_code)
        except Exception as error:
            _warn_once("the SDK alone says which HTTP errors are tried again", error)
            return wanted
        return wanted and (allowed or run.policy.mode is not Mode.ENFORCE)

    def _calculate_retry_timeout(
        self, wrapped: Callable[..., Any], client: Any, args: Any, kwargs: Any
    ) -> Any:
        delay = wrapped(*args, **kwargs)
        run = current_run()
        if run is None:
            return delay
        headers = args[2] if len(args) > 2 else kwargs.get("response_headers")
        return before_back_off(run, headers, delay)

    def _sleeping_seam(self) -> tuple[str, Wrapper]:
        """The SDK's wait between two attempts; releases before 1.109 send the next one in the same method."""
        methods = base.SyncAPIClient.__dict__
        if "_retry_request" in methods and "_sleep_for_retry" not in methods:
            return "_retry_request", self._retry_request
        return "_sleep_for_retry", self._sleep_for_retry

    def _sleep_for_retry(self, wrapped: Callable[..., Any], client: Any, args: Any, kwargs: Any) -> Any:
        run = current_run()
        if run is None or not run.wakeable or args:
            return wrapped(*args, **kwargs)
        try:
            options, response = kwargs["options"], kwargs["response"]
            left = kwargs["max_retries"] - kwargs["retries_taken"]
            headers = None if response is None else response.headers
            delay = client._calculate_retry_timeout(left, options, headers)
        except _UNLIKE as error:
            return _sleeps_unwoken(error, wrapped, args, kwargs)
        sleep_between(run, delay, url=options.url, left=left)
        return None

    def _retry_request(self, wrapped: Callable[..., Any], client: Any, args: Any, kwargs: Any) -> Any:
        run = current_run()
        if run is None or not run.wakeable or len(args) != 2:
            return wrapped(*args, **kwargs)
        options, cast_to = args
        try:
            taken, headers = kwargs["retries_taken"], kwargs["response_headers"]
            left = options.get_max_retries(client.max_retries) - taken
            delay = client._calculate_retry_timeout(left, options, headers)
        except _UNLIKE as error:
            return _sleeps_unwoken(error, wrapped, args, kwargs)
        sleep_between(run, delay, url=options.url, left=left)
        return client._request(
            options=options,
            cast_to=cast_to,
            retries_taken=taken + 1,
            stream=kwargs["stream"],
            stream_cls=kwargs["stream_cls"],
        )

    def _process_response(self, wrapped: Callable[..., Any], client: Any, args: Any, kwargs: Any) -> Any:
        response = kwargs.get("response")
        if response is not None:
            try:
                if resent_before() is None:
                    attach_bytes(response, client, kwargs.get("options"), lambda: self._active)
                else:
                    attach_again(response, client)
            except Exception as error:
                _warn_once("a response goes on unguarded", error)
        return wrapped(*args, **kwargs)

    def _stream_init(self, wrapped: Callable[..., Any], stream: Any, args: Any, kwargs: Any) -> None:
        wrapped(*args, **kwargs)
        self._attach(stream, is_async=False)

    def _async_stream_init(self, wrapped: Callable[..., Any], stream: Any, args: Any, kwargs: Any) -> None:
        wrapped(*args, **kwargs)
        self._attach(stream, is_async=True)

    def _attach(self, stream: Any, *, is_async: bool) -> None:
        try:
            if attach_events(stream, is_async=is_async):
                self._go_below(streaming.AsyncStream if is_async else streaming.Stream)
        except Exception as error:
            _warn_once("a stream goes on unguarded", error)

    def _go_below(self, owner: type) -> None:
        """A tool's own stream class asks the SDK's for its events; attached only where there is one, and once."""
        with self._lock:
            if self._active and owner not in self._below:
                self._below.add(owner)
                if not self._graft(owner, "__stream__", self._stream_events):
                    self._patch(owner, "__stream__", self._stream_events)

    def _stream_events(self, wrapped: Callable[..., Any], stream: Any, args: Any, kwargs: Any) -> Any:
        guard = guard_below(stream)
        return wrapped(*args, **kwargs) if guard is None else guard


def _sleeps_unwoken(error: Exception, wrapped: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    _warn_once("a wait between two attempts is the SDK's own, which no cancel wakes", error)
    return wrapped(*args, **kwargs)


_warned: set[str] = set()


def _warn_once(what: str, error: Exception) -> None:
    """Log what is off, the first time: a failure that comes with every call must not flood the host's log."""
    if what not in _warned:
        _warned.add(what)
        log.warning("%s, and so may others: %s", what, told_of(error))
