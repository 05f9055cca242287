"""What Prometheus stores of the traffic, compared with what was asked for and with the gateway's ledger.

The same by both paths, but for what the program is called.
"""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest

from e2e.needs import debian
from e2e.ran import Collected, Ran
from e2e.traffic import CASES, SPREAD, Case
from stallwatch import catalogue
from stallwatch.catalogue import Attr, Instrument, MetricSpec

ASKED = [case for case in CASES if case.asks]
STREAMED = [case for case in ASKED if case.outcome is not None]
CHAT = [case for case in STREAMED if case.name != "steady-responses"]
"""Of these the ledger tells which pieces were chunks."""
MODEL = "gen_ai_request_model"


def label(attribute: str) -> str:
    return attribute.replace(".", "_")


def stored_as(spec: MetricSpec) -> str:
    """Name a metric as the collector's exporter does; of a histogram, the series that counts."""
    unit = "_seconds" if spec.unit == "s" else ""
    ending = {Instrument.HISTOGRAM: "_count", Instrument.COUNTER: "_total"}.get(spec.kind, "")
    return label(spec.name) + unit + ending


def names(case: Case) -> str:
    return case.name


def by_model(ran: Ran, expr: str) -> dict[str, float]:
    return ran.by(MODEL, f"sum by ({MODEL}) ({expr})")


@pytest.mark.parametrize("spec", catalogue.METRICS, ids=lambda spec: spec.name)
def test_every_metric_is_stored_with_its_labels_and_no_others(ran: Ran, spec: MetricSpec) -> None:
    found = [series for series, _ in ran.query(stored_as(spec))]
    assert found
    labels = {name for series in found for name in series} - {"__name__", "le"}
    # Preset and absent attributes leave the rest to some series only; but none may have more than is documented.
    assert labels - {name for name in labels if name.startswith("otel_scope_")} == {
        "job",
        "instance",
        *(label(attribute) for attribute in spec.attributes),
    }


def test_series_belong_to_the_program_and_not_to_the_collector(ran: Ran) -> None:
    assert ran.by("job", "count by (job) (stallwatch_streams_total)").keys() == {ran.job}
    assert ran.by("instance", "count by (instance) (stallwatch_streams_total)").keys() == {ran.instance}


def test_histograms_have_the_documented_buckets_and_no_sample_beyond_the_last(ran: Ran) -> None:
    for spec in catalogue.METRICS:
        if spec.buckets is None:
            continue
        buckets = stored_as(spec).removesuffix("_count") + "_bucket"
        edges = ran.by("le", f"sum by (le) ({buckets})")
        assert {float(edge) for edge in edges} == {*spec.buckets, float("inf")}, spec.name
        last = max(float(edge) for edge in edges if float(edge) != float("inf"))
        beyond = next(value for edge, value in edges.items() if float(edge) == float("inf"))
        assert beyond == next(value for edge, value in edges.items() if float(edge) == last), spec.name


def test_every_request_of_the_ledger_is_an_attempt(ran: Ran) -> None:
    requests = Counter(request.model for request in ran.ledger.requests)
    assert by_model(ran, "stallwatch_attempt_duration_seconds_count") == requests
    assert not ran.ledger.requests_dropped


def test_every_call_is_one_operation_however_many_attempts_it_took(ran: Ran) -> None:
    calls = {
        case.name: case.count for case in ASKED if case.outcome is not None or case.kind in {"plain", "embed"}
    }
    assert by_model(ran, "gen_ai_client_operation_duration_seconds_count") == calls


def test_streams_are_counted_by_how_they_ended(ran: Ran) -> None:
    for outcome in catalogue.VALUES[Attr.OUTCOME]:
        expected = {case.name: case.count for case in ASKED if case.outcome == outcome}
        expr = f'stallwatch_streams_total{{stallwatch_outcome="{outcome}"}} > 0'
        assert by_model(ran, expr) == expected, outcome


