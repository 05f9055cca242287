"""What is complained of in the log."""

from __future__ import annotations

import logging

__all__ = ["Records"]


class Records(logging.Handler):
    """Keeps warnings and worse of ours and of OpenTelemetry's; asyncio complains of what it drops, bare as well."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        if record.name.startswith(("stallwatch", "opentelemetry")):
            self.told.append(f"{record.name}: {record.getMessage()}")
