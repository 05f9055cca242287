"""The other side: a gateway and a sink, each a process of its own, so that the books have nothing of theirs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Gateway", "Sink"]

READY = 30.0


class Gateway:
    """``python -m soak.gateway``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "soak.gateway"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.base_url: str = self._line()["base_url"]

    def count(self) -> dict[str, Any]:
        """Return its requests by model, and the connections that are open."""
        assert self._process.stdin is not None
        self._process.stdin.write("count\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the gateway has ended: {self._process.wait()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


class Sink:
    """``python -m soak.sink``, which is killed, or stopped, and comes back on the same port with the same books."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self._port: int = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False
        self.deaths = {"killed": 0, "stopped": 0}
        self.come_back()

    @property
    def away(self) -> bool:
        """Whether nobody answers there now."""
        return self._process is None or self._stopped

    def die(self, how: str) -> None:
        """Be ``killed``, so that connections are refused, or ``stopped``, so that they are taken and not answered."""
        assert self._process is not None
        self.deaths[how] += 1
        if how == "stopped":
            self._stopped = True
            self._process.send_signal(signal.SIGSTOP)
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def come_back(self) -> None:
        """Answer again."""
        if self._stopped and self._process is not None:
            self._stopped = False
            self._process.send_signal(signal.SIGCONT)
        elif self._process is None:
            command = [sys.executable, "-m", "soak.sink", str(self._port), str(self._folder)]
            self._process = subprocess.Popen(command, text=True)
            _until_it_listens(self._port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _until_it_listens(port: int) -> None:
    deadline = time.monotonic() + READY
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"nobody listens on port {port}")
