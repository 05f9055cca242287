"""Python programs run in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import stallwatch
from support import http_library

__all__ = ["Child", "spawn"]

_SOURCE = Path(stallwatch.__file__).parent.parent
_TESTS = Path(__file__).parent.parent


class Child:
    """A running program; it says what it has to say as lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> Any:
        """The next thing it said."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=10)
        return json.loads(line)

    def finish(self, within: float = 15.0) -> tuple[list[Any], str]:
        """Wait for its end, which must be a success; return what it said since the last ``line`` and its stderr."""
        process = self.process
        assert process.stdout is not None
        assert process.stderr is not None
        # Not by ``communicate``: it reads below the buffer in which ``line`` may have left what came together.
        with ThreadPoolExecutor(2) as reading, process.stdout, process.stderr:
            out_read, err_read = reading.submit(process.stdout.read), reading.submit(process.stderr.read)
            try:
                process.wait(within)
                late = False
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                late = True
            out, err = out_read.result(), err_read.result()
        assert not late, f"the program did not end within {within:g} s:\n{out}\n{err}"
        assert self.process.returncode == 0, (self.process.returncode, out, err)
        return [json.loads(line) for line in out.splitlines()], err


def spawn(
    program: str, *arguments: str, options: tuple[str, ...] = (), asked: bool = False, **environment: str
) -> Child:
    """Start ``program`` (source text) with ``arguments``; it can import what tests can.

    With ``asked`` its stdin is a pipe.
    """
    if http_library.legacy():
        program = f"from support import http_library\nhttp_library.use()\n{program}"
    paths = os.pathsep.join((str(_SOURCE), str(_TESTS)))
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "STALLWATCH_"))
    }
    return Child(
        subprocess.Popen(
            [sys.executable, *options, "-c", program, *arguments],
            stdin=subprocess.PIPE if asked else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", **environment},
        )
    )
