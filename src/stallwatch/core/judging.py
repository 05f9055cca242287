"""Whether a wait that passed its deadline is a stall, or only looks like one.

Rules, in this order
--------------------
1. The reader is about to run (its waiter is done): let it, without limit.
2. The response is already closed by the user, bytes lie in the socket, or the byte seam counted new bytes: let the
   reader read and judge again, until both ``ROUNDS`` rounds and ``PATIENCE`` seconds are used up. Both, because where
   one round takes long (a busy loop) time alone runs out before the reader had its turns, and where rounds are quick
   a count alone runs out before the bytes could be parsed. A deadline that bytes have moved starts with none used.
3. The timer itself fired late (a blocked loop, a stopped process, a suspended machine): grant ``GRACE`` once, for data
   that is still on its way. Once for each deadline: what comes within the grace may move the deadline and may not
   (heartbeats; the total), and the next wait has then passed it before it began. Were that one granted its own, a
   stream whose chunks come faster than the grace would go on for ever.
   The same holds for rules 1 and 2: what has been used up stays so in the waits after it, until bytes move the
   deadline. Else a flood of heartbeats, each of which ends a wait, would always be given its turns anew.
4. Otherwise it is a stall.

Rule 1 alone misses a stopped process (the bytes are in the kernel), rule 2 alone misses a blocked loop (the bytes
have left it), rule 3 alone misses a block that began just before the deadline. The drivers bring the observations;
nothing here looks at a socket or a clock.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["GRACE", "LATE", "PATIENCE", "ROUNDS", "Judge", "Judgement"]

ROUNDS = 10
PATIENCE = 0.05
LATE = 0.05
GRACE = 0.05


class Judgement(Enum):
    """What to do about a wait that is due."""

    AGAIN = "again"
    """Let the reader take a turn, then judge again."""

    GRANT = "grant"
    """Wait ``GRACE`` seconds, then judge again."""

    STALL = "stall"


class Judge:
    """The memory of the judgements of one wait after another."""

    __slots__ = ("_bytes", "_due", "_due_since", "_flooded", "_granted", "_judged", "_rounds", "_wait")

    def __init__(self) -> None:
        self._begin(None)
        self._due_since: float | None = None
        self._judged: float | None = None
        self._rounds = 0
        self._flooded = False

    def _begin(self, wait: float | None) -> None:
        self._wait = wait
        self._due: float | None = None
        self._granted = False
        # No count is like any other, so the first judgement always grants a round: bytes read an instant ago may
        # still be on their way through the decoders.
        self._bytes = -1

    def rule(
        self,
        now: float,
        due: float,
        *,
        wait: float,
        received: int,
        ready: bool = False,
        closed: bool = False,
        readable: bool = False,
    ) -> Judgement:
        """Judge the wait that began at ``wait`` and was due at ``due`` (both monotonic instants).

        ``received`` is the byte seam's running count; the other observations are those of the rules above.
        """
        if wait != self._wait:
            granted = self._granted and due < wait
            # Passed before this wait began, and judged since then: nothing that came has moved it.
            self._flooded = self._judged is not None and due < wait and due <= self._judged
            self._begin(wait)
            self._granted = granted
            self._due = due if self._flooded else None
        if due != self._due:
            self._due = due
            self._due_since = None
            self._rounds = 0
        self._judged = now
        if ready and not self._flooded:
            return Judgement.AGAIN
        if self._due_since is None:
            self._due_since = now
        fresh = received != self._bytes
        self._bytes = received
        spent = self._rounds >= ROUNDS and now - self._due_since >= PATIENCE
        if (closed or readable or fresh or ready) and not spent:
            self._rounds += 1
            return Judgement.AGAIN
        if not self._granted and self._due_since - due > LATE:
            self._granted = True
            return Judgement.GRANT
        return Judgement.STALL
