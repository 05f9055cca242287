"""What came of a cell: read from pytest's report, kept in ``docs/compatibility.json``."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matrix.cells import ROOT, Cell

__all__ = ["DATA", "PACKAGES", "Result", "read", "record", "recorded"]

DATA = ROOT / "docs" / "compatibility.json"

PACKAGES = ("openai", "httpx", "httpx2", "opentelemetry-api", "opentelemetry-instrumentation", "wrapt")
"""The versions that are told; the pin files have all others."""

_ASK = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
def of(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
print(json.dumps([platform.python_version(), platform.system(), {name: of(name) for name in sys.argv[1:]}]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run of a cell. ``selection`` is what of the suite was run, empty for all of it.

    What failed was played again, alone: ``again`` counts what passed then, and is part of ``passed``.
    """

    cell: str
    date: str
    commit: str
    python: str
    system: str
    versions: Mapping[str, str | None]
    passed: int
    failed: int
    skipped: int
    minutes: float
    again: int = 0
    selection: Sequence[str] = ()
    failures: Sequence[str] = ()
    skips: Mapping[str, int] = field(default_factory=dict)


def read(cell: Cell, report: Path, selection: Sequence[str]) -> Result:
    """Read a report in JUnit's form, as pytest writes it."""
    passed, failures, skips = 0, [], Counter[str]()
    suite = next(ET.parse(report).getroot().iter("testsuite"))
    for case in suite.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failures.append(f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}")
        elif (skip := case.find("skipped")) is not None:
            skips[_reason(skip.get("message") or "")] += 1
        else:
            passed += 1
    python, system, versions = _ask(cell)
    return Result(
        cell=cell.name,
        date=datetime.now(UTC).date().isoformat(),
        commit=_commit(),
        python=python,
        system=system,
        versions={name: version for name, version in versions.items() if version is not None},
        passed=passed,
        failed=len(failures),
        skipped=sum(skips.values()),
        minutes=round(float(suite.get("time", 0)) / 60, 1),
        selection=list(selection),
        failures=sorted(failures),
        skips=dict(sorted(skips.items())),
    )


def _reason(message: str) -> str:
    # Counts and versions inside a reason would make one kind of skip many.
    return re.sub(r"\s+", " ", message).strip().removeprefix("Skipped: ")


def _ask(cell: Cell) -> tuple[str, str, dict[str, str | None]]:
    said = subprocess.run(
        [cell.home / "bin" / "python", "-c", _ASK, *PACKAGES], check=True, capture_output=True, text=True
    )
    python, system, versions = json.loads(said.stdout)
    return python, system, versions


def _commit() -> str:
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    return said.stdout.strip() or "unknown"


def recorded(path: Path = DATA) -> dict[str, Any]:
    """Return what is kept, by the name of the cell."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def record(result: Result, order: Sequence[str], path: Path = DATA) -> None:
    """Put a result in the place of an earlier one of its cell; cells that are gone go."""
    kept = {**recorded(path), result.cell: asdict(result)}
    ordered = {name: kept[name] for name in order if name in kept}
    path.write_text(json.dumps(ordered, indent=2) + "\n", "utf-8")
