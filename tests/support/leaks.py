"""Nothing is left over: no listed run, thread, task or socket."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from stallwatch.runtime import registry

__all__ = ["leaves_nothing", "run", "sweeper_has_ended", "wait_until"]

_T = TypeVar("_T")

HELPERS = ("stallwatch-sweeper", "stallwatch-waker")
_PATIENCE = 1.0
_DESCRIPTORS = Path("/proc/self/fd")


def wait_until(
    condition: Callable[[], object], what: Callable[[], object], timeout: float = _PATIENCE
) -> None:
    """Wait until the condition holds; else fail with what there is instead."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.005)


@contextmanager
def leaves_nothing() -> Iterator[None]:
    """Fail if what runs inside leaves a listed run, a thread (the helper thread apart) or an open socket."""
    threads, sockets = set(threading.enumerate()), _sockets()
    yield
    wait_until(lambda: not registry.live(), lambda: f"still listed: {registry.live()}")
    wait_until(lambda: not _more_threads(threads), lambda: f"still running: {_more_threads(threads)}")
    wait_until(lambda: not _sockets() - sockets, lambda: f"still open: {_sockets() - sockets}")


def sweeper_has_ended(timeout: float = 3.0) -> None:
    """Wait for the helper thread to end itself, as it does when no stream has been open for a while."""
    wait_until(lambda: not _sweepers(), lambda: "the helper thread still runs", timeout)


def run(story: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in a loop of its own; fails if it leaves a task behind, which that loop would hide."""
    return asyncio.run(_without_leftovers(story))


async def _without_leftovers(story: Coroutine[Any, Any, _T]) -> _T:
    before = asyncio.all_tasks()
    result = await story
    deadline = time.monotonic() + _PATIENCE
    while left := asyncio.all_tasks() - before:
        assert time.monotonic() < deadline, f"tasks left over: {left}"
        await asyncio.sleep(0.005)
    return result


def _more_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        # trio keeps its worker threads for a while.
        if thread not in before and thread.name not in HELPERS and not thread.name.startswith("Trio thread")
    }


def _sweepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in HELPERS]


def _sockets() -> set[str]:
    """Return the open sockets of this process; none where the system does not list them."""
    found: set[str] = set()
    if not _DESCRIPTORS.is_dir():
        return found
    for entry in _DESCRIPTORS.iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found
