"""A signal handler may close the stream that its own thread is reading."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stallwatch
from stallwatch.runtime.interrupt import BoundedReads
from support.places import MESSAGES, Place, eventually, pool_of
from support.telemetry import instrumented

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")

STALLS = "stall-after:tokens=1,gap=0"
ENDLESS = "endless:gap=0.02"

# In the instant before the read begins a close by the reading thread looks like the reader's own, after a failure.
OUTCOMES = {"closed_early", "failed"}


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Set what is done in the main thread when SIGUSR1 comes."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda act: signal.signal(signal.SIGUSR1, lambda *_: act()) and None  # type: ignore[func-returns-value]
    signal.signal(signal.SIGUSR1, before)


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _read(stream: Any) -> BaseException | None:
    try:
        list(stream)
    except Exception as error:
        return error
    return None


def test_a_close_by_a_handler_ends_the_blocked_read(place: Place, on_signal: Any) -> None:
    main = threading.get_ident()

    def kill() -> None:
        place.gateway.wait_for(lambda ledger: ledger.requests[0].count("token"))
        eventually(lambda: shadow._reading)
        signal.pthread_kill(main, signal.SIGUSR1)

    with instrumented(first_token=20, thinking=20, idle=20) as captured, place.client() as client:
        stream = _create(client, STALLS)
        next(stream)
        next(stream)
        shadow = stream.response.extensions["network_stream"].read.__self__
        assert isinstance(shadow, BoundedReads)
        on_signal(stream.close)
        killer = threading.Thread(target=kill)
        killer.start()
        assert not isinstance(_read(stream), stallwatch.StallwatchError)
        killer.join()
        place.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))
        eventually(lambda: pool_of(client) == (0, 0))
    assert captured.attributes()["stallwatch.outcome"] == "closed_early"


class _Interrupted:
    """A lock inside which a signal comes: when it is taken for the so-many-th time."""

    def __init__(self, lock: Any, nth: int) -> None:
        self._lock = lock
        self._left = nth

    def __enter__(self) -> None:
        # A lock that is not reentrant would wait for itself for ever, and the test with it.
        assert self._lock.acquire(timeout=2), "the handler waits for a lock of its own thread"
        self._left -= 1
        if self._left == 0:
            signal.raise_signal(signal.SIGUSR1)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("nth", [1, 2], ids=["before the read", "after the read"])
def test_a_close_by_a_handler_inside_the_lock_does_not_deadlock(
    place: Place, on_signal: Any, nth: int
) -> None:
    with instrumented(first_token=20, thinking=20, idle=20) as captured, place.client() as client:
        stream = _create(client, ENDLESS)
        shadow = stream.response.extensions["network_stream"].read.__self__
        assert isinstance(shadow, BoundedReads)
        closed = []
        on_signal(lambda: (closed.append(True), stream.close()))
        shadow._lock = _Interrupted(shadow._lock, nth)
        assert not isinstance(_read(stream), (AssertionError, stallwatch.StallwatchError))
        assert closed == [True]
        place.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))
        eventually(lambda: pool_of(client) == (0, 0))
    assert captured.attributes()["stallwatch.outcome"] in OUTCOMES
