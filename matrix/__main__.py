"""``python -m matrix [CELL ...] [--jobs N] [-- pytest arguments]``: run cells and write down what came of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from docs import generate
from matrix.cells import CELLS
from matrix.results import Result, record
from matrix.running import play

_BEGAN = time.monotonic()


def _say(line: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.0f} s  {line}", flush=True)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make matrix ARGS='...'",
        description="Run the test suite on other versions.",
        epilog="After -- come arguments of pytest; a run of a part is not written down unless --record says so.",
    )
    parser.add_argument("cells", nargs="*", metavar="CELL", help="default: all of them")
    parser.add_argument("--list", action="store_true", help="tell which cells there are, and run none")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cells at a time; default: 1")
    parser.add_argument(
        "--record", action="store_true", help="write down a part as well, saying that it is one"
    )
    end = list(argv).index("--") if "--" in argv else len(argv)
    known = parser.parse_args(argv[:end])
    known.selection = list(argv[end + 1 :])
    if unknown := [name for name in known.cells if name not in CELLS]:
        parser.error(f"no such cell: {', '.join(unknown)}; there are {', '.join(CELLS)}")
    return known


def main(argv: Sequence[str]) -> int:
    """Run the cells asked for; 1 when one could not be run or a test failed."""
    asked = _arguments(argv)
    cells = [CELLS[name] for name in asked.cells or CELLS]
    if asked.list:
        for cell in cells:
            print(
                f"{cell.name:<18} Python {cell.python}, requirements/{cell.requirements.name}: {cell.about}"
            )
        return 0

    def keep(result: Result) -> None:
        if asked.record or not asked.selection:
            record(result, list(CELLS))
            generate.main([])

    results = play(cells, asked.selection, max(asked.jobs, 1), _say, keep)
    return 0 if all(result is not None and not result.failed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
