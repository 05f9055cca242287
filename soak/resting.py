"""The program at rest: what is still there when nothing is under way."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
import tracemalloc
from pathlib import Path

from soak.telemetry import Books
from stallwatch.runtime import registry

__all__ = ["come_to_rest", "reading", "resident"]

PATIENCE = 15.0
"""Seconds until what has not gone counts as left over."""

HELPERS = ("stallwatch-sweeper", "stallwatch-waker")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def come_to_rest(books: Books) -> None:
    """Wait until all calls and helper threads have ended; what has not by then shows in the reading."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        gc.collect()
        if not registry.live() and not books.open and not _helpers():
            return
        time.sleep(0.05)


def reading(books: Books, sink: int) -> dict[str, int]:
    """Return what there is; connections to the port ``sink`` are the exporters', which come and go as the sink does.

    Memory that is free is given back to the system first, as far as the allocator does.
    """
    gc.collect()
    _trim()
    return {
        "traced": tracemalloc.get_traced_memory()[0],
        "resident": resident(),
        "descriptors": _descriptors(sink),
        "threads": threading.active_count(),
        "runs": len(registry.live()),
        "spans": books.open,
    }


def resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def _descriptors(sink: int) -> int:
    exporters = set()
    for line in Path("/proc/self/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if int(fields[2].rpartition(":")[2], 16) == sink:
            exporters.add(f"socket:[{fields[9]}]")
    return sum(_target(entry) not in exporters for entry in Path("/proc/self/fd").iterdir())


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:  # the one by which they are listed
        return ""


def _helpers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in HELPERS]


def _trim() -> None:
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library
        pass
