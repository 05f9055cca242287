"""The objective: what is promised, and every number that an alert compares with.

The service level is the share of streams that do not end in a stall, of whatever phase ("idle timeout" in the names
of alerts). How fast its budget burns is looked at over a long and a short window at once: the long one says that it
matters, the short one that it is still going on. The factors follow from how much of the period's budget may be gone
before somebody is told; the shares and windows are those the SRE workbook recommends. A ratio of few streams is noise,
so a burn is believed only with enough stalls in its long window, and below that an alert counts instead.

Change numbers here, or by the generator's options, and not in PromQL. What could never fire is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from stallwatch import catalogue
from stallwatch.core.deadlines import Limits
from stallwatch.resolution import BACKSTOP_MARGIN, BUILT_IN, HIDDEN_REASONING

WINDOWS = ("5m", "30m", "1h", "6h", "3d")
"""In which stalled streams are counted."""
HOURS = {"5m": 1 / 12, "10m": 1 / 6, "30m": 0.5, "1h": 1.0, "6h": 6.0, "3d": 72.0}
"""How many hours a window is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """A speed at which the budget must not burn: ``spent`` of it gone within the ``long`` window."""

    long: str
    short: str
    spent: float


FAST = Burn(long="1h", short="5m", spent=0.02)
SUSTAINED = Burn(long="6h", short="30m", spent=0.05)
SLOW = Burn(long="3d", short="6h", spent=0.10)


def longest_wait() -> float:
    """Return the longest wait in seconds that the built-in deadlines allow, keepalive extension included."""
    waits = []
    for deadlines in (BUILT_IN.deadlines, HIDDEN_REASONING):
        limits = {name: getattr(deadlines, name) for name in ("connect", "first_token", "thinking", "idle")}
        waits.append(Limits(**limits).longest_silence())
    return max(waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is promised, and from where on an alert speaks.

    Raises ValueError naming field, value and what is allowed.
    """

    target: float = 0.99
    """Share of streams that do not end in a stall."""
    period_days: int = 30
    """What the budget is for; Prometheus must keep as much."""
    min_stalls: int = 10
    """Stalled streams in the long window from which a burn is believed; with fewer, the low-traffic alert counts."""
    low_traffic_share: float = 0.2
    low_traffic_stalls: int = 3

    stuck_after: float = longest_wait() + BACKSTOP_MARGIN
    """Seconds of waiting that no deadline in force allows."""
    silent_share: float = 0.3
    """Share of the open streams that wait for more than 10 s ..."""
    silent_streams: int = 20
    """... among at least so many open ones ..."""
    unusual: float = 2.0
    """... and so many times as high as it was in the day before. The same for the time to the first token."""
    first_token: float = 10.0
    """Seconds within which 95 % of the answers should have begun; a bucket boundary, or the quantile is a guess."""
    first_token_streams: int = 30

    vain_share: float = 0.5
    """Share of the retries that failed themselves ..."""
    vain_retries: int = 10
    """... and at least so many of them within half an hour."""
    storm_share: float = 0.3
    """Retries per attempt, those that the budget kept back included."""
    storm_attempts: int = 50
    hedges_refused: int = 10
    """Hedges in an hour that were due and not started."""

    runbooks: str = "https://runbooks.example.com/stallwatch"
    """Where ``runbooks.md`` of this folder is published."""
    grafana: str = "https://grafana.example.com"

    def __post_init__(self) -> None:
        if not 0 < self.target < 1 or self.threshold(FAST) >= 1:
            lowest = 1 - 1 / self.factor(FAST)
            raise ValueError(
                f"target={self.target!r} is not allowed: give a number above {lowest:.3f} and below 1"
            )
        if self.stuck_after <= 0:
            raise ValueError(f"stuck_after={self.stuck_after!r} is not allowed: give seconds above 0")
        boundaries = catalogue.TIME_TO_FIRST_TOKEN.buckets or ()
        if self.first_token not in boundaries:
            allowed = ", ".join(f"{edge:g}" for edge in boundaries)
            raise ValueError(f"first_token={self.first_token!r} is not allowed: give one of {allowed}")

    @property
    def budget(self) -> float:
        """The share of streams that may end in a stall."""
        return round(1 - self.target, 9)

    def factor(self, burn: Burn) -> float:
        """Return how many times as fast as allowed the budget burns then."""
        return round(burn.spent * self.period_days * 24 / HOURS[burn.long], 6)

    def threshold(self, burn: Burn) -> float:
        """Return the share of stalled streams at which it burns so fast."""
        return self.factor(burn) * self.budget


def about(count: int) -> str:
    """Return the number that a count of at least ``count`` shows: ``increase`` extrapolates, to a little less too."""
    return f"{count - 0.5:g}"
