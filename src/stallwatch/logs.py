"""The package's logger, out of which nothing comes back into a call.

A handler or filter that a host hangs into logging runs inside the call that logs. ``logging`` catches what it raises
only where the handler does so itself, so one that does not would end a retry in the middle.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["log"]

_logger = logging.getLogger("stallwatch")

_ASKER = 3
"""Frames from the logger up to who has something to say, whose place the record is to name."""


class _Log:
    """What is used of a logger; whatever a handler raises is dropped, because nobody is left to be told."""

    __slots__ = ()

    def debug(self, message: str, *details: object) -> None:
        """See ``logging.Logger.debug``."""
        _tell(logging.DEBUG, message, details)

    def info(self, message: str, *details: object) -> None:
        """See ``logging.Logger.info``."""
        _tell(logging.INFO, message, details)

    def warning(self, message: str, *details: object) -> None:
        """See ``logging.Logger.warning``."""
        _tell(logging.WARNING, message, details)


def _tell(level: int, message: str, details: tuple[object, ...]) -> None:
    try:
        _logger.log(level, message, *details, stacklevel=_ASKER)
    except Exception:
        pass


log: Final = _Log()
