"""The harness itself: what it starts it stops, also when a test fails, and a wait says what did not come."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from e2e.processes import Processes, free_ports, leftovers
from e2e.waiting import until

SLEEP = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEP}"


def test_a_failing_test_leaves_nothing_running(folder: Path) -> None:
    def failing() -> None:
        with Processes(folder) as processes:
            processes.start("sleeper", [sys.executable, "-c", SLEEP])
            until(lambda: any(SLEEP in command for command in leftovers()), "it is there", seconds=10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert not any(SLEEP in command for command in leftovers())


def test_what_does_not_end_when_asked_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("e2e.processes._GRACE", 0.5)
    with Processes(folder) as processes:
        process = processes.start("deaf", [sys.executable, "-c", DEAF])
        until(process.text, "it does not listen any more", seconds=10)
    assert not process.running


def test_a_wait_says_what_did_not_come() -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: tea .*no such file.* pot is cold"):
        until(_missing, "tea", seconds=0, telling=lambda: "pot is cold")


def _missing() -> bool:
    raise FileNotFoundError("no such file")


def test_ports_are_not_given_twice() -> None:
    assert len({*free_ports(20), *free_ports(20)}) == 40
