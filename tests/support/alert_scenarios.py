"""Stories that the alerts are tested on: what the series do, minute by minute, and every alert that fires then."""

from __future__ import annotations

from support.promtool import Scenario

__all__ = ["SCENARIOS"]

BY_MODEL = 'job="app", instance="a", gen_ai_provider_name="openai", gen_ai_request_model="{model}"'


def _series(name: str, values: str, model: str = "m", **labels: str) -> dict[str, str]:
    further = "".join(f', {label}="{value}"' for label, value in labels.items())
    return {f"{name}{{{BY_MODEL.format(model=model)}{further}}}": values}


def streams(outcome: str, values: str, model: str = "m") -> dict[str, str]:
    return _series("stallwatch_streams_total", values, model, stallwatch_outcome=outcome)


def active(values: str, model: str = "m") -> dict[str, str]:
    return _series("stallwatch_streams_active", values, model)


def silent(values: str, model: str = "m", phase: str = "idle") -> dict[str, str]:
    return _series("stallwatch_streams_silent", values, model, stallwatch_phase=phase)


def oldest(values: str, model: str = "m") -> dict[str, str]:
    return _series("stallwatch_stream_oldest_wait_seconds", values, model)


def first_tokens(buckets: dict[str, str], model: str = "m") -> dict[str, str]:
    name = "stallwatch_time_to_first_token_seconds"
    found = _series(f"{name}_count", buckets["+Inf"], model)
    for edge, values in buckets.items():
        found |= _series(f"{name}_bucket", values, model, le=edge)
    return found


def failed(decision: str, values: str, model: str = "m", role: str = "first") -> dict[str, str]:
    return _series(
        "stallwatch_retries_total",
        values,
        model,
        stallwatch_attempt_role=role,
        stallwatch_retry_kind="server",
        stallwatch_retry_diagnosis="retryable",
        stallwatch_retry_decision=decision,
    )


def attempts(values: str, model: str = "m", outcome: str = "completed") -> dict[str, str]:
    return _series("stallwatch_attempt_duration_seconds_count", values, model, stallwatch_outcome=outcome)


def hedges(result: str, values: str, model: str = "m") -> dict[str, str]:
    return _series("stallwatch_hedges_total", values, model, stallwatch_hedge_result=result)


def target(values: str, job: str = "app", instance: str = "a") -> dict[str, str]:
    return {f'up{{job="{job}", instance="{instance}"}}': values}


def collector(name: str, values: str, instance: str = "c1", **labels: str) -> dict[str, str]:
    further = "".join(f', {label}="{value}"' for label, value in labels.items())
    return {f'otelcol_{name}{{job="collector", instance="{instance}"{further}}}': values}


HEALTHY = (
    streams("completed", "0+10x200")
    | streams("cancelled", "0+1x200")
    | active("30x200")
    | silent("2x200")
    | oldest("4x200")
    | first_tokens({"5": "0+10x200", "10": "0+10x200", "+Inf": "0+10x200"})
    | failed("retry", "0+1x200")
    | failed("retry", "0x200", role="retry")
    | failed("exhausted", "0x200", role="retry")
    | attempts("0+11x200")
    | hedges("won", "0+1x200")
    | target("1x200")
    | target("1x200", job="collector", instance="c1")
    | collector("exporter_queue_size", "10x200", exporter="otlp_grpc", data_type="traces")
    | collector("exporter_queue_capacity", "1000x200", exporter="otlp_grpc", data_type="traces")
    | collector("exporter_sent_spans_total", "0+50x200", exporter="otlp_grpc")
    | collector("exporter_send_failed_spans_total", "0x200", exporter="otlp_grpc")
    | collector("receiver_refused_spans_total", "0x200", receiver="otlp", transport="grpc")
    | collector("processor_tail_sampling_sampling_trace_dropped_too_early_total", "0x200")
)

