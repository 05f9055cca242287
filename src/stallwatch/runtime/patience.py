"""Asynchronous headers: the transport's timeout at our deadline is judged before it counts.

Until the headers are in, the transport's own, tightened read timeout speaks first, because the SDK then retries. It is
a bare timer: a process that was stopped, or a loop that was blocked, finds it expired beside bytes that have long
arrived. So for as long as headers are awaited, ``read`` of the network stream is shadowed on that instance, and what
is no stall yet is read again. No data is lost by that: a read that timed out has taken nothing. The watch of the
waiting task (see ``async_guard``) stays behind it as the bound.
"""

from __future__ import annotations

from typing import Any

from stallwatch.clock import monotonic
from stallwatch.core.judging import GRACE, Judge, Judgement
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.interrupt import is_readable
from stallwatch.runtime.task_waiter import waiter_of

__all__ = ["PatientReads"]

_TURN = 0.005
"""Seconds for one more turn; enough for bytes that lie in the kernel."""

_EARLY = 0.005
"""Seconds; a transport may report a timeout that much before our clock has reached it."""


class PatientReads:
    """The shadow of one asynchronous network stream while ``run`` awaits headers on it."""

    __slots__ = ("_judge", "_read", "_run", "_stream")

    def __init__(self, stream: Any, run: InFlight) -> None:
        self._stream = stream
        self._run = run
        self._read = stream.read
        self._judge = Judge()

    @classmethod
    def install(cls, stream: Any, run: InFlight) -> None:
        """Shadow ``stream`` for ``run``, where there is one and it can be shadowed."""
        if stream is None:
            return
        shadow = cls(stream, run)
        try:
            stream.read = shadow.read
        except AttributeError:
            return
        run.shadow = shadow

    def remove(self) -> None:
        """Make the stream what it was."""
        attributes = self._stream.__dict__
        if attributes.get("read") == self.read:
            del attributes["read"]

    def forget(self) -> None:
        """This is a forked child, and nobody reads here."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read; raises the HTTP library's own errors."""
        while True:
            try:
                data: bytes = await self._read(max_bytes, timeout=timeout)
            except Exception as error:
                more = self._more_time() if type(error).__name__ == "ReadTimeout" else None
                if more is None:
                    raise
                timeout = more
            else:
                run = self._run
                if run.headers_in and run.source is None and not run.ended:
                    run.on_bytes_below(data)
                    # The first of them may bring the deadline closer.
                    waiter_of(run).look_ahead()
                return data

    def _more_time(self) -> float | None:
        run, now = self._run, monotonic()
        due = run.due()
        if due is None or now + _EARLY < due.at:
            # The user's own, tighter timeout: it is not ours to judge.
            return None
        ruling = self._judge.rule(
            now,
            due.at,
            wait=run.tracker.wait_from or 0.0,
            received=run.received,
            readable=is_readable(self._stream.get_extra_info("socket")),
        )
        return {Judgement.AGAIN: _TURN, Judgement.GRANT: GRACE}.get(ruling)
