"""Makes the environments of other instrumentors, one each: ``python -m benchmarks.peers``.

The pins are in ``requirements/peers``. An environment whose pins have not changed is left as it is.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable, Iterable

from benchmarks.alternating import ENVIRONMENTS, ROOT
from benchmarks.variants import PEERS, VARIANTS

PINS = ROOT / "requirements" / "peers"


def make(names: Iterable[str] = PEERS, progress: Callable[[str], None] = print) -> None:
    """Make what is missing or no longer what its pins say; raises CalledProcessError when pip fails."""
    names = list(names)
    for number, name in enumerate(names, 1):
        environment = VARIANTS[name].environment
        assert environment is not None
        pins, place = PINS / f"{environment}.txt", ENVIRONMENTS / environment
        made = place / "pins.txt"
        if made.exists() and made.read_text(encoding="utf-8") == pins.read_text(encoding="utf-8"):
            continue
        progress(f"environment {number} of {len(names)}: {name}")
        venv.create(place, clear=True, with_pip=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        subprocess.run([*pip, "install", "--quiet", "--no-deps", "-r", str(pins)], check=True)
        made.write_text(pins.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    make()
    sys.exit(0)
