"""A look at the costs of a chunk, a stream, a call and an open stream: ``python -m benchmarks.quick``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.alternating import absolute, added, alternate
from benchmarks.variants import OURS, VARIANTS

TIMED = {"sync": 8, "async": 8, "waiting": 8, "sync latency": 4, "async latency": 4}


def main(argv: Sequence[str] | None = None) -> int:
    """Print what each variant adds to the bare SDK."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help="what to measure beside the bare SDK")
    parser.add_argument("--rounds", type=int, metavar="N", help="of each task in each generation")
    parser.add_argument("--generations", type=int, default=1, metavar="N", help="how often to start anew")
    parser.add_argument("--tasks", default="sync,async,waiting,sync latency,async latency,memory")
    options = parser.parse_args(argv)
    names = ["bare", *(options.variants or OURS)]
    if unknown := set(names) - set(VARIANTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(VARIANTS)}")
    tasks = {
        name: (options.rounds or TIMED.get(name, 0)) if name in TIMED else 0
        for name in options.tasks.split(",")
    }
    found, _ = alternate(names, tasks, options.generations, _progress)
    print(f"\r{'':70}\rmedian [middle half] least; added to the bare SDK; us of CPU, memory in bytes")
    for task, rounds in found.items():
        for figure in rounds["bare"][0]:
            bare = absolute(rounds, "bare", figure)
            print(f"{task}, {figure}: bare {bare.median:.1f} [{bare.low:.1f} .. {bare.high:.1f}]")
            for name in names[1:]:
                more, whole = added(rounds, name, figure), absolute(rounds, name, figure)
                print(
                    f"    {name:15} {more.median:+9.2f} [{more.low:+.2f} .. {more.high:+.2f}] "
                    f"{whole.least - bare.least:+9.2f}"
                )
    return 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:70}", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
