"""What another process has spent, from ``/proc``: Linux only."""

from __future__ import annotations

import os
from pathlib import Path


def memory(pid: int) -> int:
    """Return how many bytes of memory the process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu(pid: int) -> float:
    """Return how many seconds of CPU the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
