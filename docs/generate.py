"""Fills the generated parts of the pages: ``python -m docs.generate``, from the project's root.

A part stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``; everything else of a page is written by hand.
The charts of kept figures are made with them. ``--check`` writes nothing and tells what would change.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import tables
from docs import compatibility_tables, telemetry_tables, timelines
from stallwatch.core.classify import classification_table, code_table
from stallwatch.settings import settings_table
from stallwatch.testing import scenario_table

HERE = Path(__file__).parent

PARTS: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "scenarios": scenario_table,
    "deadlines": timelines.deadlines,
    "healthy-timeline": timelines.healthy,
    "silences": timelines.silences,
    "extension": timelines.extension,
    "hidden-reasoning-models": timelines.hidden_reasoning_models,
    "request-attributes": telemetry_tables.request_attributes,
    "response-attributes": telemetry_tables.response_attributes,
    "own-attributes": telemetry_tables.own_attributes,
    "events": telemetry_tables.events,
    "metrics": telemetry_tables.metrics,
    "buckets": telemetry_tables.buckets,
    "values": telemetry_tables.values,
    "classification": classification_table,
    "classification-codes": code_table,
    "compatibility-cells": compatibility_tables.cells,
    "compatibility-skips": compatibility_tables.skips,
    **tables.PARTS,
}

_PART = re.compile(r"(<!-- ([\w-]+): begin -->\n)(.*?)(<!-- \2: end -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with its generated parts filled anew; raises KeyError for a part that nobody makes."""
    return _PART.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]().strip()}\n\n{match[4]}", text)


def parts_of(text: str) -> list[str]:
    """Return the names of the generated parts in a page."""
    return [match[2] for match in _PART.finditer(text)]


def pictures() -> dict[Path, str]:
    """Return the charts that are made from kept figures."""
    if (found := tables.kept()) is None:
        return {}
    return {HERE / "images" / name: text for name, text in tables.pictures(found).items()}


def main(argv: Sequence[str]) -> int:
    """Fill the pages, or with ``--check`` tell which would change."""
    check = list(argv) == ["--check"]
    made = {page: filled(page.read_text(encoding="utf-8")) for page in sorted(HERE.glob("*.md"))} | pictures()
    differing = []
    for page, wanted in made.items():
        if not page.exists() or page.read_text(encoding="utf-8") != wanted:
            differing.append(page)
            if not check:
                page.write_text(wanted, encoding="utf-8")
    for page in differing:
        print(f"{'differs' if check else 'written'}: {page}")
    return 1 if check and differing else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
