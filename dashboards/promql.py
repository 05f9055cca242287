"""The catalogue's names as Prometheus stores them, and the query shapes that dashboards and rules share.

A renamed metric or attribute is a change of the catalogue only; nothing here spells a name out. Names follow the rule
every OpenTelemetry-to-Prometheus path applies: dots become underscores, a unit of seconds is appended, braced units
are not, monotonic counters end in ``_total``.
"""

from __future__ import annotations

from stallwatch import catalogue
from stallwatch.catalogue import Attr, Instrument, MetricSpec

MODEL, OUTCOME, PHASE, PROVIDER, STALL_ACTION, STALL_PHASE, STALL_WIRE = (
    name.replace(".", "_")
    for name in (
        Attr.REQUEST_MODEL,
        Attr.OUTCOME,
        Attr.PHASE,
        Attr.PROVIDER,
        Attr.STALL_ACTION,
        Attr.STALL_PHASE,
        Attr.STALL_WIRE,
    )
)


def series(spec: MetricSpec) -> str:
    """Return the name under which the instrument's series are stored; of a histogram, the part they share."""
    name = spec.name.replace(".", "_")
    if spec.unit == "s":
        name += "_seconds"
    return name + "_total" if spec.kind is Instrument.COUNTER else name


STREAMS = series(catalogue.STREAMS)
STALLS = series(catalogue.STALLS)
ACTIVE = series(catalogue.STREAMS_ACTIVE)
SILENT = series(catalogue.STREAMS_SILENT)
OLDEST_WAIT = series(catalogue.OLDEST_WAIT)
DURATION = series(catalogue.DURATION)
TIME_TO_FIRST_TOKEN = series(catalogue.TIME_TO_FIRST_TOKEN)
GAP = series(catalogue.TIME_PER_OUTPUT_CHUNK)
LONGEST_GAP = series(catalogue.LONGEST_GAP)
STALL_WAIT = series(catalogue.STALL_WAIT)


def chosen(**matchers: str) -> str:
    """Return the selector of a dashboard's variables; further matchers are given by label, with their operator."""
    given = ['job=~"$job"', f'{PROVIDER}=~"$provider"', f'{MODEL}=~"$model"']
    return "{" + ", ".join([*given, *(f"{label}{matcher}" for label, matcher in matchers.items())]) + "}"


def ended(outcomes: str, window: str, *by: str) -> str:
    """Return how many streams ended a second within ``window`` with one of the ``outcomes`` (``a|b``; all if empty)."""
    matchers = {OUTCOME: f'=~"{outcomes}"'} if outcomes else {}
    return f"{_sum(by)} (rate({STREAMS}{chosen(**matchers)}[{window}]))"


def share_of(outcomes: str, window: str, *by: str) -> str:
    """Return which share of all streams ended within ``window`` with one of the ``outcomes``; none without traffic."""
    return f"{ended(outcomes, window, *by)} / ({ended('', window, *by)} > 0)"


def quantile(share: float, histogram: str, window: str, *by: str) -> str:
    """Return the quantile of a histogram over ``window``, one series for each combination of ``by``."""
    return (
        f"histogram_quantile({share:g}, {_sum(('le', *by))} (rate({histogram}_bucket{chosen()}[{window}])))"
    )


def legend(label: str) -> str:
    """Return what makes a series be called by a label's value."""
    return "{{" + label + "}}"


def _sum(by: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(by)})" if by else "sum"