FAST, SLOW, LOW = (f"LLMStreamIdleTimeout{name}:" for name in ("BurnFast", "BurnSlow", "LowTraffic"))
VAIN = (
    'round(sum(model:stallwatch_retries_failed:increase30m{gen_ai_request_model="m"})'
    ' / (sum(model:stallwatch_retries_made:increase30m{gen_ai_request_model="m"}) > 0), 0.01)'
)
RATIO = 'sum(model:stallwatch_stalled_streams:ratio1h{gen_ai_request_model="m"})'

OBJECTIVE = [
    Scenario(
        name="three stalls in five at a busy model page, and leave a ticket when it has recovered",
        series=streams("completed", "0+4x60 250+10x120") | streams("stalled", "0+6x60 360+0x120"),
        firing={
            "5m": [],
            "30m": [FAST + "m"],
            # The hour still looks bad, but the short windows say that it is over.
            "97m": [SLOW + "m"],
            "110m": [SLOW + "m"],
        },
    ),
    Scenario(
        name="a tenth of the streams stalling for hours pages, though no hour is that bad",
        series=streams("completed", "0+45x700") | streams("stalled", "0+5x700"),
        firing={"30m": [FAST + "m"], "10h": [FAST + "m", SLOW + "m"]},
    ),
    Scenario(
        name="minutes in which everything stalls page at once, however good the hours before were",
        series=streams("completed", "0+10x600 6000+0x60") | streams("stalled", "0x600 0+10x60"),
        firing={"10h5m": [], "10h15m": [FAST + "m"]},
    ),
    Scenario(
        name="two stalls in a hundred for hours is a ticket, not a page",
        series=streams("completed", "0+49x720", "m/1") | streams("stalled", "0+1x720", "m/1"),
        firing={"1h": [], "12h": [SLOW + "m/1"]},
    ),
    Scenario(
        name="what has stopped hours ago is no ticket any more",
        series=streams("completed", "0+95x240 22800+100x420") | streams("stalled", "0+5x240 1200+0x420"),
        firing={"4h": [SLOW + "m"], "10h30m": []},
    ),
    Scenario(
        name="one stream in fifty at a model that has few is neither",
        series=streams("completed", "0+1x500") | streams("stalled", "0x99 1x99 2x99 3x99 4x99"),
        firing={"4h": [], "8h": []},
    ),
    Scenario(
        name="a small model is counted, not divided",
        series=streams("completed", "0x4 1x9 2x9 3x9 4x9 5x60", "rare")
        | streams("stalled", "0x9 1x9 2x9 3x70", "rare"),
        firing={"25m": [], "34m": [], "50m": [LOW + "rare"], "100m": []},
    ),
    Scenario(
        name="a few stalls an hour among very many streams are within the objective",
        series=streams("completed", "0+20x200") | streams("stalled", "0x19 1x19 2x19 3x19 4x19 5x19 6x60"),
        firing={"70m": [], "3h": []},
    ),
    Scenario(
        name="the budget of a period is what is left of the allowance",
        series=streams("completed", "0+995x600") | streams("stalled", "0+5x600"),
        firing={"9h": []},
        values={
            ("9h", "round(sum(model:stallwatch_stalled_streams:ratio_period), 0.0001)"): 0.005,
            ("9h", "round(sum(model:stallwatch_stalled_streams:budget_left), 0.01)"): 0.5,
        },
    ),
]

