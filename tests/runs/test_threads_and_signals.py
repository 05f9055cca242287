"""Runs across threads, signal handlers and forks, and cancels that come in the least convenient instant."""

from __future__ import annotations

import contextvars
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import stallwatch
from runs.standstills import GOOD, PATIENT
from stallwatch.run import Run, current_run
from stallwatch.runtime import waker
from stallwatch.testing import FaultGateway, Headers, RefuseHeaders, Role, Silence, Token, mute_server
from support.bounds import LATE
from support.children import spawn
from support.connects import http
from support.drivers import MESSAGES, SYNC
from support.leaks import wait_until
from support.telemetry import instrumented

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")

SILENT = [Headers(), Silence()]


def read(client: openai.OpenAI, model: str = "m") -> list[Any]:
    with client.chat.completions.create(model=model, messages=MESSAGES, stream=True) as stream:
        return list(stream)


def delivered() -> None:
    """Wait until the helper thread has done all it was told so far."""
    done = threading.Event()
    waker.soon(done.set)
    assert done.wait(2)


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Set what is done in the main thread when SIGUSR1 comes."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda act: signal.signal(signal.SIGUSR1, lambda *_: act()) and None  # type: ignore[func-returns-value]
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("played", [[RefuseHeaders()], SILENT], ids=["before headers", "silent"])
def test_one_cancel_wakes_all_threads_of_a_run_and_no_other(gateway: FaultGateway, played: list[Any]) -> None:
    gateway.script("m", played)
    gateway.script("other", [Role(), Token("a"), Silence()])
    count = 12
    with instrumented(**PATIENT) as captured, SYNC.client(gateway.base_url, max_retries=2) as client:
        with ThreadPoolExecutor(count + 1) as threads, Run() as run:
            other = client.chat.completions.create(model="other", messages=MESSAGES, stream=True)
            outside = contextvars.Context().run(
                lambda: client.chat.completions.create(model="other", messages=MESSAGES, stream=True)
            )
            assert current_run() is run
            futures = [threads.submit(run.bind(read), client) for _ in range(count)]
            gateway.wait_for(lambda ledger: len(ledger.for_model("m")) == count)
            time.sleep(0.05)
            began = time.monotonic()
            run.cancel("all")
            errors = [future.exception(5) for future in futures]
            assert time.monotonic() - began <= LATE
        assert {type(error) for error in errors} == {stallwatch.RunCancelledError}
        assert next(outside).choices[0].delta.role == "assistant"
        outside.close()
        with pytest.raises(stallwatch.RunCancelledError):
            next(other)
    outcomes = sorted(str((span.attributes or {})["stallwatch.outcome"]) for span in captured.spans)
    assert outcomes == ["cancelled"] * (count + 1) + ["closed_early"]
    assert len(gateway.ledger().for_model("m")) == count


def test_a_thread_that_is_not_bound_is_outside(gateway: FaultGateway) -> None:
    gateway.script("m", SILENT, GOOD)
    with (
        instrumented(**PATIENT),
        SYNC.client(gateway.base_url) as client,
        ThreadPoolExecutor(1) as threads,
        Run() as run,
    ):
        run.cancel("not yours")
        assert len(threads.submit(read, client, "healthy:gap=0").result(5)) == 7


