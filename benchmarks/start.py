"""How long ``import stallwatch`` takes beyond what it must import, and instrumenting: a new process for each round."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.alternating import ROOT, Spread

PROGRAM = """
import json, sys, time
import openai, wrapt
import opentelemetry.trace, opentelemetry.metrics, opentelemetry.context
import opentelemetry.instrumentation.instrumentor
# The clients' modules, which the SDK imports on first use.
openai.OpenAI, openai.AsyncOpenAI
known = set(sys.modules)
began = time.perf_counter(), time.process_time()
import stallwatch
imported = time.perf_counter(), time.process_time()
stallwatch.OpenAIInstrumentor().instrument()
done = time.perf_counter(), time.process_time()
print(json.dumps({
    "import": 1e3 * (imported[1] - began[1]),
    "instrument": 1e3 * (done[1] - imported[1]),
    "modules": len(set(sys.modules) - known),
    "foreign": sorted({name.partition(".")[0] for name in set(sys.modules) - known} - {"stallwatch"}),
}))
"""


def measured(rounds: int) -> dict[str, Spread]:
    """Return milliseconds of CPU for the import and for instrumenting, by round."""
    # Compiled once, as an installed package is; a machine may be told to write no bytecode.
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    found = []
    # The first one writes bytecode.
    for _ in range(rounds + 1):
        told = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
        )
        found.append(json.loads(told.stdout))
    return {what: Spread.of([one[what] for one in found[1:]]) for what in ("import", "instrument", "modules")}


if __name__ == "__main__":
    for what, spread in measured(7).items():
        print(
            f"{what:12} {spread.median:.1f} [{spread.low:.1f} .. {spread.high:.1f}], least {spread.least:.1f}"
        )
