"""A helper thread outlives what fails in it: without it nothing would be swept, or woken, in all the process."""

from __future__ import annotations

import logging
import threading

import pytest

from stallwatch.runtime import helper_thread
from stallwatch.runtime.helper_thread import HelperThread
from support.places import eventually


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_thread, "_LONGEST_SLEEP", 0.02)


@pytest.mark.usefixtures("short")
def test_a_look_that_fails_is_told_once_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    looks: list[float] = []
    failing = threading.Event()
    failing.set()

    def look(now: float) -> float | None:
        looks.append(now)
        if failing.is_set():
            raise TypeError("of no loop we know")
        return None

    thread = HelperThread("stallwatch-tested", look)
    done = threading.Event()
    with caplog.at_level(logging.WARNING, logger="stallwatch"):
        thread.ensure_running()
        eventually(lambda: len(looks) > 3)
        thread.soon(done.set)
        assert done.wait(5)
    told = [record.getMessage() for record in caplog.records]
    # Looked at; nothing else is to be logged.
    caplog.clear()
    assert len(told) == 1
    assert "stallwatch-tested" in told[0]
    assert "TypeError" in told[0]
    failing.clear()
    # It ends by itself, as one whose looks never failed.
    eventually(lambda: not any(each.name == "stallwatch-tested" for each in threading.enumerate()))
