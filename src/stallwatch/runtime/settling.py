"""How a wait that did not end in a chunk is told: by the recorded reason, never by what surfaced.

The same interrupt comes out as a protocol error, a read error, a read timeout, a connection error or even a clean end
of the body, depending on transport and framing. So the record made before the interrupt decides; without a record the
error is not ours and is handed on as the very object it is.
"""

from __future__ import annotations

from stallwatch.core.phases import Stall, Whole
from stallwatch.core.words import Outcome
from stallwatch.errors import RunCancelledError, StreamTimeoutError
from stallwatch.runtime.inflight import InFlight

__all__ = ["cause_of", "settle"]


def settle(run: InFlight, error: BaseException) -> BaseException | None:
    """End ``run`` for what surfaced; return what to raise, or None when the stream shall end quietly."""
    if isinstance(error, GeneratorExit):
        run.end(Outcome.CLOSED_EARLY)
        return error
    if not isinstance(error, (Exception, StopIteration)):
        # KeyboardInterrupt, SystemExit, a task cancel of any kind: the user's, and it wins over any record.
        run.end(Outcome.CANCELLED)
        return error
    if run.cancelled and not run.closed:
        # Whatever surfaced, a stall of the same moment included, came of the cancel or came too late.
        run.end(Outcome.CANCELLED)
        return error if isinstance(error, RunCancelledError) else run.cancel_error()
    if run.closed and run.ended:
        return _closed_under_it(run, error)
    pending = run.pending
    if isinstance(pending, Whole):
        run.end_of_body()
        return None
    # What is raised is of whoever ended the run: a close in another thread may come first at any moment.
    if isinstance(error, StreamTimeoutError):
        # Raised by a seam below, between attempts.
        ended = run.end(Outcome.STALLED, error)
        return _explained(run, error) if ended or not run.closed else _closed_under_it(run, error)
    if isinstance(pending, Stall):
        ours = run.timeout_error(pending)
        ended = run.end(Outcome.STALLED, ours)
        return _explained(run, ours) if ended or not run.closed else _closed_under_it(run, error)
    if run.closed and not run.orphaned:
        run.end_by_close(cancelled=False)
        return _closed_under_it(run, error)
    run.end(Outcome.FAILED, error)
    return error


def _closed_under_it(run: InFlight, error: BaseException) -> BaseException:
    """The user closed the response under this wait, from elsewhere, and that may have been after a cancel."""
    outcome = run.tracker.outcome
    # None for the moment in which another thread writes it.
    cancelled = run.cancelled if outcome is None else outcome is Outcome.CANCELLED
    return run.cancel_error() if cancelled else error


def _explained(run: InFlight, error: StreamTimeoutError) -> StreamTimeoutError:
    following = run.following
    if following is not None and error.decision is None:
        error.not_tried_again(following.decision.value)
    return error


def cause_of(surfaced: BaseException) -> BaseException | None:
    """Return what our own error is raised from: what surfaced, unless that says nothing."""
    return surfaced if isinstance(surfaced, Exception) and not isinstance(surfaced, _ENDS) else None


_ENDS = (StopIteration, StopAsyncIteration)
