"""Starting programs, and stopping exactly those, whatever happens in between.

Every child carries a mark in its environment, so that a leftover of any depth can be found, and the kernel ends it if
the test run itself is killed. Output goes to files: they are shown when something does not come up, and searched for
what must not be in them.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from types import TracebackType
from typing import Self

__all__ = ["MARK", "Process", "Processes", "clean_environ", "free_ports", "leftovers"]

MARK = "E2E_TEST_RUN"
_RUN = uuid.uuid4().hex
_GRACE = 15.0
"""Seconds a program has to end by itself once asked to."""

_SETPRIV = which("setpriv")
_DIE_WITH_PARENT = () if _SETPRIV is None else (_SETPRIV, "--pdeathsig", "KILL", "--")
"""For the case that the test run itself is killed; where there is no such program, children are left then."""


class Process:
    """A running program, its name and its output."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*_DIE_WITH_PARENT, *command],
                env={**env, MARK: _RUN},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    def text(self) -> str:
        """Return everything it has written."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def told(self) -> str:
        """Return the end of what it has written, for a message."""
        return f"\n--- {self.name}, exit code {self._popen.poll()}:\n{self.text()[-3000:]}"

    def wait(self, seconds: float) -> int:
        """Wait for its own end and return the exit code; raises AssertionError if it does not come."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {seconds:g} s{self.told()}") from None

    def kill(self) -> None:
        """End it as a crash would."""
        self._popen.kill()
        self._popen.wait()

    def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        if not self.running:
            return
        self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()


class Processes:
    """Everything started through it; stops it all on leaving, newest first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Process] = []

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """Start a program; its output goes to ``NAME.log`` in the folder, after that of an earlier one so named."""
        process = Process(
            name, command, clean_environ() if env is None else env, self._folder / f"{name}.log"
        )
        self._all.append(process)
        return process

    def logs(self) -> dict[str, str]:
        """Return what each of them has written, by name."""
        return {process.name: process.text() for process in self._all}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._all):
            process.stop()


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nobody listens on now.

    They lie below those that the kernel gives to clients, so that no connection takes one before its server does, or
    while that is being started again.
    """
    found: list[int] = []
    for port in random.sample(range(15_000, 32_000), 1_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _TAKEN:
            _TAKEN.add(port)
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"{count} free ports could not be found")


_TAKEN: set[int] = set()


def clean_environ() -> dict[str, str]:
    """Return the surrounding environment without what would bend the programs: keys, proxies, telemetry settings."""
    bending = ("OPENAI_", "AZURE_OPENAI_", "STALLWATCH_", "OTEL_", "COLLECTOR_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(bending) and not name.upper().endswith("_PROXY")
    }


def leftovers() -> list[str]:
    """Return the command lines of processes of this test run that are still there (Linux only)."""
    mark = f"{MARK}={_RUN}".encode()
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            # Gone in the meantime, or not ours to look at.
            continue
    return [command for command in found if command]
