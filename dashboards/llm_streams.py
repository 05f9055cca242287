"""The dashboard "LLM streams": what is silent now, how calls end, where the time goes, and which model it is.

Every panel answers one question, which is its description. Zero states: counters and gauges are exported from the
first call of a model on, so a sum over them is a real 0; ``or vector(0)`` stands only in single values, which would
otherwise show nothing before the first call. A ratio without traffic stays empty and reads "No traffic", because
nought out of nought is not a success.
"""

from __future__ import annotations

from typing import Any

from dashboards import promql as q
from dashboards.classic import dashboard, models
from dashboards.panels import DATASOURCE, Grid, Query, heat, lines, number, rows, share

UID = "stallwatch-llm-streams"
SCHEMA_VERSION = 39
"""Of the classic format; what Grafana 10.4 reads as it stands, newer ones migrate it on loading."""

RATE = "$__rate_interval"
"""The window of what changes over the chosen time; ``$__range`` is that of one value for all of it."""


def build() -> models.Dashboard:
    """Return the dashboard's model."""
    board = (
        dashboard.Dashboard("LLM streams")
        .uid(UID)
        .description(
            "Streams of the OpenAI SDK as stallwatch sees them: silent now, outcomes, waits, stalls."
        )
        .tags(["stallwatch", "llm", "opentelemetry"])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
    )
    _add_variables(board)
    _add_annotations(board)
    grid = Grid(board)
    _add_now(grid)
    _add_outcomes(grid)
    _add_first_token(grid)
    _add_gaps(grid)
    _add_stalls(grid)
    _add_models(grid)
    model = board.build()
    model.schema_version = SCHEMA_VERSION
    for annotation in model.annotations.list_val:
        # The SDK's default hides the switch in a menu.
        annotation.placement = None
    return model


def _add_variables(board: Any) -> None:
    board.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    known = q.ACTIVE
    # "All" models is .* and not .+, because a call that names no model has no such label.
    for name, label, query, everything in (
        ("job", "Job", f"label_values({known}, job)", ".+"),
        ("provider", "Provider", f'label_values({known}{{job=~"$job"}}, {q.PROVIDER})', ".+"),
        (
            "model",
            "Model",
            f'label_values({known}{{job=~"$job", {q.PROVIDER}=~"$provider"}}, {q.MODEL})',
            ".*",
        ),
    ):
        board.with_variable(
            dashboard.QueryVariable(name)
            .label(label)
            .query(query)
            .definition(query)
            .datasource(DATASOURCE)
            .multi(True)
            .include_all(True)
            .all_value(everything)
            .current(models.VariableOption(selected=True, text="All", value="$__all"))
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
        )


