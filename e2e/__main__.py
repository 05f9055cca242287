"""``python -m e2e [pytest arguments]``: see that everything needed is there, then run the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from e2e.needs import Missing, provide

HERE = Path(__file__).parent


def main() -> None:
    """Run the tests in the place of this process."""
    try:
        for line in provide():
            print(line, flush=True)
    except Missing as missing:
        sys.exit(f"end-to-end tests cannot run: {missing}")
    # A fresh interpreter, because pytest wants to be there before the modules whose assertions it rewrites.
    # Waits have deadlines of their own, which say what did not come; this one is the last resort.
    command = [sys.executable, "-m", "pytest", str(HERE), "-o", "timeout=240", "--durations=8", *sys.argv[1:]]
    sys.stdout.flush()
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