PRESENT = [
    Scenario(
        name="a wait that no deadline allows pages, one within a patient deadline does not",
        series=oldest("0+60x20", "stuck") | oldest("0+60x10 0x10", "patient"),
        firing={"11m": [], "15m": ["LLMStreamStuckBeyondWatchdog:stuck@a"]},
    ),
    Scenario(
        name="half of the open streams falling silent pages, unless that is usual or they are few",
        series=active("40x720")
        | silent("2x600 20x120")
        | active("40x720", "thinker")
        | silent("24x720", "thinker", phase="first_token")
        | active("5x720", "rare")
        | silent("0x600 5x120", "rare"),
        firing={
            # Nothing is known yet of what is usual, so the level alone counts.
            "10m": ["LLMStreamSilentShareHigh:thinker"],
            "9h": [],
            "10h2m": [],
            "10h10m": ["LLMStreamSilentShareHigh:m"],
        },
    ),
    Scenario(
        name="of ten answers after 0.2 s, eight after 1.5 s and two after 40 s the 95th percentile lies around 40 s",
        series=first_tokens(
            {
                "0.1": "0x30",
                "0.2": "0+10x30",
                "1": "0+10x30",
                "2": "0+18x30",
                "30": "0+18x30",
                "60": "0+20x30",
            }
            | {"+Inf": "0+20x30"}
        ),
        firing={"9m": []},
        values={("9m", "sum(model:stallwatch_time_to_first_token_seconds:p95_10m)"): 45},
    ),
    Scenario(
        name="answers that begin late are a ticket, unless that is usual or they are few",
        series=first_tokens(
            {"5": "0+10x600 6000+0x120", "10": "0+10x600 6000+0x120", "30": "0+10x720", "+Inf": "0+10x720"}
        )
        | first_tokens({"10": "0x720", "30": "0+10x720", "+Inf": "0+10x720"}, "thinker")
        | first_tokens({"10": "0+1x600 600+0x120", "30": "0+1x720", "+Inf": "0+1x720"}, "rare"),
        firing={
            "30m": ["LLMStreamFirstTokenSlow:thinker"],
            "9h": [],
            "10h5m": [],
            "10h20m": ["LLMStreamFirstTokenSlow:m"],
        },
    ),
]

RETRIES = [
    Scenario(
        name="retries that all fail are a ticket, one call in vain is not",
        # Of each call that fails for good the first attempt and the first retry are tried again.
        series=failed("retry", "0+1x60")
        | failed("retry", "0+1x60", role="retry")
        | failed("exhausted", "0+1x60", role="retry")
        | failed("retry", "0x9 1x60", "rare")
        | failed("retry", "0x9 1x60", "rare", role="retry")
        | failed("exhausted", "0x9 1x60", "rare", role="retry"),
        firing={"9m": [], "29m": ["LLMStreamRetriesNotHelping:m"]},
    ),
    Scenario(
        name="retries that fail by not being worth a further one are in vain as well",
        series=failed("retry", "0+1x60")
        | failed("fail_fast", "0+1x30 30x30", role="retry")
        | failed("partial_output", "0x30 0+1x30", role="retry"),
        firing={"29m": ["LLMStreamRetriesNotHelping:m"], "59m": ["LLMStreamRetriesNotHelping:m"]},
        values={("29m", VAIN): 1},
    ),
    Scenario(
        name="two retries out of five in vain are not worth a ticket, three are",
        series=failed("retry", "0+4x60", "mended")
        | failed("retry", "0+1x60", "mended", role="retry")
        | failed("exhausted", "0+1x60", "mended", role="retry")
        | failed("retry", "0+4x60", "hardly")
        | failed("retry", "0+1x60", "hardly", role="retry")
        | failed("exhausted", "0+2x60", "hardly", role="retry"),
        firing={"50m": ["LLMStreamRetriesNotHelping:hardly"]},
        values={("50m", VAIN.replace('"m"', '"mended"')): 0.4, ("50m", VAIN.replace('"m"', '"hardly"')): 0.6},
    ),
    Scenario(
        name="first attempts, fallbacks and hedges that fail are no retries in vain",
        series=failed("retry", "0+2x60")
        | failed("retry", "0x60", role="retry")
        | failed("fallback", "0+3x60")
        | failed("exhausted", "0+3x60", role="fallback")
        | failed("exhausted", "0+3x60", role="hedge")
        | failed("fail_fast", "0+3x60")
        # Retries were decided on, and none of them has failed: there is no series that says so.
        | failed("retry", "0+2x60", "unheard-of")
        | failed("exhausted", "0+2x60", "without-retries", role="fallback"),
        firing={"50m": []},
        values={
            ("50m", VAIN): 0,
            ("50m", VAIN.replace('"m"', '"unheard-of"')): None,
            ("50m", VAIN.replace('"m"', '"without-retries"')): None,
        },
    ),
    Scenario(
        name="retries as a large part of the load are a ticket, also those that the budget keeps back",
        series=failed("retry", "0+4x60", "made")
        | attempts("0+10x60", "made")
        | failed("retry", "0+1x60", "kept-back")
        | failed("budget_exhausted", "0+4x60", "kept-back")
        | attempts("0+10x60", "kept-back", outcome="failed")
        | failed("retry", "0+2x60", "healthy")
        | failed("fail_fast", "0+5x60", "healthy")
        | attempts("0+10x60", "healthy")
        | failed("retry", "0+1x60", "rare")
        | attempts("0+2x60", "rare"),
        firing={"10m": [], "40m": ["LLMStreamRetryStorm:kept-back", "LLMStreamRetryStorm:made"]},
    ),
    Scenario(
        name="hedges that are mostly refused are a ticket, a few refused ones are not",
        series=hedges("refused", "0+1x90")
        | hedges("won", "0x90")
        | hedges("refused", "0+1x90", "mostly-started")
        | hedges("lost", "0+9x90", "mostly-started")
        | hedges("refused", "0x9 5x90", "rare"),
        firing={"15m": [], "80m": ["LLMStreamHedgeBudgetSpent:m"]},
    ),
]

