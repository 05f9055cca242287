"""The catalogue's names as Prometheus stores them, and the query shapes that dashboards and rules share.

A renamed metric or attribute is a change of the catalogue only; nothing here spells a name out. Names follow the rule
every OpenTelemetry-to-Prometheus path applies: dots become underscores, a unit of seconds is appended, braced units
are not, monotonic counters end in ``_total``.
"""

from __future__ import annotations

from stallwatch import catalogue
from stallwatch.catalogue import Attr, Instrument, MetricSpec

MODEL, OUTCOME, PHASE, PROVIDER, STALL_ACTION, STALL_PHASE, STALL_WIRE, TOKEN_TYPE = (
    name.replace(".", "_")
    for name in (
        Attr.REQUEST_MODEL,
        Attr.OUTCOME,
        Attr.PHASE,
        Attr.PROVIDER,
        Attr.STALL_ACTION,
        Attr.STALL_PHASE,
        Attr.STALL_WIRE,
        Attr.TOKEN_TYPE,
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
TOKENS = series(catalogue.TOKEN_USAGE)


def quantile(share: float, histogram: str, chosen: str, window: str, *by: str) -> str:
    """Return the quantile of a histogram over ``window``, one series for each combination of ``by``."""
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({histogram}_bucket{chosen}[{window}])))"