@pytest.mark.parametrize("case", STREAMED, ids=names)
def test_stalls_are_counted_by_phase_wire_and_action(ran: Ran, case: Case) -> None:
    found = {
        (
            series["stallwatch_stall_phase"],
            series["stallwatch_stall_wire"],
            series["stallwatch_stall_action"],
        ): value
        for series, value in ran.query(
            f'sum without (otel_scope_name) (stallwatch_stalls_total{{{MODEL}="{case.name}"}}) > 0'
        )
    }
    assert found == {stall: number * case.count for stall, number in case.stalls.items()}


@pytest.mark.parametrize("case", ASKED, ids=names)
def test_failed_attempts_are_counted_by_what_was_decided(ran: Ran, case: Case) -> None:
    verdict = ("stallwatch_retry_kind", "stallwatch_retry_diagnosis", "stallwatch_retry_decision")
    expr = f'sum by ({", ".join(verdict)}) (stallwatch_retries_total{{{MODEL}="{case.name}"}}) > 0'
    found = {tuple(series[name] for name in verdict): value for series, value in ran.query(expr)}
    assert found == {verdict: number * case.count for verdict, number in case.retries.items()}


def test_failed_attempts_are_counted_by_what_they_were_made_for(ran: Ran) -> None:
    role = "stallwatch_attempt_role"
    for model, expected in {
        "silent": {"first": 2, "retry": 4},
        "recovers": {"first": 2},
        "down": {"first": 2},
    }.items():
        expr = f'sum by ({role}) (stallwatch_retries_total{{{MODEL}="{model}"}}) > 0'
        assert ran.by(role, expr) == expected


def test_hedges_are_counted_by_how_they_went(ran: Ran) -> None:
    found = {
        (series[MODEL], series["stallwatch_hedge_result"]): value
        for series, value in ran.query("stallwatch_hedges_total > 0")
    }
    assert found == {(case.name, case.hedge): case.count for case in CASES if case.hedge is not None}


def test_outcomes_and_stalls_start_at_zero_so_that_the_first_one_can_be_seen(ran: Ran) -> None:
    for outcome in catalogue.VALUES[Attr.OUTCOME]:
        expr = f'stallwatch_streams_total{{stallwatch_outcome="{outcome}"}}'
        assert by_model(ran, expr).keys() >= {case.name for case in STREAMED}


@pytest.mark.parametrize("case", [case for case in STREAMED if case.stalls], ids=names)
def test_waits_of_stalls_are_a_little_over_their_limit(ran: Ran, case: Case) -> None:
    number = sum(case.stalls.values()) * case.count
    limit = case.options.get("policy", {}).get("first_token", 1.0)
    if any(wire != "dead_wire" and phase == "first_token" for phase, wire, _ in case.stalls):
        # Bytes without progress prove a queue or a silent thinker, which may take twice as long.
        limit *= 2
    assert by_model(ran, "stallwatch_stall_wait_seconds_count")[case.name] == number
    waited = by_model(ran, "stallwatch_stall_wait_seconds_sum")[case.name]
    assert limit * number <= waited <= (limit + 0.5) * number


@pytest.mark.parametrize("case", CHAT, ids=names)
def test_gaps_are_those_between_the_chunks_that_the_gateway_sent(ran: Ran, case: Case) -> None:
    progress = ("token", "finish", "usage")
    sent = [sum(map(request.count, progress)) for request in ran.ledger.for_model(case.name)]
    expected = sum(max(0, number - 1) for number in sent)
    found = by_model(ran, "gen_ai_client_operation_time_per_output_chunk_seconds_count").get(case.name, 0)
    if case.outcome in {"cancelled", "closed_early"}:
        # What was on its way when the reader left is nobody's.
        assert 0 < found <= expected
    else:
        assert found == expected