REFUSED = {"receiver": "otlp", "transport": "grpc"}
SENT = {"exporter": "otlp_grpc"}
QUEUE = {"exporter": "otlp_grpc", "data_type": "traces"}

PIPELINE = [
    Scenario(
        name="a job that stops reporting is a ticket for as long as it is missed, however it reported",
        interval="5m",
        series=active("3x12 _x120"),
        firing={
            "1h": [],
            "1h15m": [],
            "1h30m": ["LLMTelemetryAbsent"],
            "6h30m": ["LLMTelemetryAbsent"],
            "8h": [],
        },
    ),
    Scenario(
        name="a process that cannot be scraped is a ticket, somebody else's is not",
        series=active("3x60 _x60")
        | {'stallwatch_streams_active{job="app", instance="b"}': "1x120"}
        | target("1x60 0x60")
        | target("1x120", instance="b")
        | target("0x120", job="other", instance="x"),
        firing={"62m": [], "70m": ["LLMScrapeFailing:@a"], "100m": ["LLMScrapeFailing:@a"]},
    ),
    Scenario(
        name="a collector that does not answer pages",
        series=collector("exporter_queue_capacity", "1000x60 _x60", **QUEUE)
        | target("1x60 0x60", "collector", "c1"),
        firing={"62m": [], "70m": ["LLMCollectorDown:@c1"]},
    ),
    Scenario(
        name="loss of any kind is a ticket, whichever way the counter is spelt",
        series=collector("exporter_send_failed_spans", "0+1x60", "c1", **SENT)
        | collector("exporter_send_failed_metric_points_total", "0+1x60", "c2", **SENT)
        | collector("exporter_enqueue_failed_spans_total", "0+1x60", "c3", **SENT)
        | collector("exporter_enqueue_failed_metric_points", "0+1x60", "c4", **SENT)
        | collector("exporter_send_failed_spans", "0x60", "healthy", **SENT),
        firing={"3m": [], "40m": [f"LLMCollectorLosingData:@c{number}" for number in (1, 2, 3, 4)]},
    ),
    Scenario(
        name="a single loss is a ticket, though its counter is born with it",
        series=collector("exporter_send_failed_spans", "_x20 700x60", "c1", **SENT)
        | collector("exporter_send_failed_metric_points", "_x20 700x60", "c2", **SENT)
        | collector("exporter_enqueue_failed_spans", "_x20 700x60", "c3", **SENT)
        | collector("exporter_enqueue_failed_metric_points_total", "_x20 700x60", "c4", **SENT)
        | collector("processor_tail_sampling_sampling_trace_dropped_too_early", "_x20 3x60", "c5"),
        firing={
            "21m": [],
            "30m": [f"LLMCollectorLosingData:@c{number}" for number in (1, 2, 3, 4)]
            + ["LLMSamplerOverflow:@c5"],
            "50m": [],
        },
    ),
    Scenario(
        name="refusing for ten minutes is a ticket, for one it is not",
        series=collector("receiver_refused_spans", "0+1x60", "c1", **REFUSED)
        | collector("receiver_refused_metric_points_total", "0+1x60", "c2", **REFUSED)
        | collector("receiver_refused_spans", "0x20 90x40", "c3", **REFUSED),
        firing={"5m": [], "25m": ["LLMCollectorRefusing:@c1", "LLMCollectorRefusing:@c2"]},
    ),
    Scenario(
        name="a queue that fills up is a ticket, a busy one is not",
        series=collector("exporter_queue_size", "0+50x18 900x40", "c1", **QUEUE)
        | collector("exporter_queue_capacity", "1000x60", "c1", **QUEUE)
        | collector("exporter_queue_size", "700x60", "c2", **QUEUE)
        | collector("exporter_queue_capacity", "1000x60", "c2", **QUEUE),
        firing={"20m": [], "40m": ["LLMCollectorQueueFilling:@c1"]},
    ),
    Scenario(
        name="a sampler without room is a ticket",
        series=collector("processor_tail_sampling_sampling_trace_dropped_too_early_total", "0+3x60"),
        firing={"3m": [], "30m": ["LLMSamplerOverflow:@c1"]},
    ),
]