class _Interrupted:
    """A lock inside which a signal comes, the first time it is taken."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._left = 1

    def __enter__(self) -> None:
        assert self._lock.acquire(timeout=2), "the handler waits for a lock of its own thread"
        self._left -= 1
        if self._left == 0:
            signal.raise_signal(signal.SIGUSR1)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_handler_may_cancel_while_its_own_thread_joins_the_run(
    gateway: FaultGateway, on_signal: Any
) -> None:
    gateway.script("m", SILENT)
    with (
        instrumented(**PATIENT) as captured,
        SYNC.client(gateway.base_url, max_retries=2) as client,
        Run() as run,
    ):
        on_signal(lambda: run.cancel("in the lock"))
        run._lock = _Interrupted(run._lock)  # type: ignore[assignment]
        with pytest.raises(stallwatch.RunCancelledError, match="in the lock"):
            read(client)
    assert gateway.ledger().requests == ()
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"


def test_a_handler_may_cancel_while_its_own_thread_cancels(on_signal: Any, monkeypatch: Any) -> None:
    run = Run()
    put = waker.soon

    def interrupted(job: Any) -> None:
        monkeypatch.setattr(waker, "soon", put)
        signal.raise_signal(signal.SIGUSR1)
        put(job)

    on_signal(lambda: run.cancel("handler"))
    with run:
        monkeypatch.setattr(waker, "soon", interrupted)
        run.cancel("first")
    assert run.reason == "first"


# Cancels that come between the look at the flag and the wait


def cancelling_client(
    base_url: str, run: Run, connections: int | None = None
) -> tuple[openai.OpenAI, list[bool]]:
    """A client that cancels the run when its request is about to be sent, and has the wake delivered there."""
    armed = [False]

    def hook(_: object) -> None:
        if armed[0]:
            run.cancel("at the last moment")
            delivered()

    limits = http.Limits(max_connections=connections)
    made = openai.DefaultHttpxClient(event_hooks={"request": [hook]}, limits=limits)
    return SYNC.client(base_url, http_client=made, max_retries=2), armed


def test_a_cancel_before_the_queue_for_a_connection_is_not_lost(gateway: FaultGateway) -> None:
    run = Run()
    client, armed = cancelling_client(gateway.base_url, run, connections=1)
    with (
        instrumented(**{**PATIENT, "first_token": 3}),
        client,
        client.chat.completions.create(model="endless:gap=0.05", messages=MESSAGES, stream=True),
    ):
        armed[0] = True
        began = time.monotonic()
        with pytest.raises(stallwatch.RunCancelledError), run:
            read(client)
        assert time.monotonic() - began <= 2 * LATE
    assert len(gateway.ledger().requests) == 1


def test_a_cancel_before_the_headers_of_a_reused_connection_is_not_lost(gateway: FaultGateway) -> None:
    gateway.script("m", [RefuseHeaders()])
    run = Run()
    client, armed = cancelling_client(gateway.base_url, run)
    with instrumented(**{**PATIENT, "first_token": 3}), client:
        client.chat.completions.create(model="healthy:gap=0", messages=MESSAGES)
        armed[0] = True
        began = time.monotonic()
        with pytest.raises(stallwatch.RunCancelledError), run:
            read(client)
        assert time.monotonic() - began <= 2 * LATE


@pytest.mark.parametrize("event", ["connect_tcp.started", "connect_tcp.complete", "start_tls.started"])
def test_a_cancel_while_connecting_is_not_lost(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshake never ends; the wake is delivered just before the wait that it is for."""
    from stallwatch.sdk import attempts

    run, on_event = Run(), attempts._on_event

    def cancelling(inflight: Any, name: str, info: Any) -> None:
        on_event(inflight, name, info)
        if name == f"connection.{event}":
            run.cancel("at the last moment")
            delivered()

    monkeypatch.setattr(attempts, "_on_event", cancelling)
    with (
        mute_server() as address,
        instrumented(**{**PATIENT, "connect": 3}),
        SYNC.client(address.tls_base_url, max_retries=2) as client,
    ):
        began = time.monotonic()
        with pytest.raises(stallwatch.RunCancelledError), run:
            read(client)
        assert time.monotonic() - began <= 2 * LATE


# Other processes

PROGRAM = """
import json, os, sys, threading, time
import openai, stallwatch
from stallwatch.testing import FaultGateway
from support.telemetry import instrumented
LIMITS = {"connect": 20, "first_token": 8, "thinking": 8, "idle": 8, "total": 60}
MESSAGES = [{"role": "user", "content": "hello"}]
def say(**facts):
    print(json.dumps(facts), flush=True)
"""

