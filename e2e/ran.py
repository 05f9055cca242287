"""What tests are given of the traffic that was run for all of them."""

from __future__ import annotations

from dataclasses import dataclass

from e2e.application import Answered
from e2e.stack import Stack
from stallwatch.testing import Ledger

__all__ = ["Ran"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The traffic after it has ended and everything about it has arrived where it goes."""

    stack: Stack
    answered: list[Answered]
    ledger: Ledger
    began: float
    ended: float
    program: str
    """What the program wrote."""

    def traces(self, case: str) -> list[str]:
        """Return the traces of a case."""
        return [one.trace for one in self.answered if one.case == case]
