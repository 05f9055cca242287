"""The properties of this folder under a fuzzer that is guided by coverage: atheris, libFuzzer for Python.

What libFuzzer mutates are the choices that hypothesis makes an example of, so that every input is one that the
properties mean. Coverage is that of stallwatch alone. Played by ``make fuzz``:

    python -m fuzz.guided --minutes 10 [--only streams]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TARGETS = {"streams": 0.5, "answers": 0.2, "parts": 0.3}
"""What is fuzzed, and its share of the time."""

SEEDS = 100

_SEEN = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")


def main() -> int:
    """Fuzz each target in a process of its own; say what came of it, and return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.guided", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=sorted(TARGETS))
    parser.add_argument("--corpus", type=Path, help="a folder to begin with and to keep inputs in")
    options = parser.parse_args()
    chosen = {options.only: 1.0} if options.only else TARGETS
    found = False
    with tempfile.TemporaryDirectory() as folder:
        for target, share in chosen.items():
            corpus = (options.corpus or Path(folder)) / target
            corpus.mkdir(parents=True, exist_ok=True)
            _sow(corpus)
            found |= _child(target, max(round(options.minutes * 60 * share), 1), corpus)
    return int(found)


def _sow(corpus: Path) -> None:
    """Begin with inputs long enough for whole bodies: of a short one hypothesis makes next to nothing."""
    chance = random.Random(0)
    for number in range(SEEDS):
        (corpus / f"seed-{number}").write_bytes(chance.randbytes(chance.choice((128, 512, 2048))))


def _child(target: str, seconds: int, corpus: Path) -> bool:
    command = [sys.executable, "-c", f"from fuzz.guided import fuzz; fuzz({target!r})"]
    limits = [f"-max_total_time={seconds}", "-max_len=4096", "-len_control=0", "-timeout=60"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [*command, *limits, f"-artifact_prefix={corpus}{os.sep}found-", str(corpus)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    rows = _SEEN.findall(done.stderr)
    runs, coverage, features, kept = rows[-1] if rows else ("0", "0", "0", "0")
    print(
        json.dumps(
            {
                "target": target,
                "seconds": seconds,
                "executions": int(runs),
                "branches reached": int(coverage),
                "features": int(features),
                "inputs kept": int(kept),
                "found": done.returncode != 0,
            }
        ),
        flush=True,
    )
    if done.returncode != 0:
        print(done.stdout[-4000:], done.stderr[-6000:], sep="\n", flush=True)
    return done.returncode != 0


def fuzz(target: str) -> None:
    """Fuzz one target; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["stallwatch"]):
        properties = _properties()
    atheris.Setup(sys.argv, properties[target].hypothesis.fuzz_one_input)
    atheris.Fuzz()


def _properties() -> dict[str, Any]:
    from hypothesis import given
    from hypothesis import strategies as st

    from fuzz import test_answers_as_bare, test_pure_parts
    from fuzz.oracle import Answer, Observed, both_ways
    from fuzz.surfaces import PLAIN, RAW_READINGS, READINGS, STREAMED, whole
    from fuzz.wires import wires

    played = Observed()
    readings = [*READINGS.values(), *RAW_READINGS.values()]
    parts = [
        part
        for name, part in vars(test_pure_parts).items()
        if name.startswith("test_") and hasattr(part, "hypothesis")
    ]

    @given(data=st.data())
    def streams(data: st.DataObject) -> None:
        surface = data.draw(st.sampled_from(STREAMED))
        reading = data.draw(st.sampled_from(readings))
        answer = Answer(data.draw(wires(surface.name)))
        bare, guarded = both_ways(played, surface, reading, answer, is_async=data.draw(st.booleans()))
        assert guarded == bare

    @given(data=st.data())
    def answers(data: st.DataObject) -> None:
        surface = data.draw(st.sampled_from(PLAIN))
        status = st.sampled_from([200, 200, 400, 401, 408, 429, 500, 503])
        answer = data.draw(test_answers_as_bare.answers(surface.name, status))
        bare, guarded = both_ways(played, surface, whole, answer, is_async=data.draw(st.booleans()))
        assert guarded == bare

    def one_of_the_parts(data: bytes) -> Any:
        which, rest = data[:1], data[1:]
        return parts[(which[0] if which else 0) % len(parts)].hypothesis.fuzz_one_input(rest)

    return {"streams": streams, "answers": answers, "parts": _Part(one_of_the_parts)}


class _Part:
    """Looks like a property to ``fuzz``: the first byte says which of the parts is meant."""

    def __init__(self, one: Any) -> None:
        self.hypothesis = self
        self.fuzz_one_input = one


if __name__ == "__main__":
    raise SystemExit(main())
