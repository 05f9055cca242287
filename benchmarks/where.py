"""Where our work for a chunk, a stream and a call lies, by function: ``python -m benchmarks.where [VARIANT]``.

In steps of bytecode, which are the same in every run; a profiler's clock would show what the profiler costs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks import counts
from benchmarks.variants import OURS, VARIANTS

Steps = dict[str, tuple[float, float, float]]
"""By function: steps for a chunk, for a stream without its chunks, and for a call."""


def by_function(kind: str) -> Steps:
    """Return the steps of each of our functions; ``kind`` is ``sync`` or ``async``."""
    import stallwatch

    package = str(Path(stallwatch.__file__).parent)
    once = counts.KINDS[kind]
    long, short, call = (once(package, tokens).by_function for tokens in (counts.LONG, counts.SHORT, None))
    found = {}
    for function in long | short | call:
        chunk = (long[function] - short[function]) / (counts.LONG - counts.SHORT)
        stream = short[function] - chunk * (counts.SHORT + counts.UNEVENTFUL)
        found[function] = (chunk, stream, float(call[function]))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the functions with the most steps."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.where", description=__doc__)
    parser.add_argument("variant", nargs="?", default="all", choices=OURS)
    parser.add_argument("--most", type=int, default=25, metavar="N", help="functions to print")
    options = parser.parse_args(argv)
    VARIANTS[options.variant].prepare()
    for kind in counts.KINDS:
        found = by_function(kind)
        for index, what in enumerate(("chunk", "stream", "call")):
            steps = Counter({function: one[index] for function, one in found.items()})
            print(f"\n{kind}, a {what}: {sum(steps.values()):.0f} steps")
            for function, number in steps.most_common(options.most):
                if number >= 1:
                    print(f"{number:8.0f}  {function}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
