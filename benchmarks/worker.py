"""A process of one variant: ``python -m benchmarks.worker VARIANT``; it is started by ``alternating``.

It reads the name of a task from a line of its input, does one round of it, and answers with a line of JSON. Between
rounds it waits, so that many of them take turns on the same core.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import Any

REPORTED = ("openai", "opentelemetry-sdk", "opentelemetry-api", "httpx", "httpx2", "pydantic", "wrapt")


def main(argv: list[str]) -> int:
    """Serve rounds until the input ends."""
    # Whatever an instrumentor prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    from benchmarks.tasks import TASKS
    from benchmarks.variants import VARIANTS

    _answer(answers, {"ready": _ready(VARIANTS[argv[0]])})
    for line in sys.stdin:
        try:
            _answer(answers, TASKS[line.strip()]())
        except Exception:
            _answer(answers, {"failed": traceback.format_exc()})
    return 0


def _ready(variant: Any) -> dict[str, str]:
    variant.prepare()
    found = {"python": sys.version.split()[0]}
    for package in REPORTED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _answer(to: Any, payload: dict[str, Any]) -> None:
    to.write(json.dumps(payload) + "\n")


if __name__ == "__main__":
    sys.stdout.flush()
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # Exporters and background threads of peers have nothing to do any more, and some take their time for it.
    os._exit(code)
