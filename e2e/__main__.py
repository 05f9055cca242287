"""``python -m e2e [pytest arguments]``: see that everything needed is there, then run the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from e2e.needs import Missing, provide

HERE = Path(__file__).parent


def main() -> int:
    try:
        for line in provide():
            print(line, flush=True)
    except Missing as missing:
        print(f"end-to-end tests cannot run: {missing}", file=sys.stderr)
        return 2
    # Waits have deadlines of their own, which say what did not come; this one is the last resort.
    return pytest.main([str(HERE), "-o", "timeout=240", "--durations=8", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
