"""The tables of the compatibility page, from what ``make matrix`` has written down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matrix.cells import CELLS
from matrix.results import PACKAGES, recorded

__all__ = ["cells", "skips"]


def cells() -> str:
    """Return a row for each cell: its versions, and what came of its last run."""
    heads = ("cell", "`openai`", "HTTP library", "OpenTelemetry", "`wrapt`", "Python")
    found = recorded()
    heads += ("run on", "passed", "at a later try", "failed", "skipped", "minutes")
    return _table(heads, (_row(name, found.get(name)) for name in CELLS))


def _row(name: str, found: dict[str, Any] | None) -> tuple[str, ...]:
    if found is None:
        cell = CELLS[name]
        pins = {package: cell.pinned(package) or "" for package in PACKAGES}
        library = "httpx" if cell.environment or not pins["httpx2"] else "httpx2"
        versions = (pins["openai"], f"`{library}` {pins[library]}", pins["opentelemetry-api"], pins["wrapt"])
        return (f"`{name}`: {cell.about}", *versions, cell.python, "not run yet", *("",) * 5)
    versions = found["versions"]
    part = f", of `{' '.join(found['selection'])}` only" if found["selection"] else ""
    return (
        f"`{name}`: {CELLS[name].about}",
        versions["openai"],
        _library(name, versions),
        versions["opentelemetry-api"],
        versions["wrapt"],
        found["python"],
        found["date"],
        f"{found['passed']}{part}",
        str(found["again"]),
        str(found["failed"]),
        str(found["skipped"]),
        f"{found['minutes']:.0f}",
    )


def _library(name: str, versions: dict[str, str]) -> str:
    library = "httpx" if CELLS[name].environment or "httpx2" not in versions else "httpx2"
    return f"`{library}` {versions[library]}"


def skips() -> str:
    """Return why tests were skipped, and in which cells how many."""
    found: dict[str, dict[str, int]] = {}
    for name, result in recorded().items():
        for reason, count in result["skips"].items():
            found.setdefault(reason, {})[name] = count
    rows = (
        (reason.replace("|", "\\|"), ", ".join(f"`{name}` {count}" for name, count in counts.items()))
        for reason, counts in sorted(found.items())
    )
    return _table(("why", "cells and tests"), rows) if found else "None was."


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    heads = tuple(heads)
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