QUIET = [
    Scenario(
        name="healthy traffic wakes nobody, and its ratio is zero",
        series=HEALTHY,
        firing={"30m": [], "3h": []},
        values={("2h", RATIO): 0},
    ),
    Scenario(
        name="no traffic has no ratio, and no alert",
        series=streams("completed", "7x300")
        | streams("stalled", "2x300")
        | active("0x300")
        | silent("0x300")
        | oldest("0x300")
        | first_tokens({"10": "7x300", "+Inf": "9x300"})
        | failed("retry", "3x300")
        | failed("exhausted", "3x300")
        | attempts("9x300")
        | hedges("refused", "40x300"),
        firing={"2h": [], "5h": []},
        values={
            ("2h", RATIO): None,
            ("2h", "sum(model:stallwatch_streams_silent:share)"): None,
            ("2h", "sum(model:stallwatch_time_to_first_token_seconds:p95_10m)"): None,
            ("2h", "sum(model:stallwatch_stalled_streams:increase1h)"): 0,
        },
    ),
    Scenario(
        name="a restart of everything is no incident",
        series={
            name: (
                values
                if "x200" not in values
                else values.replace("x200", "x100 _x3 ") + values.replace("x200", "x97")
            )
            for name, values in HEALTHY.items()
            if not name.startswith("up")
        }
        | target("1x100 0x3 1x97")
        | target("1x100 0x3 1x97", "collector", "c1"),
        firing={"99m": [], "104m": [], "108m": [], "119m": [], "3h": []},
    ),
    Scenario(
        name="where nothing is measured, nothing fires",
        series=target("1x300") | target("0x300", job="other", instance="x"),
        firing={"2h": []},
    ),
    Scenario(
        name="a model without any stalled or silent series has none, and not no ratio",
        series=streams("completed", "0+10x120") | active("30x120"),
        firing={"2h": []},
        values={("2h", RATIO): 0, ("2h", "sum(model:stallwatch_streams_silent:share)"): 0},
    ),
]

SCENARIOS = [*OBJECTIVE, *PRESENT, *RETRIES, *PIPELINE, *QUIET]
