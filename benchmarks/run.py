"""Measures everything that ``docs/performance.md`` tells: ``python -m benchmarks.run``, or ``make bench``.

About ten minutes on two quiet cores. ``--brief`` takes four: without the other instrumentors and the largest crowds,
with processes that are started once. ``--write`` keeps the figures in ``results/figures.json``; ``python -m
docs.generate`` makes tables and charts of them. ``--only growth imports`` measures these parts anew and, with
``--write``, puts them in the place of the last run's: each part has the bare SDK in it, interleaved, and is compared
with nothing else.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import peers, start, tables
from benchmarks.alternating import Rounds, absolute, added, alternate
from benchmarks.variants import OURS, PEERS, VARIANTS

FIGURES = tables.FIGURES
COSTS = {"sync": 5, "async": 5, "waiting": 4, "sync latency": 4, "async latency": 4, "memory": 0}
"""Rounds of each task in a generation; 0 is what one round tells exactly."""
GROWTH = {"by chunks": 3, "by open streams": 2, "by attempts": 3, "by models": 3}
CROWD = {"lone async": 1, "lone sync": 1, "200 threads": 2}
CROWDS = ("1000 expire", "1000 expire", "2000 expire")
LARGEST = ("5000 expire", "10000 rest")
PARTS = ("costs", "growth", "crowds", "rest", "imports")
IMPORTS = 7


class Progress:
    """Says on the terminal what is going on and since when, each line over the last."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        end = "" if sys.stderr.isatty() else "\n"
        start_of_line = "\r" if sys.stderr.isatty() else ""
        print(f"{start_of_line}{minutes:2}:{seconds:02}  {text:85}", end=end, file=sys.stderr, flush=True)


def measured(
    parts: Sequence[str], brief: bool, rounds: float, generations: int, progress: Progress
) -> dict[str, Any]:
    """Measure these parts and return what is written down of them."""
    found: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    if "costs" in parts:
        told, found = _costs(brief, rounds, generations, progress)
        figures.update(_summed(told))
    if "growth" in parts:
        told, _ = alternate(
            ("bare", "all", "summary"), dict.fromkeys(GROWTH, 1) if brief else GROWTH, 1, progress
        )
        figures.update(_summed(told))
    if "crowds" in parts:
        figures.update(_summed(_crowds((CROWD, *_alone(CROWDS if brief else CROWDS + LARGEST)), progress)))
    elif "rest" in parts:
        figures.update(_summed(_crowds(_alone(("10000 rest",)), progress)))
    if "imports" in parts:
        progress("importing")
        found["imports"] = {what: _cells(spread) for what, spread in start.measured(IMPORTS).items()}
    return found | {"figures": figures}


def _costs(
    brief: bool, rounds: float, generations: int, progress: Progress
) -> tuple[dict[str, Rounds], dict[str, Any]]:
    names = ["bare", "bare again", *OURS]
    if not brief:
        peers.make(progress=progress)
        names += sorted({VARIANTS[peer].against for peer in PEERS} - {"bare"}) + list(PEERS)
    costs = {task: max(2, round(times * rounds)) if times else 0 for task, times in COSTS.items()}
    told, versions = alternate(names, costs, generations, progress)
    return told, {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {_processor()}",
        "rounds": {task: max(1, times * generations) for task, times in costs.items()},
        "versions": versions,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and with ``--write`` keep the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--brief", action="store_true", help="only ours, smaller crowds, fewer rounds")
    parser.add_argument(
        "--rounds", type=float, default=1.0, metavar="FACTOR", help="so many times the rounds"
    )
    parser.add_argument(
        "--generations", type=int, metavar="N", help="how often all start anew; twice, brief once"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {FIGURES.name}")
    options = parser.parse_args(argv)
    if options.write and options.brief:
        parser.error("--write needs all of it")
    generations = options.generations or (1 if options.brief else 2)
    found = measured(options.only or PARTS, options.brief, options.rounds, generations, Progress())
    print(file=sys.stderr)
    if options.only:
        found = _merged(json.loads(FIGURES.read_text(encoding="utf-8")), found)
    # Kept first: whatever goes wrong in a table does not cost the ten minutes.
    if options.write:
        FIGURES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"written: {FIGURES}; now run python -m docs.generate")
    print(tables.printed(found))
    return 0


def _merged(kept: Mapping[str, Any], anew: Mapping[str, Any]) -> dict[str, Any]:
    return {**kept, **anew, "figures": {**kept["figures"], **anew["figures"]}}


def _alone(crowds: Sequence[str]) -> list[dict[str, int]]:
    """Let each crowd have processes of its own, because thousands of streams leave their mark on a process."""
    return [{task: 0} for task in crowds]


def _crowds(parts: Sequence[Mapping[str, int]], progress: Progress) -> dict[str, Rounds]:
    found: dict[str, Rounds] = {}
    for part in parts:
        one, _ = alternate(("bare", "all"), part, 1, progress)
        for task, by_variant in one.items():
            for variant, more in by_variant.items():
                found.setdefault(task, {}).setdefault(variant, []).extend(more)
    return found


def _summed(found: Mapping[str, Rounds]) -> dict[str, Any]:
    """Return task -> figure -> variant -> what it is and what it adds."""
    return {
        task: {
            figure: {
                name: {
                    "is": _cells(absolute(rounds, name, figure)),
                    "adds": _cells(added(rounds, name, figure, VARIANTS[name].against)),
                }
                for name in rounds
            }
            for figure in rounds["bare"][0]
        }
        for task, rounds in found.items()
    }


def _cells(spread: Any) -> list[float]:
    return [round(value, 3) for value in (spread.median, spread.low, spread.high, spread.least)]


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    if not told.exists():
        return platform.processor() or "unknown processor"
    lines = told.read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} shared cores of {names[0]}" if names else "unknown processor"


if __name__ == "__main__":
    sys.exit(main())
