"""The retries that the SDK makes by itself, before it has an answer: how many, after how long, and when not at all.

They stay the SDK's. Each is an attempt of the run and is told of; none is started after a cancel or beyond the total,
the server's own wish is kept where a release would come earlier, and where the run may be cancelled the wait between
two attempts is one that wakes.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, TypeGuard

import openai._base_client as base

from stallwatch.clock import monotonic
from stallwatch.core.phases import Stall, Whole
from stallwatch.core.words import Mode, Phase
from stallwatch.runtime import waking
from stallwatch.runtime.attempt import Retries
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.retry_after import Headers
from stallwatch.runtime.retrying import before_sdk_retry
from stallwatch.sdk.attempts import note_transport_timeout

__all__ = ["before_back_off", "raise_if_over", "sleep_between", "with_fewer_retries", "with_retries"]

_EARLY = 0.001
"""Seconds; no attempt is worth starting for less."""


def with_fewer_retries(run: InFlight, client: Any, options: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Count the retries the run may have, and cap the SDK's own where the policy sets a number; never raise them."""
    own = getattr(options, "max_retries", None)
    if not isinstance(own, int) or isinstance(own, bool):
        own = client.max_retries
    wanted = run.retries_wanted
    if wanted is None and run.leg is not None and not run.policy.retries_explicit:
        # The next route is the next try.
        wanted = 0
    allowed = min(own, run.policy.max_retries if wanted is None else wanted)
    capped = (run.policy.retries_explicit or wanted is not None) and run.policy.mode is Mode.ENFORCE
    ours = allowed if run.policy.mode is Mode.ENFORCE else 0
    run.retries = _retries(allowed if capped else own, ours)
    return with_retries(allowed, args, kwargs) if capped else (args, kwargs)


@lru_cache(maxsize=64)
def _retries(by_sdk: int, allowed: int) -> Retries:
    # Shared: a run keeps it as long as its stream is open.
    return Retries(by_sdk=by_sdk, allowed=allowed)


def with_retries(retries: int, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of the SDK's ``request``, with so many retries allowed."""
    options = args[1] if len(args) > 1 else kwargs["options"]
    changed = options.model_copy() if hasattr(options, "model_copy") else options.copy()
    changed.max_retries = retries
    if len(args) > 1:
        return (args[0], changed, *args[2:]), kwargs
    return args, {**kwargs, "options": changed}


def before_back_off(run: InFlight, headers: Headers | None, delay: float) -> float:
    """The SDK has chosen to wait ``delay`` seconds and to try again; return how long it shall wait.

    Called in the handler of what the failed attempt raised. Raises instead when the run is over.
    """
    error = sys.exc_info()[1]
    note_transport_timeout(run, error)
    raise_if_over(run, error)
    wanted = before_sdk_retry(run, error, headers, delay)
    _raise_if_total_spent(run)
    return wanted


def sleep_between(run: InFlight, delay: float, *, url: str, left: int) -> None:
    """Wait as the SDK would, but so that a cancel or close wakes; raises when there was one.

    ``left`` retries are left. Called in the handler of what the failed attempt raised.
    """
    base.log.info("Retrying %s in %f seconds, %i retries left", url, delay, left)
    waking.sleep(run, delay)
    raise_if_over(run, sys.exc_info()[1])


def raise_if_over(run: InFlight, error: BaseException | None = None) -> None:
    """Raise if the run may start no further attempt: cancelled, its total spent, or closed by its user."""
    if run.scope is None and run.leg is None and not run.tracker.attempts:
        # Its first: nothing can have ended it.
        return
    if run.cancelled:
        raise run.cancel_error()
    if run.closed and error is not None:
        raise error
    _raise_if_total_spent(run)


def _raise_if_total_spent(run: InFlight) -> None:
    # No sleep and no attempt outlives the total. It is found once; an attempt may have ended by it already.
    spent = run.pending
    if not _is_total(spent):
        spent = run.tracker.judge(monotonic() + _EARLY)
        if not _is_total(spent) or not run.note(spent):
            return
    raise run.timeout_error(spent)


def _is_total(found: Stall | Whole | None) -> TypeGuard[Stall]:
    return isinstance(found, Stall) and found.phase is Phase.TOTAL
