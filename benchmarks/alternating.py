"""Runs rounds of several variants in turn, each in a process of its own, and sums them up as differences.

Machines change from minute to minute; what lies side by side in time is compared. Each round goes through all variants
once, forwards and then backwards, and every variant's round is compared with the bare SDK's of the same round. Several
*generations* of processes are started, because a process keeps the luck of its start: addresses and hash seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from types import TracebackType
from typing import Any, Self

from benchmarks.variants import VARIANTS

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv-peers"
"""Where ``peers`` makes the environments of peers, one folder each."""

Rounds = dict[str, list[dict[str, float]]]
"""By variant: what each round found."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the middle half around it."""

    median: float
    low: float
    high: float
    least: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Sum values up."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high, min(values))


class Worker:
    """One process of one variant."""

    def __init__(self, variant: str) -> None:
        self.variant = variant
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "src")))
        environment.pop("OPENAI_API_KEY", None)
        command = [str(interpreter(variant)), "-m", "benchmarks.worker", variant]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        self.versions: dict[str, str] = self._read()["ready"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)

    def round(self, task: str) -> dict[str, float]:
        """Let the process do one round of a task."""
        assert self._process.stdin is not None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        found: dict[str, float] = self._read()
        return found

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.variant!r} ended with {self._process.wait()}")
        answer = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(f"{self.variant!r} failed:\n{answer['failed']}")
        return answer


def interpreter(variant: str) -> Path:
    """Return the Python that runs a variant."""
    environment = VARIANTS[variant].environment
    if environment is None:
        return Path(sys.executable)
    return ENVIRONMENTS / environment / "bin" / "python"


def alternate(
    variants: Iterable[str],
    tasks: Mapping[str, int],
    generations: int,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Rounds], dict[str, dict[str, str]]]:
    """Run each task so many rounds in each generation, and one before that does not count.

    With 0 rounds there is only that one, and it counts: for what is no time. Returns what was found by task, and the
    versions by variant.
    """
    found: dict[str, Rounds] = {task: {} for task in tasks}
    versions: dict[str, dict[str, str]] = {}
    for generation in range(generations):
        with ExitStack() as stack:
            workers = []
            for variant in variants:
                progress(f"generation {generation + 1} of {generations}: starting {variant}")
                workers.append(stack.enter_context(Worker(variant)))
                versions[variant] = workers[-1].versions
            for task, rounds in tasks.items():
                for number in range(max(1, rounds + 1)):
                    progress(
                        f"generation {generation + 1} of {generations}: {task}, round {number} of {rounds}"
                    )
                    for worker in workers if number % 2 else reversed(workers):
                        one = _round(worker, task, progress)
                        # The first round imports, compiles and fills caches.
                        if one is not None and (number or not rounds):
                            found[task].setdefault(worker.variant, []).append(one)
    return found, versions


def _round(worker: Worker, task: str, progress: Callable[[str], None]) -> dict[str, float] | None:
    """Let a process do one round; what a peer cannot do is told, and ends nothing."""
    try:
        return worker.round(task)
    except RuntimeError as error:
        if VARIANTS[worker.variant].environment is None:
            raise
        progress(f"{worker.variant} cannot do {task!r}: {str(error).splitlines()[-1]}")
        return None


def added(rounds: Rounds, variant: str, figure: str, to: str = "bare") -> Spread:
    """Return what a variant adds to the bare SDK, round by round."""
    pairs = zip(rounds[variant], rounds[to], strict=True)
    return Spread.of([one[figure] - other[figure] for one, other in pairs])


def absolute(rounds: Rounds, variant: str, figure: str) -> Spread:
    """Return a figure of a variant by itself."""
    return Spread.of([one[figure] for one in rounds[variant]])
