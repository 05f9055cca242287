"""Servers that a test starts as a program of its own, and asks over HTTP."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import stallwatch
from support.leaks import wait_until

__all__ = ["LAUNCH", "TELEMETRY", "Server", "environment", "free_port", "outcomes", "serving"]

LAUNCH = "from opentelemetry.instrumentation.auto_instrumentation import run\nrun()\n"
"""The program ``opentelemetry-instrument``; the command of that name may not be on the path."""

TELEMETRY = {
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_BSP_SCHEDULE_DELAY": "200",
    "STALLWATCH_FIRST_TOKEN_TIMEOUT": "0.5",
    "STALLWATCH_IDLE_TIMEOUT": "0.3",
}
"""Of a program that is launched by it: spans go to its output."""

_SOURCE = Path(stallwatch.__file__).parent.parent
_TESTS = Path(__file__).parent.parent


def environment(here: Path, **variables: str) -> dict[str, str]:
    """What a program gets that imports ours, the tests' and those in ``here``."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "STALLWATCH_"))
    }
    paths = os.pathsep.join(map(str, (_SOURCE, _TESTS, here)))
    return {**kept, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore", **variables}


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Server:
    """A running server and what it wrote."""

    def __init__(self, port: int, log: Path) -> None:
        self._port = port
        self._log = log

    def get(self, path: str = "/") -> str:
        """The body of the answer."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=40) as answer:
            body: str = answer.read().decode()
            return body

    @property
    def log(self) -> str:
        """Everything it has written so far."""
        return self._log.read_text()


@contextmanager
def serving(here: Path, *command: str, **variables: str) -> Iterator[Server]:
    """Run ``python -m command``, in which ``PORT`` is the port to listen on, until the block ends."""
    port, log = free_port(), here / "server.log"
    words = [word.replace("PORT", str(port)) for word in command]
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=here,
            env=environment(here, **variables),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    server = Server(port, log)
    try:
        wait_until(lambda: process.poll() is not None or _listens(port), lambda: server.log, 40)
        assert process.poll() is None, server.log
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the server did not end:\n{server.log}") from None


def outcomes(log: str) -> list[str]:
    """The outcomes of all spans that a program has written."""
    spans = [json.loads(text) for text in re.findall(r"(?ms)^\{$.*?^\}$", log)]
    return sorted(span["attributes"].get("stallwatch.outcome", span["name"]) for span in spans)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
