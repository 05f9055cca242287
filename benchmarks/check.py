"""Sees a slowdown when it lands: ``python -m benchmarks.check``, or ``make bench-quick``; under a minute.

Counts of work (see ``counts``) and bytes of an open stream are compared with those in ``results/counts.json``; both
are nearly the same on every machine. Time is not, so what a chunk costs beside the bare SDK gets a wide margin and
catches only what counts cannot see. ``--write`` puts down what is measured now as the new bars, so that a change that
costs something shows in its diff.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.alternating import Rounds, added, alternate

BARS = Path(__file__).parent / "results" / "counts.json"
SETTINGS = ("all", "summary", "no sdk")
COUNT_SLACK = 1.05
"""A gap that is the longest so far takes some steps more, and which one is so is chance; and who adds a little on
purpose need not write new bars each time."""
OTHER_PYTHON_SLACK = 1.25
"""Every Python compiles the same lines into other bytecode."""
MEMORY_SLACK = 1.08
TIME_SLACK = 2.0
"""Of what a chunk and a call cost beside the bare SDK: a busy machine is seldom further off than that."""
TIMED_ROUNDS = 6
TIMED_TRIES = 4
"""The least of more rounds is nearer to what a chunk costs when nothing else is going on, and never below it."""

Measured = dict[str, dict[str, float]]


def measured(progress: Any = print, enough: Callable[[Measured], bool] = lambda _: True) -> Measured:
    """Return counts, bytes and ratios for each setting; time is taken until ``enough``, or ``TIMED_TRIES`` times."""
    counted, _ = alternate(SETTINGS, {"counts": 0}, 1, progress)
    weighed, _ = alternate(("bare", *SETTINGS), {"memory": 0}, 1, progress)
    found: Measured = {}
    for name in SETTINGS:
        found[name] = dict(counted["counts"][name][0])
        for figure in ("held", "waiting"):
            found[name][f"bytes {figure}"] = round(added(weighed["memory"], name, figure).median)
    rounds: Rounds = {}
    for _ in range(TIMED_TRIES):
        timed, _ = alternate(("bare", *SETTINGS), {"sync": TIMED_ROUNDS}, 1, progress)
        for name, more in timed["sync"].items():
            rounds.setdefault(name, []).extend(more)
        for name in SETTINGS:
            for figure in ("chunk", "call"):
                found[name][f"ratio {figure}"] = round(_ratio(rounds, name, figure), 3)
        if enough(found):
            break
    return found


def slower(now: Measured, bars: Measured, same_python: bool) -> list[str]:
    """Return what is worse than its bar by more than chance explains."""
    found = []
    for name, figures in bars.items():
        for figure, bar in figures.items():
            limit = allowed(figure, bar, same_python)
            if now[name][figure] > limit:
                found.append(f"{name}, {figure}: {now[name][figure]:g}, was {bar:g}, at most {limit:g}")
    return found


def allowed(figure: str, bar: float, same_python: bool) -> float:
    """Return the most that a figure may be, given what it was."""
    if figure.startswith("ratio"):
        return round(1 + (bar - 1) * TIME_SLACK, 3)
    if figure.endswith(("records", "starts")):
        return bar
    slack = MEMORY_SLACK if figure.startswith("bytes") else COUNT_SLACK
    return round(bar * (slack if same_python else OTHER_PYTHON_SLACK), 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, and tell what became slower."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("--write", action="store_true", help="make what is measured now the new bars")
    options = parser.parse_args(argv)
    python = ".".join(map(str, sys.version_info[:2]))
    if options.write:
        now = measured(_progress)
        BARS.write_text(json.dumps({"python": python, "bars": now}, indent=1) + os.linesep, encoding="utf-8")
        print(f"written: {BARS}")
        return 0
    kept: Mapping[str, Any] = json.loads(BARS.read_text(encoding="utf-8"))
    same = kept["python"] == python

    def as_it_was(found: Measured) -> bool:
        return not any("ratio" in line for line in slower(found, kept["bars"], same))

    now = measured(_progress, as_it_was)
    for figure in now["all"]:
        cells = (f"{now[name][figure]:9g} (was {kept['bars'][name][figure]:g})" for name in SETTINGS)
        print(f"{figure:24}", *(f"{cell:28}" for cell in cells))
    print(f"{'':24}", *(f"{name:>9}{'':19}" for name in SETTINGS))
    worse = slower(now, kept["bars"], same)
    for line in worse:
        print(f"SLOWER: {line}")
    if worse:
        print(
            "Find out where with python -m benchmarks.where, or write new bars: make bench-quick ARGS=--write"
        )
    return 1 if worse else 0


def _ratio(rounds: Rounds, name: str, figure: str) -> float:
    """Return the least cost beside the least of the bare SDK: what else the machine does only ever adds."""
    return min(one[figure] for one in rounds[name]) / min(one[figure] for one in rounds["bare"])


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:70}\r", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
