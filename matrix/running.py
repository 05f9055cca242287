"""Running cells: their environments, pytest in a process of its own for each, and where it stands all the while."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from matrix.cells import ROOT, Cell, interpreter
from matrix.results import Result, read

__all__ = ["APART", "Unfit", "environment", "play"]

APART = (
    # Nothing to do with the SDK.
    "tests/dashboards",
    "tests/deploy",
    "tests/benchmarks",
    "tests/soak",
    # Environments of their own.
    "tests/neighbours",
    "tests/frameworks",
    "tests/runtimes",
    # It reads what the cells have written down.
    "tests/docs/test_compatibility_page.py",
)
"""What a cell leaves out."""

_TICK = 20.0
"""Seconds between two lines that say where the cells stand."""

_TRIES = 3
"""How often a test may fail before it counts as failed."""

Say = Callable[[str], None]


class Unfit(Exception):
    """A cell that cannot be run here, and why."""


def environment(home: Path, requirements: Path, python: str | None = None) -> Path:
    """Make a virtual environment, unless it is there already, and return its Python; ``python`` is a version."""
    variables = dict(os.environ)
    if python is not None:
        found = interpreter(python)
        if found is None:
            raise Unfit(f"there is no Python {python} here")
        variables["PYTHON"] = found
    home.parent.mkdir(exist_ok=True)
    command = ["scripts/make-env", os.path.relpath(home, ROOT), os.path.relpath(requirements, ROOT)]
    made = subprocess.run(command, cwd=ROOT, env=variables, check=False, capture_output=True, text=True)
    if made.returncode:
        raise Unfit(f"no environment from {requirements.name}:\n{made.stdout}{made.stderr}")
    return home / "bin" / "python"


@dataclass(slots=True)
class _Playing:
    """A cell that is being run."""

    cell: Cell
    log: Path
    stands: str = "making its environment"
    began: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        """Say where it stands."""
        if self.stands == "running" and self.log.exists():
            shares = re.findall(r"\[ *(\d+%)\]", self.log.read_text("utf-8", errors="replace"))
            return f"{self.cell.name} {shares[-1] if shares else '0%'}"
        return f"{self.cell.name} {self.stands}"


def play(
    cells: Sequence[Cell], selection: Sequence[str], jobs: int, say: Say, keep: Callable[[Result], None]
) -> list[Result | None]:
    """Run the cells, so many at a time; None stands for one that could not be run or told nothing.

    Each result is given to ``keep`` as soon as it is there, one at a time.
    """
    playing: list[_Playing] = []
    over = threading.Event()
    ticker = threading.Thread(target=_tick, args=(playing, over, say), daemon=True)
    ticker.start()
    # Two cells of the same pins share an environment.
    making = {cell.home: threading.Lock() for cell in cells}
    keeping = threading.Lock()

    def one(cell: Cell) -> Result | None:
        result = _play(cell, selection, playing, making, say)
        with keeping:
            if result is not None:
                keep(result)
        return result

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, cells))
    finally:
        over.set()
        ticker.join()


def _tick(playing: list[_Playing], over: threading.Event, say: Say) -> None:
    while not over.wait(_TICK):
        if playing:
            say(", ".join(one.line() for one in tuple(playing)))


def _play(
    cell: Cell,
    selection: Sequence[str],
    playing: list[_Playing],
    making: dict[Path, threading.Lock],
    say: Say,
) -> Result | None:
    folder = ROOT / ".nox"
    one = _Playing(cell, folder / f"{cell.name}.log")
    playing.append(one)
    try:
        with making[cell.home]:
            python = environment(cell.home, cell.requirements, cell.python)
        one.stands = "running"
        report = folder / f"{cell.name}.xml"
        report.unlink(missing_ok=True)
        _pytest(cell, python, selection, report, one.log)
        if not report.exists():
            raise Unfit(f"pytest told nothing; the end of {one.log}:\n{one.log.read_text('utf-8')[-3000:]}")
        result = read(cell, report, selection)
        if result.failures:
            one.stands = f"running {result.failed} again, alone"
            result = play_again(cell, python, result)
        counts = f"{result.passed} passed, {result.again} of them at a later try"
        counts += f", {result.failed} failed, {result.skipped} skipped"
        say(f"{cell.name}: {counts}, {result.minutes} min; see {os.path.relpath(one.log, ROOT)}")
    except Unfit as unfit:
        say(f"{cell.name} could not be run: {unfit}")
        return None
    finally:
        playing.remove(one)
    for failure in result.failures:
        say(f"{cell.name}: FAILED {failure}")
    return result


def play_again(cell: Cell, python: Path, result: Result) -> Result:
    """Play what has failed again: what passes then is told apart, because a busy machine fails tests of time."""
    report = ROOT / ".nox" / f"{cell.name}.again.xml"
    for _ in range(_TRIES - 1):
        if not result.failures:
            break
        report.unlink(missing_ok=True)
        _pytest(cell, python, result.failures, report, report.with_suffix(".log"))
        if not report.exists():
            break
        still = sorted(set(read(cell, report, ()).failures) & set(result.failures))
        later = len(result.failures) - len(still)
        result = replace(
            result,
            passed=result.passed + later,
            again=result.again + later,
            failed=len(still),
            failures=still,
        )
    return result


def _pytest(cell: Cell, python: Path, selection: Sequence[str], report: Path, log: Path) -> None:
    command: list[str | Path] = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--ignore={folder}" for folder in APART]
    command += ["-o", "junit_family=xunit2", f"--junitxml={report}", *selection]
    with log.open("w", encoding="utf-8") as output:
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **cell.environment},
            check=False,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