@pytest.mark.parametrize(
    "case",
    [case for case in CHAT if case.outcome == "completed" and case.kind.startswith("stream")],
    ids=names,
)
def test_tokens_are_those_that_the_gateway_reported(ran: Ran, case: Case) -> None:
    requests = ran.ledger.for_model(case.name)
    found = ran.by(
        "gen_ai_token_type",
        f'sum by (gen_ai_token_type) (gen_ai_client_token_usage_sum{{{MODEL}="{case.name}"}})',
    )
    assert found["output"] == sum(request.count("token") for request in requests)
    assert found["input"] > 0


@pytest.mark.parametrize("case", [case for case in CHAT if case.kind == "stream"], ids=names)
def test_first_tokens_came_when_the_gateway_sent_them(ran: Ran, case: Case) -> None:
    waits = [
        first - request.received_at
        for request in ran.ledger.for_model(case.name)
        if (first := request.first("token")) is not None
    ]
    assert by_model(ran, "stallwatch_time_to_first_token_seconds_count").get(case.name, 0) == len(waits)
    if waits and len(ran.ledger.for_model(case.name)) == case.count:
        # Only where no attempt came before. The program adds its own time, much of it when all begin at once.
        found = by_model(ran, "stallwatch_time_to_first_token_seconds_sum")[case.name]
        assert sum(waits) <= found <= sum(waits) + 1.0 * len(waits)


def test_the_longest_gap_of_a_stalled_stream_is_the_fatal_one(ran: Ran) -> None:
    for case in (case for case in STREAMED if case.outcome == "stalled"):
        assert by_model(ran, "stallwatch_stream_longest_gap_seconds_count")[case.name] == case.count
        assert by_model(ran, "stallwatch_stream_longest_gap_seconds_sum")[case.name] >= case.count


def test_a_stream_that_hangs_is_seen_while_it_does(ran: Ran) -> None:
    window = f"{ran.span}s"
    silent = f'max_over_time(stallwatch_streams_silent{{stallwatch_phase="first_token"}}[{window}])'
    # Of the others that wait that long it may be seen: they do so for a moment only.
    found = by_model(ran, f"{silent} > 0")
    found.pop(SPREAD.name, None)
    assert found == {"hangs": 1}
    waits = by_model(ran, f"max_over_time(stallwatch_stream_oldest_wait_seconds[{window}]) > 10")
    assert waits.keys() - {SPREAD.name} == {"hangs"}
    assert by_model(ran, f"max_over_time(stallwatch_streams_active[{window}])")["hangs"] == 1


def test_nothing_is_open_when_the_program_has_ended(ran: Ran) -> None:
    for gauge in (
        "stallwatch_streams_active",
        "stallwatch_streams_silent",
        "stallwatch_stream_oldest_wait_seconds",
    ):
        assert set(by_model(ran, gauge).values()) == {0.0}, gauge


def test_errors_of_calls_have_the_class_that_the_program_caught(ran: Ran) -> None:
    expected = {case.name: case.error for case in ASKED if case.error and case.outcome != "cancelled"}
    found = {
        series[MODEL]: series["error_type"].rpartition(".")[2]
        for series, _ in ran.query('gen_ai_client_operation_duration_seconds_count{error_type!=""}')
    }
    assert found.items() >= expected.items()
    assert found.keys() - expected.keys() <= {"ends-early"}


def test_the_program_saw_what_was_planned(ran: Ran) -> None:
    found = Counter((one.case, one.end) for one in ran.answered)
    assert found == {(case.name, case.error or "returned"): case.count for case in CASES if case.planned}


def test_promtool_finds_nothing_wrong_with_what_is_exposed(ran: Ran) -> None:
    done = subprocess.run(
        [debian("promtool"), "check", "metrics"],
        input=ran.plain,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    assert done.returncode == 0


def test_exemplars_are_exposed_by_the_collector_only(ran: Ran) -> None:
    """The Python Prometheus exporter has none: what needs one says so, in the dashboards' and the collector's pages."""
    assert ("trace_id=" in ran.exposition) == isinstance(ran, Collected)
