"""The places where a call may stand and wait, each brought about by a gateway or an address that never answers."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

import stallwatch
from stallwatch.testing import (
    Comments,
    Done,
    FaultGateway,
    Finish,
    Headers,
    Ledger,
    RefuseHeaders,
    Reset,
    Role,
    Silence,
    Status,
    Step,
    Token,
    mute_server,
    unaccepting_server,
)
from support.connects import http
from support.stage import Stage

__all__ = ["GOOD", "PATIENT", "STANDSTILLS", "Blow", "Standstill", "blow", "long_back_off", "standing"]

GOOD = [Role(), Token("Hel"), Token("lo"), Finish(), Done()]
BROKEN = [Headers(), Reset()]

PATIENT: dict[str, Any] = {"connect": 20, "first_token": 20, "thinking": 20, "idle": 20, "total": 60}
"""Limits that nothing here runs into."""

LONG = 3.0
"""Seconds of a wait that is much longer than a cancel may take, and ends all the same if one is not heard."""


@dataclass(frozen=True)
class Standstill:
    """One of the places: what the gateway plays, and by what it shows that the call has come there."""

    name: str
    attempts: tuple[list[Step], ...] = ()
    there: Callable[[Ledger], object] = lambda ledger: ledger.requests
    requests: int = 1
    address: Any = None
    tls: bool = False
    queued: bool = False
    upload: int = 0
    stream: bool = True
    settle: float = 0.05
    """Seconds from there to the wait itself, which nobody outside can see."""
    chunks: int = 0
    live: bool = True
    """Whether a connection is open whose close the gateway must see."""


STANDSTILLS = (
    Standstill("connect", address=unaccepting_server, requests=0, settle=0.2, live=False),
    Standstill("tls", address=mute_server, tls=True, requests=0, settle=0.2, live=False),
    Standstill("send", address=mute_server, upload=24_000_000, requests=0, settle=0.5, live=False),
    Standstill("pool", (GOOD,), requests=0, queued=True, settle=0.15, live=False),
    Standstill("headers", ([RefuseHeaders()], GOOD)),
    Standstill("headers of a whole answer", ([RefuseHeaders()], GOOD), stream=False),
    Standstill(
        "sdk back-off",
        ([Status(503, retry_after="3")], GOOD),
        lambda ledger: ledger.requests[0].completed_at,
        live=False,
    ),
    Standstill(
        "sdk back-off of a whole answer",
        ([Status(429, retry_after="3")], GOOD),
        lambda ledger: ledger.requests[0].completed_at,
        stream=False,
        live=False,
    ),
    Standstill(
        "first token", ([Headers(), Silence()], GOOD), lambda ledger: ledger.requests[0].headers_sent_at
    ),
    Standstill("comments", ([Comments(0.02)], GOOD), lambda ledger: ledger.requests[0].count("comment") > 2),
    Standstill(
        "mid-answer",
        ([Role(), Token("a"), Silence()], GOOD),
        lambda ledger: ledger.requests[0].count("token"),
        chunks=2,
    ),
    Standstill("splice back-off", (BROKEN, GOOD), lambda ledger: ledger.requests[0].closed_how, live=False),
    Standstill(
        "headers of another attempt", (BROKEN, [RefuseHeaders()], GOOD), lambda ledger: ledger.requests[1], 2
    ),
    Standstill(
        "sdk back-off of another attempt",
        (BROKEN, [Status(503, retry_after="3")], GOOD),
        lambda ledger: ledger.requests[1].completed_at,
        2,
        live=False,
    ),
    Standstill(
        "first token of another attempt",
        (BROKEN, [Headers(), Silence()], GOOD),
        lambda ledger: ledger.requests[1].headers_sent_at,
        2,
    ),
)


@contextmanager
def long_back_off() -> Iterator[None]:
    """Make the waits between attempts so long that a cancel surely comes into one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 1.33 * LONG)
        patch.setattr("stallwatch.core.budget.LONGEST_BACK_OFF", 1.33 * LONG)
        yield


@dataclass
class Blow:
    """What strikes a call that stands still, and when it did."""

    strike: Callable[[], object]
    at: float = 0.0
    errors: list[BaseException] = field(default_factory=list)

    def __call__(self) -> None:
        self.at = time.monotonic()
        self.strike()


@contextmanager
def blow(
    how: str, strike: Callable[[], object], gateway: FaultGateway, standstill: Standstill
) -> Iterator[Blow]:
    """Strike as soon as the call stands still: from another thread, a task, or a signal handler of the main thread."""
    made, main = Blow(strike), threading.get_ident()
    before = signal.getsignal(signal.SIGUSR1)

    def watch() -> None:
        try:
            if not standstill.address and not standstill.queued:
                gateway.wait_for(standstill.there)
            time.sleep(standstill.settle)
            signal.pthread_kill(main, signal.SIGUSR1) if how == "signal" else made()
        except BaseException as error:
            made.errors.append(error)

    async def watch_async() -> None:
        if not standstill.address and not standstill.queued:
            await gateway.wait_for_async(standstill.there)
        await asyncio.sleep(standstill.settle)
        made()

    signal.signal(signal.SIGUSR1, lambda *_: made())
    try:
        if how == "task":
            task = asyncio.get_running_loop().create_task(watch_async())
            try:
                yield made
            finally:
                task.cancel()
        else:
            thread = threading.Thread(target=watch)
            thread.start()
            try:
                yield made
            finally:
                thread.join()
        assert not made.errors, made.errors
    finally:
        signal.signal(signal.SIGUSR1, before)


@asynccontextmanager
async def standing(
    stage: Stage, gateway: FaultGateway, standstill: Standstill
) -> AsyncIterator[Callable[[], Any]]:
    """Give a coroutine function that makes the call and reads it, and never comes to its end by itself."""
    with ExitStack() as stack:
        options: dict[str, Any] = {"max_retries": 2}
        base_url = gateway.base_url
        if standstill.address is not None:
            address = stack.enter_context(standstill.address())
            base_url = address.tls_base_url if standstill.tls else address.base_url
        if standstill.queued:
            kind = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
            options["http_client"] = kind(limits=http.Limits(max_connections=1))
        if standstill.attempts:
            gateway.script("m", *standstill.attempts)
        if not any(standstill.name.startswith(name) for name in ("splice",)):
            stack.enter_context(pytest.MonkeyPatch.context()).setattr(
                "stallwatch.core.budget.FIRST_BACK_OFF", 0.02
            )
        else:
            stack.enter_context(long_back_off())
        async with stage.inside(stage.client(base_url, **options)) as client:
            holder = None
            if standstill.queued:
                with stallwatch.policy(mode="off"):
                    holder = await stage.chat(client, "endless:gap=0.05")
            request: dict[str, Any] = {"stream": standstill.stream}
            if standstill.upload:
                request["messages"] = [{"role": "user", "content": "x" * standstill.upload}]

            async def call() -> None:
                stream = await stage.chat(client, "m", **request)
                if not standstill.stream:
                    return
                try:
                    await stage.all(stream)
                finally:
                    # What a caller's ``with`` does.
                    await stage.close(stream)

            try:
                yield call
            finally:
                if holder is not None:
                    await stage.close(holder)
