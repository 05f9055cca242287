"""How whoever waits for a run is woken from outside: by a cancel, by losing a race, or by a close.

The reason is recorded before, so that whatever surfaces is told by it. A synchronous reader is blocked in one of five
places, and each has its own way out: in a back-off (an event), in a connect or a queue for a connection (see
``connecting``), in a TLS handshake, while sending, or in a read (the socket is shut down, never closed: its owner does
that). An asynchronous one is a task and is cancelled, in its loop.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallwatch.runtime.inflight import InFlight

__all__ = ["sleep", "wake"]


def wake(run: InFlight) -> bool:
    """Wake whoever waits for ``run``, in the helper thread. True when somebody still does: it is to be called again.

    Between two of the five places a wake finds nobody, and it may come while the next wait is being entered.
    """
    # In a forked child the sockets are the parent's.
    if run.ended or run.forgotten:
        return False
    woken, shadow, waiter, break_off = run.woken, run.shadow, run.waiter, run.break_off
    if woken is not None:
        woken.set()
    if hasattr(waiter, "wake"):
        waiter.wake()
        return False
    if not (shadow is not None and shadow.wake()) and break_off is not None:
        break_off()
    return run.tracker.waiting


def sleep(run: InFlight, delay: float) -> None:
    """Wait ``delay`` seconds, or until woken, in the calling thread."""
    woken = run.woken = threading.Event()
    # Looked at after the event is there, and recorded before it is looked for: no wake is lost.
    if not run.over:
        woken.wait(delay)
    run.woken = None
