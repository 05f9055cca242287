"""Spans that end before they began, by whatever clock: imported by a program, it notes them from then on."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import Span

__all__ = ["NAMES"]

NAMES: list[str] = []
"""The names of the spans."""

_end = Span.end


def _ending(span: Any, end_time: int | None = None) -> None:
    _end(span, end_time)
    if span.end_time < span.start_time:
        NAMES.append(span.name)


Span.end = _ending  # type: ignore[method-assign]
