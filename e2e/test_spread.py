"""Durations are in seconds and fit their buckets, from milliseconds to an hour, and quantiles are what they should be.

The truth is what the gateway sent and when. Every panel that shows a quantile is asked for the one model whose answers
begin after 0.2, 1.5 and 12 seconds, and must be within one bucket of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from dashboards.probe import Moment, ask, shipped

from e2e.ran import Ran
from e2e.traffic import SPREAD
from stallwatch import catalogue
from stallwatch.catalogue import MetricSpec
from stallwatch.testing import Ledger, RequestRecord

PROGRESS = ("token", "finish", "usage")
SECONDS = [spec for spec in catalogue.METRICS if spec.buckets is not None and spec.unit == "s"]
GAPS = (catalogue.TIME_PER_OUTPUT_CHUNK, catalogue.LONGEST_GAP)
DEFAULT_TOTAL = 3600.0
QUANTILE = re.compile(r"histogram_quantile\(([\d.]+), .*?rate\((\w+)_bucket")


def gaps(request: RequestRecord) -> list[float]:
    times = [sent.at for sent in request.sent if sent.kind in PROGRESS]
    return [later - earlier for earlier, later in pairwise(times)]


def truth(ledger: Ledger) -> dict[str, list[float]]:
    """Return what the program must have measured, a little less its own time, by histogram."""
    requests = ledger.for_model(SPREAD.name)
    assert len(requests) == SPREAD.count
    durations = [done - one.received_at for one in requests if (done := one.completed_at) is not None]
    return {
        "stallwatch_time_to_first_token_seconds": [
            first - one.received_at for one in requests if (first := one.first("token")) is not None
        ],
        "gen_ai_client_operation_time_per_output_chunk_seconds": [
            gap for one in requests for gap in gaps(one)
        ],
        "stallwatch_stream_longest_gap_seconds": [max(gaps(one)) for one in requests],
        "gen_ai_client_operation_duration_seconds": durations,
    }


def quantile(share: float, values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def shown(ran: Ran) -> Iterator[tuple[str, float, str, float]]:
    """Yield panel, quantile, histogram and value of each quantile that a dashboard shows of the model."""
    for board in shipped().values():
        moment = Moment(
            until=ran.settled, span=ran.span, window=f"{ran.span}s", values={"model": SPREAD.name}
        )
        for answer in ask(ran.prometheus.url, board, moment):
            if answer.kind == "panel" and (match := QUANTILE.match(answer.expr)):
                for value in answer.values:
                    yield answer.where, float(match[1]), match[2], value


@pytest.mark.parametrize("spec", SECONDS, ids=lambda spec: spec.name)
def test_buckets_reach_from_milliseconds_to_the_longest_call_that_is_allowed(
    ran: Ran, spec: MetricSpec
) -> None:
    buckets = f"{spec.name.replace('.', '_')}_seconds_bucket"
    edges = sorted(float(edge) for edge in ran.by("le", f"count by (le) ({buckets})"))
    assert edges[0] <= (0.005 if spec in GAPS else 0.01)
    assert edges[-2] >= DEFAULT_TOTAL
    assert edges[-1] == float("inf")


def test_quantiles_of_panels_are_within_a_bucket_of_the_truth(ran: Ran) -> None:
    edges = {f"{spec.name.replace('.', '_')}_seconds": spec.buckets for spec in SECONDS}
    true = truth(ran.ledger)
    compared = set()
    for panel, share, histogram, value in shown(ran):
        buckets = edges[histogram]
        if buckets is None or histogram not in true:
            continue
        expected = quantile(share, true[histogram])
        apart = bisect_left(buckets, value) - bisect_left(buckets, expected)
        assert abs(apart) <= 1, f"{panel}: {value:g} s, and not {expected:g} s"
        compared.add((share, histogram))
    assert compared >= {(0.95, histogram) for histogram in true}
