"""The user's handle over everything inside it.

A run is cancelled by its user, or ends by its total; an attempt is interrupted by a stall, or by losing a hedge. These
are two handles on purpose: interrupting an attempt never touches the run, so what follows it is not born aborted, and a
cancelled run starts no attempt at all.

``cancel`` may be called from anywhere, a signal handler included, which may have interrupted this very module. So it
takes no lock: it sets the reason and leaves the waking to the helper thread (see ``runtime.waker``). Whoever waits
looks at the reason first, so nothing depends on how soon the thread comes.

Calls are listed while they last; they hold nothing of the user's. Runs form a tree by nesting: a cancel reaches all
that is inside, the nearest deadline counts, and the outermost cancelled run gives the reason.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import ParamSpec, Protocol, Self, TypeVar

from stallwatch.clock import monotonic
from stallwatch.core.deadlines import Until
from stallwatch.durations import Duration, seconds
from stallwatch.errors import RunCancelledError
from stallwatch.runtime import waker

__all__ = ["Member", "Run", "current_run"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Member(Protocol):
    """A call inside a run."""

    def wake(self) -> bool:
        """Wake whoever waits for this call, in the helper thread; the reason has been set before.

        True when somebody still waits and is to be woken again.
        """
        ...


class Run:
    """Bounds and cancels every instrumented call made inside its ``with`` (or ``async with``) block.

    ``total`` is wall clock from the block's beginning, in seconds (or ``"2m"``, timedelta; None or 0 for no limit): a
    call that waits when it is spent raises TotalTimeoutError, and none is started afterwards. It ends no code of your
    own. ``name`` is for your logs. Calls belong to the innermost run they are made in, in this thread or task and in
    tasks started inside; for threads see ``bind``. A call goes on belonging to it when it is read outside. Raises
    ValueError for a bad ``total`` and RuntimeError when entered twice.
    """

    def __init__(self, *, total: Duration | None = None, name: str | None = None) -> None:
        self.total = seconds("total", total)
        self.name = name
        self._reason: str | None = None
        self.set_by = "run"
        """Who set the total, as errors tell it; before the block is entered."""
        self._outer: Run | None = None
        self._until: Until | None = None
        self._entered = self._exited = False
        self._token: Token[Run | None] | None = None
        self._lock = threading.Lock()
        self._members: dict[int, Member] = {}
        # Not a WeakSet: its callbacks swallow a Ctrl-C that comes in just then.
        self._inner: list[weakref.ref[Run]] = []

    def __repr__(self) -> str:
        name = "" if self.name is None else f" {self.name!r}"
        state = f"cancelled: {self.reason}" if self.cancelled else "open" if self._open else "not open"
        return f"<Run{name} {state}>"

    # What users do

    def cancel(self, reason: str = "cancelled") -> None:
        """End every call inside, and start none any more; safe in any thread, task and signal handler.

        Whoever waits in such a call gets RunCancelledError within moments; whoever does not, at its next step. The
        first reason counts. Returns at once.
        """
        if self._reason is None:
            self._reason = str(reason)
        # Nobody can join between this look and the flag unseen: whoever joins looks at the flag afterwards.
        if self._members or self._inner:
            waker.soon(self._deliver)

    @property
    def cancelled(self) -> bool:
        """Whether this run, or one around it, was cancelled."""
        return self.reason is not None

    @property
    def reason(self) -> str | None:
        """The reason given to ``cancel``, of the outermost run that was cancelled; None while none was."""
        outer = None if self._outer is None else self._outer.reason
        return self._reason if outer is None else outer

    @property
    def title(self) -> str | None:
        """The name of this run, or of the nearest around it that has one."""
        if self.name is not None or self._outer is None:
            return self.name
        return self._outer.title

    def remaining(self) -> float | None:
        """Return the seconds left until the nearest deadline, never less than 0; None when there is none."""
        until = self.until
        return None if until is None else max(until.at - monotonic(), 0.0)

    def raise_if_cancelled(self) -> None:
        """Raise RunCancelledError if the run was cancelled: for loops of your own."""
        reason = self.reason
        if reason is not None:
            raise RunCancelledError(reason)

    def bind(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return ``function`` so that it runs inside this run, in whichever thread it is called."""

        def inside(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            token = _current.set(self)
            try:
                return function(*args, **kwargs)
            finally:
                _current.reset(token)

        return inside

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a Run can be entered once: make a new one for each block")
        self._entered = True
        outer = self._outer = current_run()
        if self.total is not None:
            self._until = Until(at=monotonic() + self.total, total=self.total, set_by=self.set_by)
        if outer is not None:
            with outer._lock:
                outer._inner = [each for each in outer._inner if each() is not None]
                outer._inner.append(weakref.ref(self))
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exited = True
        token, self._token = self._token, None
        # Blocks may be left in any order; the one that is open stays.
        if token is not None and _current.get() is self:
            try:
                _current.reset(token)
            except ValueError:
                # Left in another context than it was entered in, as generators and some frameworks do; being over is
                # enough to be passed by there.
                pass

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    # What calls do

    @property
    def until(self) -> Until | None:
        """The nearest deadline of this run and those around it."""
        outer = None if self._outer is None else self._outer.until
        mine = self._until
        if mine is None or outer is None:
            return outer if mine is None else mine
        return mine if mine.at <= outer.at else outer

    @property
    def _open(self) -> bool:
        return self._entered and not self._exited

    def join(self, member: Member) -> None:
        """List a call. It must look at ``cancelled`` after that: a cancel in between would not wake it."""
        with self._lock:
            self._members[id(member)] = member

    def leave(self, member: Member) -> None:
        """Forget a call that has ended. Safe inside finalisers, hence without a lock."""
        self._members.pop(id(member), None)

    def _deliver(self) -> None:
        """Wake everybody inside; in the helper thread."""
        with self._lock:
            members, inner = list(self._members.values()), list(self._inner)
        for member in members:
            waker.insist(member.wake)
        for reference in inner:
            run = reference()
            if run is not None:
                run._deliver()


_current: ContextVar[Run | None] = ContextVar("stallwatch_run", default=None)


def current_run() -> Run | None:
    """Return the innermost run whose block is open in this thread or task; None outside any."""
    run = _current.get()
    while run is not None and run._exited:
        run = run._outer
    return run
