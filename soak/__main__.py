"""``python -m soak``: a service under mixed traffic, its model server and its collector, and the books of all three."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from soak.books import Soaked, rows
from soak.judging import Row
from soak.servers import Gateway, Sink
from soak.sink import received

WARM_UP = 3
"""Rounds whose readings are not judged."""
MOST = 30
"""Rounds in which growth is told from noise."""
AWAY = 3.5
"""Seconds that the sink is away: longer than the exporter tries, so that it refuses spans."""
REST = 5.0
"""Seconds that a round takes besides its calls: the last of them, and the helper threads until they end themselves."""


def main() -> int:
    """Return 0 if all rows hold."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long it takes, about (default 10)")
    parser.add_argument("--together", type=int, default=200, help="calls at a time (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the dice that pick calls (default 1)")
    options = parser.parse_args()
    rounds = max(8, min(MOST, round(options.minutes * 60 / 24)))
    plan = {
        "rounds": rounds,
        "seconds": max(options.minutes * 60 / rounds - REST, 2.0),
        "together": options.together,
        "seed": options.seed,
    }
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Gateway() as gateway, Sink(Path(folder)) as sink:
        soaked = _Watch(gateway, sink, Path(folder), plan).play()
        deaths = sink.deaths
    table = rows(soaked)
    calls, seconds = sum(soaked.told["calls"].values()), time.monotonic() - began
    print(f"\n{calls} calls, {options.together} at a time, in {seconds:.0f} s")
    print(f"the sink was killed {deaths['killed']} times and stopped {deaths['stopped']} times\n")
    _show(table)
    failed = [row for row in table if not row.holds]
    for row in failed:
        print(f"\nFAILED: {row.what}: {row.found}; allowed: {row.allowed}")
    return 1 if failed else 0


class _Watch:
    """Runs the program, has the sink die in every round, and shows what goes on."""

    def __init__(self, gateway: Gateway, sink: Sink, folder: Path, plan: dict[str, Any]) -> None:
        self._gateway, self._sink, self._folder, self._plan = gateway, sink, folder, plan
        self._began = time.monotonic()
        self._rests: list[dict[str, Any]] = []
        self._death = threading.Timer(0, str)
        plan.update(base_url=gateway.base_url, sink=sink.url)
        self._program = subprocess.Popen(
            [sys.executable, "-m", "soak.program", json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # An arena for each of a hundred threads keeps what it once had; with few of them growth can be seen.
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        )

    def play(self) -> Soaked:
        """Return all books."""
        assert self._program.stdout is not None
        try:
            for line in self._program.stdout:
                told = json.loads(line)
                if "ended" in told:
                    gateway = self._at_rest()
                    self._answer()
                    break
                self._take(told)
            else:
                raise SystemExit(f"the program has ended: {self._program.wait()}")
            if code := self._program.wait(60):
                raise SystemExit(f"the program has ended with {code}")
        finally:
            self._program.kill()
            self._program.wait()
        return Soaked(
            rests=self._rests[WARM_UP - 1 :], told=told, gateway=gateway, sink=received(self._folder)
        )

    def _take(self, told: dict[str, Any]) -> None:
        if "round" in told:
            # Away for longer than the exporter tries, and back before the end of the round.
            how = "stopped" if told["round"] % 2 else "killed"
            self._death = threading.Timer(self._plan["seconds"] * 0.2, self._go_away, [how])
            self._death.start()
        elif "resting" in told:
            self._death.join()
            self._answer()
        elif "rest" in told:
            self._rests.append(told)
            self._tell(f"rest {told['rest'] + 1} of {self._plan['rounds']}: " + _at_rest(told))
        else:
            self._tell(
                f"{told['made']} calls, {told['open']} open, {told['spans']} spans, {told['resident'] >> 20} MiB"
                + (", the sink is away" if self._sink.away else "")
            )

    def _go_away(self, how: str) -> None:
        self._sink.die(how)
        time.sleep(AWAY)
        self._sink.come_back()

    def _answer(self) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write("\n")
        self._program.stdin.flush()

    def _at_rest(self) -> dict[str, Any]:
        """The gateway's books, once it has seen the last connection go."""
        deadline = time.monotonic() + 5
        while (said := self._gateway.count())["open"] and time.monotonic() < deadline:
            time.sleep(0.05)
        return said

    def _tell(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:5.0f} s  {line}", flush=True)


def _at_rest(told: dict[str, Any]) -> str:
    memory = f"{told['resident'] / 2**20:.1f} MiB, of Python's objects {told['traced'] / 2**20:.2f}"
    names = ("descriptors", "threads", "tasks", "runs", "spans")
    return f"{told['calls']} calls, {memory}; " + ", ".join(f"{told[name]} {name}" for name in names)


def _show(table: list[Row]) -> None:
    widths = [max(len(str(getattr(row, name))) for row in table) for name in ("what", "found", "allowed")]
    for row in table:
        cells = (row.what, row.found, row.allowed)
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print(f"{'ok    ' if row.holds else 'FAILED'}  {line}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
