"""Threads: many at once with one client, and streams that one thread opens and another reads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stallwatch import StreamInactivityTimeoutError
from support.drivers import SYNC
from support.leaks import leaves_nothing, sweeper_has_ended
from support.places import MESSAGES, Place
from support.stage import Stage
from support.telemetry import instrumented
from support.traffic import LIMITS, STORIES, Said, check, left, play_now, played, real_time, tell

NAMES = list(STORIES)


def _leave(client: Any, name: str) -> Said:
    """Threads cannot be interrupted, but another may close the stream."""
    story, began = STORIES[name], real_time()
    stream = client.chat.completions.create(model=story.model, messages=MESSAGES, stream=True)
    for _ in range(story.chunks):
        next(stream)
    threading.Timer(max(0.2 - (real_time() - began), 0.0), stream.close).start()
    error: Exception | None = None
    try:
        next(stream)
    except Exception as failure:
        error = failure
    return left(began, cancelled=error is not None and not isinstance(error, StreamInactivityTimeoutError))


def test_sixteen_threads_share_a_client(place: Place) -> None:
    names = [name for name in NAMES if name not in ("left", "dropped", "retried")]
    with instrumented(**LIMITS) as captured, place.client() as client, ThreadPoolExecutor(16) as threads:
        futures = {
            name: [threads.submit(play_now, tell(Stage(SYNC), client, name)) for _ in range(2)]
            for name in names
        }
        told = {name: [future.result(20) for future in each] for name, each in futures.items()}
    last = played({name: each[0] for name, each in told.items()}, captured, times=2)
    for turn in range(2):
        check({**last, "said": {name: each[turn] for name, each in told.items()}}, times=2)


def test_all_traffic(place: Place) -> None:
    with instrumented(**LIMITS) as captured, place.client() as client:
        said: dict[str, Said] = {}

        def play(name: str) -> None:
            with_us = STORIES[name].ends == "own"
            said[name] = _leave(client, name) if with_us else play_now(tell(Stage(SYNC), client, name))

        threads = [threading.Thread(target=play, args=(name,)) for name in NAMES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        told = played(said, captured)
    check(told, place.gateway.ledger(), own="closed_early")


def test_a_stream_read_by_one_thread_after_the_other_is_watched_in_each(place: Place) -> None:
    with instrumented(**LIMITS) as captured, place.client() as client, leaves_nothing():
        stream = client.chat.completions.create(
            model="stall-after:tokens=3,gap=0", messages=MESSAGES, stream=True
        )
        for _ in range(4):
            with ThreadPoolExecutor(1) as thread:
                thread.submit(next, stream).result(5)
        with ThreadPoolExecutor(1) as thread, pytest.raises(StreamInactivityTimeoutError):
            thread.submit(next, stream).result(5)
    assert [span.attributes["stallwatch.outcome"] for span in captured.spans if span.attributes] == [
        "stalled"
    ]


@pytest.mark.slow
def test_helper_threads_end_when_there_is_nothing_to_do_and_come_again(plain: Place) -> None:
    for _ in range(2):
        with instrumented(**LIMITS), plain.client() as client:
            play_now(tell(Stage(SYNC), client, "cancelled"))
            play_now(tell(Stage(SYNC), client, "idle"))
        sweeper_has_ended(6.0)
