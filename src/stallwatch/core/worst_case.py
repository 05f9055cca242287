"""How long a caller can be kept waiting at the very most, computed from the limits before anything happens.

Rules
-----
* Only waiting counts, as for the limits themselves: what the caller does between two reads is its own time.
* Every attempt is taken to last as long as signs of life without progress may stretch it, and every pause between two
  attempts as long as is ever slept. That is far more than a call usually takes, and it is meant to be: the number is
  for setting the timeout of what stands around the call.
* An attempt is followed by another only while nothing has reached the caller. So retries lengthen the wait for the
  first progress, and never a silence after it.
* Where a limit is off, the total is all that bounds the wait; without a total, nothing does.

The numbers are those of the clocks (see ``phases``). A wait that is judged a stall ends within a tenth of a second of
its deadline, and that is not part of them. The wall-clock limit of a ``Run`` around the call can only shorten them.
"""

from __future__ import annotations

from dataclasses import dataclass

from stallwatch.core.budget import LONGEST_BACK_OFF, LONGEST_SERVER_WAIT
from stallwatch.core.deadlines import Limits

__all__ = ["UNBOUNDED", "WorstCase", "worst_case"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """The longest waits a caller can meet, in seconds; ``None`` is unbounded. The caller's own pauses are not counted.

    ``first_token``: until there is progress or an error, all attempts and the pauses between them included (without
    streaming: until there is the answer or an error). ``silence``: between two chunks with progress. ``total``: in all.
    """

    first_token: float | None
    silence: float | None
    total: float | None


UNBOUNDED = WorstCase(first_token=None, silence=None, total=None)


def worst_case(limits: Limits, retries: int, longest_wait: float = LONGEST_SERVER_WAIT) -> WorstCase:
    """Return the longest waits under ``limits`` with up to ``retries`` retries, the SDK's own included.

    ``longest_wait`` is how long, in seconds, a server is taken to ask for before a retry, or the queue of its route to
    be; a back-off counts in any case.
    """
    attempt = None if limits.first_token is None else limits.extended(limits.first_token)
    pause = max(min(longest_wait, LONGEST_SERVER_WAIT), LONGEST_BACK_OFF)
    first_token = None if attempt is None else attempt * (retries + 1) + pause * retries
    silence = None
    if limits.thinking is not None and limits.idle is not None:
        silence = max(limits.extended(limits.thinking), limits.idle)
    return WorstCase(
        first_token=_within(first_token, limits.total),
        silence=_within(silence, limits.total),
        total=limits.total,
    )


def _within(wait: float | None, total: float | None) -> float | None:
    if wait is None or total is None:
        return total if wait is None else wait
    return min(wait, total)
