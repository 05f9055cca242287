"""The catalogue's names as Prometheus stores them, and the query shapes that dashboards and rules share.

A renamed metric or attribute is a change of the catalogue only; nothing here spells a name out. Names follow the rule
every OpenTelemetry-to-Prometheus path applies: dots become underscores, a unit of seconds is appended, braced units
are not, monotonic counters end in ``_total``.
"""

from __future__ import annotations

from stallwatch import catalogue
from stallwatch.catalogue import Attr, Instrument, MetricSpec
from stallwatch.core.words import AttemptRole, HedgeResult, RetryDecision


def label(attribute: str) -> str:
    """Return an attribute's name as a label."""
    return attribute.replace(".", "_")


def series(spec: MetricSpec) -> str:
    """Return the name under which the instrument's series are stored; of a histogram, the part they share."""
    name = label(spec.name)
    if spec.unit == "s":
        name += "_seconds"
    return name + "_total" if spec.kind is Instrument.COUNTER else name


MODEL = label(Attr.REQUEST_MODEL)
PROVIDER = label(Attr.PROVIDER)
OUTCOME = label(Attr.OUTCOME)
PHASE = label(Attr.PHASE)
ERROR_TYPE = label(Attr.ERROR_TYPE)
STALL_ACTION = label(Attr.STALL_ACTION)
STALL_PHASE = label(Attr.STALL_PHASE)
STALL_WIRE = label(Attr.STALL_WIRE)
ATTEMPT_ROLE = label(Attr.ATTEMPT_ROLE)
RETRY_KIND = label(Attr.RETRY_KIND)
RETRY_DIAGNOSIS = label(Attr.RETRY_DIAGNOSIS)
RETRY_DECISION = label(Attr.RETRY_DECISION)
HEDGE_RESULT = label(Attr.HEDGE_RESULT)

GROUP = ("job", PROVIDER, MODEL)
"""What an alert and a recorded series speak of."""

STREAMS = series(catalogue.STREAMS)
STALLS = series(catalogue.STALLS)
RETRIES = series(catalogue.RETRIES)
HEDGES = series(catalogue.HEDGES)
ACTIVE = series(catalogue.STREAMS_ACTIVE)
SILENT = series(catalogue.STREAMS_SILENT)
OLDEST_WAIT = series(catalogue.OLDEST_WAIT)
DURATION = series(catalogue.DURATION)
ATTEMPT_DURATION = series(catalogue.ATTEMPT_DURATION)
TIME_TO_FIRST_TOKEN = series(catalogue.TIME_TO_FIRST_TOKEN)
GAP = series(catalogue.TIME_PER_OUTPUT_CHUNK)
LONGEST_GAP = series(catalogue.LONGEST_GAP)
STALL_WAIT = series(catalogue.STALL_WAIT)
ATTEMPTS = f"{ATTEMPT_DURATION}_count"

GOING_ON = f"{RetryDecision.RETRY}|{RetryDecision.FALLBACK}"
"""Decisions after which there was another attempt."""
WANTED = f"{GOING_ON}|{RetryDecision.BUDGET_EXHAUSTED.value}"
"""The same, and those that were only kept back."""
KEPT_BACK = RetryDecision.BUDGET_EXHAUSTED.value
RETRY = RetryDecision.RETRY.value
FALLBACK = RetryDecision.FALLBACK.value
FAILED_RETRY = AttemptRole.RETRY.value
FAILED_FALLBACK = AttemptRole.FALLBACK.value
"""The roles of the attempts that those two decisions lead to; in the counter of failed attempts they are failures."""
REFUSED_HEDGE = HedgeResult.REFUSED.value
WON_HEDGE = HedgeResult.WON.value


def chosen(**matchers: str) -> str:
    """Return the selector of a dashboard's variables; further matchers are given by label, with their operator."""
    given = ['job=~"$job"', f'{PROVIDER}=~"$provider"', f'{MODEL}=~"$model"']
    return "{" + ", ".join([*given, *(f"{name}{matcher}" for name, matcher in matchers.items())]) + "}"


def rate(counter: str, window: str, *by: str, **matchers: str) -> str:
    """Return what a counter grew by a second within ``window``, one series for each combination of ``by``."""
    return f"{sum_by(by)} (rate({counter}{chosen(**matchers)}[{window}]))"


def ended(outcomes: str, window: str, *by: str) -> str:
    """Return how many streams ended a second within ``window`` with one of the ``outcomes`` (``a|b``; all if empty)."""
    return rate(STREAMS, window, *by, **({OUTCOME: f'=~"{outcomes}"'} if outcomes else {}))


def share_of(outcomes: str, window: str, *by: str) -> str:
    """Return which share of all streams ended within ``window`` with one of the ``outcomes``; none without traffic."""
    return f"{ended(outcomes, window, *by)} / ({ended('', window, *by)} > 0)"


def decided(decisions: str, window: str, *by: str) -> str:
    """Return after how many failed attempts a second it was decided so."""
    return rate(RETRIES, window, *by, **{RETRY_DECISION: f'=~"{decisions}"'})


def helped(decision: str, role: str, window: str, *by: str) -> str:
    """Return which share of the attempts that followed a ``decision`` within ``window`` did not fail themselves.

    Those attempts are known by their ``role``. Where none was made there is no share. One decided on just before the
    window may fail within it; that shows as less than nothing, and is cut off.
    """
    made = decided(decision, window, *by)
    failed = rate(RETRIES, window, *by, **{ATTEMPT_ROLE: f'="{role}"'})
    return f"clamp_min(1 - ({failed} or 0 * {made}) / ({made} > 0), 0)"


def quantile(share: float, histogram: str, window: str, *by: str) -> str:
    """Return the quantile of a histogram over ``window``, one series for each combination of ``by``.

    Nothing without samples: a quantile of none is NaN, which no comparison lets pass.
    """
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', window, 'le', *by)}) >= 0"


def legend(*labels: str) -> str:
    """Return what makes a series be called by its labels' values."""
    return " ".join("{{" + name + "}}" for name in labels)


def sum_by(by: tuple[str, ...]) -> str:
    """Return the head of a sum that keeps these labels."""
    return f"sum by ({', '.join(by)})" if by else "sum"
