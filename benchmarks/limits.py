"""Lets this process hold thousands of sockets, as far as the system permits."""

from __future__ import annotations

import resource


def allow_many_files() -> int:
    """Raise the limit of open files to what may be had without asking, and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
