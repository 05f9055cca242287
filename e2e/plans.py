"""What the program is told to do, written into the file that it reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.traffic import CASES, Case

__all__ = ["drip", "plan", "written"]


def plan(folder: Path, cases: Sequence[Case] = CASES) -> Path:
    """Write down the calls of these cases."""
    return written(
        folder / "plan.json",
        (
            {
                "case": case.name,
                "model": case.name,
                "kind": case.kind,
                "after": number * case.every,
                **case.options,
            }
            for case in cases
            if case.planned
            for number in range(case.count)
        ),
    )


def drip(folder: Path, model: str, *, count: int, every: float = 0.0, **options: Any) -> Path:
    """Write down calls to one model, one after the other however long each takes."""
    return written(folder / "drip.json", calls(model, count=count, every=every, **options))


def calls(model: str, *, count: int, every: float = 0.0, **options: Any) -> Iterable[Mapping[str, Any]]:
    """Yield calls to one model, one after the other however long each takes."""
    for number in range(count):
        yield {"case": model, "model": model, "kind": "stream", "after": number * every, **options}


def written(path: Path, wanted: Iterable[Mapping[str, Any]]) -> Path:
    """Write down these calls."""
    path.write_text(json.dumps([*wanted]), encoding="utf-8")
    return path
