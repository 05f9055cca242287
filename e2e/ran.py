"""What tests are given of the traffic that was run for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from e2e.application import Answered
from e2e.prometheus import Prometheus, Series
from e2e.stack import Stack
from stallwatch.testing import Ledger

__all__ = ["Collected", "Ran"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The traffic after it has ended and everything about it has arrived where it goes, by whichever path.

    Prometheus is asked as of that moment: a collector forgets a program that has ended, and a program that has ended
    cannot be scraped.
    """

    prometheus: Prometheus
    job: str
    """What Prometheus calls the program ..."""
    instance: str
    """... and its process."""
    answered: list[Answered] = field(repr=False)
    ledger: Ledger = field(repr=False)
    began: float
    ended: float
    settled: float
    """The moment, in Unix seconds."""
    program: str = field(repr=False)
    """What the program wrote."""
    exposition: str = field(repr=False)
    """What Prometheus was told of the program at that moment, with exemplars if there are any ..."""
    plain: str = field(repr=False)
    """... and what an older one would have been told."""

    def query(self, expr: str) -> list[tuple[Series, float]]:
        """Return the series and values of an instant query."""
        return self.prometheus.query(expr, self.settled)

    def by(self, label: str, expr: str) -> dict[str, float]:
        """Return the values of an instant query by one of its labels."""
        return self.prometheus.by(label, expr, self.settled)

    @property
    def span(self) -> int:
        """Seconds back from the moment in which everything lies."""
        return int(self.settled - self.began) + 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected(Ran):
    """The traffic of which metrics and traces went through the collector."""

    stack: Stack

    def traces(self, case: str) -> list[str]:
        """Return the traces of a case."""
        return [one.trace for one in self.answered if one.case == case]
