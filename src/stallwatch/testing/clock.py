"""A clock that stands still until told."""

from __future__ import annotations


class FakeClock:
    """A callable that returns seconds and moves only by `advance`; fits wherever ``time.monotonic`` does."""

    def __init__(self, start: float = 1_000.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Move forward and return the new time; raises `ValueError` for going back, which no monotonic clock does."""
        if seconds < 0:
            raise ValueError(f"seconds: {seconds!r} is not allowed; allowed: a number >= 0")
        self.now += seconds
        return self.now