WHOLE = (
    PROGRAM
    + """
with FaultGateway() as gateway, instrumented(**LIMITS):
    client = openai.OpenAI(base_url=gateway.base_url, api_key="k", max_retries=0)
    struck = []
    def cancel():
        gateway.wait_for(lambda ledger: ledger.requests)
        time.sleep(0.1)
        struck.append(time.monotonic())
        run.cancel("stop")
    with stallwatch.Run() as run:
        threading.Thread(target=cancel).start()
        try:
            client.chat.completions.create(model="never-responds", messages=MESSAGES)
            say(error=None)
        except Exception as error:
            say(error=type(error).__name__, late=time.monotonic() - struck[0])
"""
)


def test_a_program_that_never_streams_is_cancelled_as_well() -> None:
    """Nothing but the run may be needed for the thread that wakes."""
    (said,), err = spawn(WHOLE).finish()
    assert said["error"] == "RunCancelledError", said
    assert said["late"] <= 2 * LATE
    assert err == ""


FORK = (
    PROGRAM
    + """
with FaultGateway() as gateway, instrumented(**LIMITS):
    client = openai.OpenAI(base_url=gateway.base_url, api_key="k", max_retries=0)
    with stallwatch.Run() as run:
        stream = client.chat.completions.create(model="slow:tokens=20,gap=0.05", messages=MESSAGES, stream=True)
        next(stream)
        child = os.fork()
        if child == 0:
            from stallwatch.runtime import waker
            waker.ensure_running()
            run.cancel("in the child")
            time.sleep(0.3)
            os._exit(0 if run.cancelled else 1)
        try:
            count = sum(1 for _ in stream)
            say(error=None, chunks=count, cancelled=run.cancelled)
        except Exception as error:
            say(error=repr(error))
        say(status=os.waitpid(child, 0)[1])
"""
)


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_child_cancels_nothing_of_its_parents() -> None:
    (said, status), _ = spawn(FORK).finish()
    assert said == {"error": None, "chunks": 21, "cancelled": False}
    assert status == {"status": 0}


SIGNALLED = (
    PROGRAM
    + """
import signal
where = sys.argv[1]
with FaultGateway() as gateway, instrumented(**LIMITS):
    client = openai.OpenAI(base_url=gateway.base_url, api_key="k", max_retries=2)
    with stallwatch.Run() as run:
        struck = []
        def handler(*_):
            struck.append(time.monotonic())
            run.cancel("signal")
        signal.signal(signal.SIGALRM, handler)
        def arm():
            gateway.wait_for(lambda ledger: ledger.requests, 10)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
        threading.Thread(target=arm).start()
        try:
            stream = client.chat.completions.create(model=where, messages=MESSAGES, stream=sys.argv[2] == "stream")
            for _ in stream: pass
            say(error=None)
        except Exception as error:
            say(error=type(error).__name__, late=time.monotonic() - struck[0], requests=len(gateway.ledger().requests))
"""
)


@pytest.mark.parametrize(
    "model", ["never-responds", "silent", "stall-after:tokens=2,gap=0", "error-status:code=503,retry_after=5"]
)
@pytest.mark.parametrize("kind", ["stream", "whole"])
def test_a_handler_of_the_main_thread_cancels_in_a_program_of_its_own(model: str, kind: str) -> None:
    (said,), err = spawn(SIGNALLED, model, kind).finish()
    assert said["error"] == "RunCancelledError", said
    assert said["late"] <= 2 * LATE
    assert said["requests"] == 1
    assert err == ""


def test_the_helper_thread_outlives_no_run_for_long(gateway: FaultGateway) -> None:
    with instrumented(**PATIENT), SYNC.client(gateway.base_url) as client, Run():
        client.chat.completions.create(model="healthy:gap=0", messages=MESSAGES)
    wait_until(
        lambda: "stallwatch-waker" not in {thread.name for thread in threading.enumerate()},
        lambda: "it still runs",
        4,
    )