def _add_annotations(board: Any) -> None:
    board.annotation(
        dashboard.AnnotationQuery()
        .name("Alerts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("red")
        .expr('ALERTS{alertname=~"LLMStream.+", alertstate="firing"}')
        .title_format("{{alertname}}")
        .text_format("{{" + q.PROVIDER + "}} {{" + q.MODEL + "}}")
    )


def _add_now(grid: Grid) -> None:
    grid.row("Now")
    grid.line(
        4,
        number(
            "Open streams",
            f"How many streams are open now? ({q.ACTIVE})",
            Query(f"sum({q.ACTIVE}{q.chosen()}) or vector(0)", "open"),
            "short",
        ),
        number(
            "Silent for more than 10 s",
            f"In how many of them does the reader wait for more than 10 s without progress? ({q.SILENT})",
            Query(f"sum({q.SILENT}{q.chosen()}) or vector(0)", "silent"),
            "short",
        ),
        number(
            "Longest wait now",
            f"How long has the stream waited that waits longest? ({q.OLDEST_WAIT})",
            Query(f"max({q.OLDEST_WAIT}{q.chosen()}) or vector(0)", "longest wait"),
            "s",
        ),
        share(
            "Stalled, of all that ended",
            f"Which share of the streams that ended in the chosen time stalled? ({q.STREAMS})",
            Query(q.share_of("stalled", "$__range"), "stalled"),
        ),
    )
    grid.line(
        8,
        lines(
            "Silent streams by phase",
            f"Do streams wait for a first token, think, or hang in mid-answer? ({q.SILENT})",
            [Query(f"sum by ({q.PHASE}) ({q.SILENT}{q.chosen()})", q.legend(q.PHASE))],
            "short",
            stacked=True,
        ),
        lines(
            "Longest wait by model",
            f"Which model makes its readers wait, and since when? ({q.OLDEST_WAIT})",
            [Query(f"max by ({q.MODEL}) ({q.OLDEST_WAIT}{q.chosen()})", q.legend(q.MODEL))],
            "s",
        ),
    )


def _add_outcomes(grid: Grid) -> None:
    grid.row("Outcomes")
    grid.line(
        8,
        lines(
            "Streams by outcome",
            f"How do streams end? ({q.STREAMS})",
            [Query(q.ended("", RATE, q.OUTCOME), q.legend(q.OUTCOME), exemplars=True)],
            "cps",
            stacked=True,
        ),
        lines(
            "Share that stalled, failed or was cut, by model",
            f"Which model fails its callers? Cancelled, closed and abandoned streams are not failures. ({q.STREAMS})",
            [Query(q.share_of("stalled|failed|truncated", RATE, q.MODEL), q.legend(q.MODEL))],
            "percentunit",
            top=1,
        ),
    )


def _add_first_token(grid: Grid) -> None:
    grid.row("First token")
    by_model = q.quantile(0.95, q.TIME_TO_FIRST_TOKEN, RATE, q.MODEL)
    grid.line(
        8,
        lines(
            "Time to first token",
            "How long until the first generated output, reasoning included? Role, empty and usage chunks do not "
            f"count. ({q.TIME_TO_FIRST_TOKEN})",
            _quantiles(q.TIME_TO_FIRST_TOKEN),
            "s",
        ),
        lines(
            "Time to first token by model (95 %)",
            f"Which model is slow to begin? ({q.TIME_TO_FIRST_TOKEN})",
            [Query(by_model, q.legend(q.MODEL), exemplars=True)],
            "s",
        ),
        lines(
            "Duration of calls",
            f"How long do calls take in all, streamed or not, whatever their end? ({q.DURATION})",
            _quantiles(q.DURATION),
            "s",
        ),
    )


def _add_gaps(grid: Grid) -> None:
    grid.row("Gaps between chunks")
    grid.line(
        8,
        lines(
            "Gap between chunks",
            "How evenly does the answer flow? Waits for the server only; a reader's own pauses are not part of it. "
            f"({q.GAP})",
            _quantiles(q.GAP),
            "s",
        ),
        lines(
            "Longest gap of a stream",
            f"How bad is the worst moment of a stream? The wait that ended in a stall counts. ({q.LONGEST_GAP})",
            _quantiles(q.LONGEST_GAP),
            "s",
        ),
        heat(
            "Gaps between chunks, all of them",
            f"Are the gaps of one kind, or are some streams of another? ({q.GAP})",
            f"sum by (le) (increase({q.GAP}_bucket{q.chosen()}[{RATE}]))",
            "s",
        ),
    )


def _add_stalls(grid: Grid) -> None:
    grid.row("Stalls")
    grid.line(
        8,
        _stalls_by(
            q.STALL_PHASE,
            "phase",
            "Do streams stall before the first token, while thinking, or in mid-answer?",
        ),
        _stalls_by(
            q.STALL_WIRE,
            "wire verdict",
            "Was the wire dead, or did keepalives or empty chunks hide a dead generation?",
        ),
        lines(
            "Wait that was judged a stall",
            f"How long had been waited when a stream was given up? ({q.STALL_WAIT})",
            _quantiles(q.STALL_WAIT),
            "s",
        ),
    )


def _stalls_by(label: str, what: str, question: str) -> Any:
    expr = f"60 * sum by ({label}, {q.STALL_ACTION}) (rate({q.STALLS}{q.chosen()}[{RATE}]))"
    named = f"{q.legend(label)} ({q.legend(q.STALL_ACTION)})"
    queries = [Query(expr, named, exemplars=True)]
    return lines(f"Stalls by {what}", f"{question} ({q.STALLS})", queries, "cpm", stacked=True)


def _add_models(grid: Grid) -> None:
    grid.row("Models")
    model = (q.PROVIDER, q.MODEL)
    by = ", ".join(model)
    first = q.quantile(0.95, q.TIME_TO_FIRST_TOKEN, "$__range", *model)
    longest = q.quantile(0.95, q.LONGEST_GAP, "$__range", *model)
    panel = rows(
        "Models",
        "Which models are in use, and how do they compare over the chosen time? A click on a model shows it alone. "
        f"({q.STREAMS}, {q.TIME_TO_FIRST_TOKEN}, {q.LONGEST_GAP})",
        {q.PROVIDER: "Provider", q.MODEL: "Model"},
        [
            (Query(f"sum by ({by}) ({q.ACTIVE}{q.chosen()})", "Open now"), "short"),
            (Query(f"sum by ({by}) (increase({q.STREAMS}{q.chosen()}[$__range]))", "Ended"), "short"),
            (Query(q.share_of("stalled", "$__range", *model), "Stalled"), "percentunit"),
            (Query(q.share_of("failed", "$__range", *model), "Failed"), "percentunit"),
            (Query(first, "First token (95 %)"), "s"),
            (Query(longest, "Longest gap (95 %)"), "s"),
        ],
        sort="Stalled",
    )
    url = (
        f"/d/{UID}?var-datasource=${{datasource}}&${{job:queryparam}}&var-provider=${{__data.fields.Provider}}"
        "&var-model=${__value.raw}&${__url_time_range}"
    )
    link = models.DynamicConfigValue(id_val="links", value=[{"title": "Only this model", "url": url}])
    grid.line(10, panel.override_by_name("Model", [link]))


def _quantiles(histogram: str) -> list[Query]:
    return [
        Query(q.quantile(part, histogram, RATE), f"{part * 100:g} %", exemplars=True)
        for part in (0.5, 0.95, 0.99)
    ]
