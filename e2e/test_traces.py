"""Which traces the sampler kept, whole and with everything that explains them."""

from __future__ import annotations

import pytest

from e2e.ran import Collected
from e2e.traffic import CASES, Case

KEPT = [case for case in CASES if case.kept and case.planned]


def names(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", KEPT, ids=names)
def test_stalled_failed_retried_and_slow_traces_are_all_kept_whole(collected: Collected, case: Case) -> None:
    kept = collected.stack.store.traces()
    for trace in collected.traces(case.name):
        assert trace in kept, f"the trace {trace} of {case.name} was not kept"
        roots = [span for span in kept[trace] if not span.parent]
        assert [span.name for span in roots] == ["answer"]
        assert {span.parent for span in kept[trace]} <= {"", *(span.id for span in kept[trace])}


def test_of_the_rest_a_share_is_kept(collected: Collected) -> None:
    traces = collected.traces("steady")
    kept = collected.stack.store.traces().keys() & set(traces)
    # A fifth of sixty: the chance of none or of more than half is below one in a hundred thousand.
    assert 0 < len(kept) < len(traces) / 2


@pytest.mark.parametrize("case", [case for case in KEPT if case.outcome == "stalled"], ids=names)
def test_a_stalled_trace_says_where_it_stalled_and_what_was_done(collected: Collected, case: Case) -> None:
    ((phase, wire, _),) = case.stalls
    for trace in collected.traces(case.name):
        (span,) = [span for span in collected.stack.store.traces()[trace] if span.parent]
        assert span.name == f"chat {case.name}"
        assert span.status == "error"
        assert span.attributes["stallwatch.stalled"] is True
        assert span.attributes["stallwatch.stall.phase"] == phase
        assert span.attributes["stallwatch.stall.wire"] == wire
        assert span.attributes["stallwatch.stalls"] == sum(case.stalls.values())
        assert span.attributes["error.type"].endswith("StreamInactivityTimeoutError")
        assert [name for name, _ in span.events].count("stallwatch.stall") == sum(case.stalls.values())
        asked = [
            event["stallwatch.attempt.number"] for name, event in span.events if name == "stallwatch.attempt"
        ]
        assert asked == list(range(1, span.attributes["stallwatch.attempts"] + 1))


def test_the_users_own_ends_are_no_errors(collected: Collected) -> None:
    for span in collected.stack.store.spans():
        if span.attributes.get("stallwatch.outcome") in {"cancelled", "closed_early"}:
            assert span.status == "unset"


@pytest.mark.parametrize(
    ("series", "what"),
    [
        ("stallwatch_stalls_total", "stalls"),
        ("stallwatch_stall_wait_seconds_bucket", "waits of stalls"),
        ('stallwatch_streams_total{stallwatch_outcome="stalled"}', "streams that stalled"),
        ('stallwatch_streams_total{stallwatch_outcome="failed"}', "streams that failed"),
        ("stallwatch_retries_total", "attempts that failed"),
        ('gen_ai_client_operation_duration_seconds_bucket{error_type!=""}', "calls that failed"),
    ],
)
def test_exemplars_of_what_went_wrong_lead_to_kept_traces(
    collected: Collected, series: str, what: str
) -> None:
    found = collected.prometheus.exemplars(series, start=collected.began - 5, end=collected.ended + 15)
    assert found, f"no exemplars of {what}"
    kept = collected.stack.store.traces()
    for labels, exemplar, _ in found:
        spans = {span.id: span for span in kept[exemplar["trace_id"]]}
        span = spans[exemplar["span_id"]]
        assert labels["gen_ai_request_model"] in {
            span.attributes["gen_ai.request.model"],
            *_asked(span.events),
        }


def _asked(events: object) -> set[str]:
    """Return the models of the attempts: a fallback's first one is not that of the span's name."""
    assert isinstance(events, tuple)
    return {event["gen_ai.request.model"] for _, event in events if "gen_ai.request.model" in event}


def test_every_exemplar_is_a_trace_of_the_program(collected: Collected) -> None:
    found = collected.prometheus.exemplars(
        '{__name__=~".+"}', start=collected.began - 5, end=collected.ended + 15
    )
    assert {exemplar["trace_id"] for _, exemplar, _ in found} <= {one.trace for one in collected.answered}


def test_ordinary_gaps_carry_no_exemplars(collected: Collected) -> None:
    gaps = "gen_ai_client_operation_time_per_output_chunk_seconds_bucket"
    assert collected.prometheus.exemplars(gaps, start=collected.began - 5, end=collected.ended + 15) == []
