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
from dashboards.panels import DATASOURCE, Grid, Query, heat, lines, number, rows

UID = "stallwatch-llm-streams"
SCHEMA_VERSION = 39
"""Of the classic format; what Grafana 10.4 reads as it stands, newer ones migrate it on loading."""

BY_MODEL = (q.PROVIDER, q.MODEL)
QUANTILES = (0.5, 0.95, 0.99)


def chosen(**matchers: str) -> str:
    """Return the selector of the variables; further matchers are given as ``label="value"``."""
    # A call without a model has no such label, so "All" must match its absence too (see the variables).
    given = [f'job=~"$job", {q.PROVIDER}=~"$provider", {q.MODEL}=~"$model"']
    given += [f'{name}="{value}"' for name, value in matchers.items()]
    return "{" + ", ".join(given) + "}"


def build() -> models.Dashboard:
    """Return the dashboard's model."""
    board = (
        dashboard.Dashboard("LLM streams")
        .uid(UID)
        .description("Streams of the OpenAI SDK as stallwatch sees them: silent now, outcomes, waits, stalls.")
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
    return model


def _add_variables(board: Any) -> None:
    board.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    known = q.ACTIVE
    for name, label, query, everything in (
        ("job", "Job", f"label_values({known}, job)", ".+"),
        ("provider", "Provider", f'label_values({known}{{job=~"$job"}}, {q.PROVIDER})', ".*"),
        ("model", "Model", f'label_values({known}{{job=~"$job", {q.PROVIDER}=~"$provider"}}, {q.MODEL})', ".*"),
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
        # Unset, the switch would be hidden in a menu.
        .placement("")
        .expr('ALERTS{alertname=~"LLMStream.+", alertstate="firing"}')
        .title_format("{{alertname}}")
        .text_format("{{" + q.PROVIDER + "}} {{" + q.MODEL + "}}")
    )


def _add_now(grid: Grid) -> None:
    grid.row("Now")
    grid.add(
        number(
            "Open streams",
            f"How many streams are open now? ({q.ACTIVE})",
            Query(f"sum({q.ACTIVE}{chosen()}) or vector(0)", "open"),
            "short",
        ),
        6,
        4,
    )
    grid.add(
        number(
            "Silent for more than 10 s",
            f"In how many of them does the reader wait for more than 10 s without progress? ({q.SILENT})",
            Query(f"sum({q.SILENT}{chosen()}) or vector(0)", "silent"),
            "short",
        ),
        6,
        4,
    )
    grid.add(
        number(
            "Longest wait now",
            f"How long has the stream waited that waits longest? ({q.OLDEST_WAIT})",
            Query(f"max({q.OLDEST_WAIT}{chosen()}) or vector(0)", "longest wait"),
            "s",
        ),
        6,
        4,
    )
    stalled = chosen(**{q.OUTCOME: "stalled"})
    grid.add(
        number(
            "Stalled, of all that ended",
            f"Which share of the streams that ended in the chosen time stalled? ({q.STREAMS})",
            Query(
                f"sum(increase({q.STREAMS}{stalled}[$__range])) / (sum(increase({q.STREAMS}{chosen()}[$__range])) > 0)",
                "stalled",
            ),
            "percentunit",
            empty="No traffic",
            decimals=2,
        ),
        6,
        4,
    )
    grid.add(
        lines(
            "Silent streams by phase",
            f"Do streams wait for a first token, think, or hang in mid-answer? ({q.SILENT})",
            [Query(f"sum by ({q.PHASE}) ({q.SILENT}{chosen()})", "{{" + q.PHASE + "}}")],
            "short",
            stacked=True,
        ),
        12,
        8,
    )
    grid.add(
        lines(
            "Longest wait by model",
            f"Which model makes its readers wait, and since when? ({q.OLDEST_WAIT})",
            [Query(f"max by ({q.MODEL}) ({q.OLDEST_WAIT}{chosen()})", "{{" + q.MODEL + "}}")],
            "s",
        ),
        12,
        8,
    )


def _add_outcomes(grid: Grid) -> None:
    grid.row("Outcomes")
    rate = f"sum by ({q.OUTCOME}) (rate({q.STREAMS}{chosen()}[$__rate_interval]))"
    grid.add(
        lines(
            "Streams by outcome",
            f"How do streams end? ({q.STREAMS})",
            [Query(rate, "{{" + q.OUTCOME + "}}", exemplars=True)],
            "cps",
            stacked=True,
        ),
        12,
        8,
    )
    bad = f'job=~"$job", {q.PROVIDER}=~"$provider", {q.MODEL}=~"$model", {q.OUTCOME}=~"stalled|failed|truncated"'
    grid.add(
        lines(
            "Share that stalled, failed or was cut, by model",
            f"Which model fails its callers? Cancelled, closed and abandoned streams are not failures. ({q.STREAMS})",
            [
                Query(
                    f"sum by ({q.MODEL}) (rate({q.STREAMS}{{{bad}}}[$__rate_interval])) / "
                    f"(sum by ({q.MODEL}) (rate({q.STREAMS}{chosen()}[$__rate_interval])) > 0)",
                    "{{" + q.MODEL + "}}",
                )
            ],
            "percentunit",
            top=1,
        ),
        12,
        8,
    )


def _add_first_token(grid: Grid) -> None:
    grid.row("First token")
    grid.add(
        lines(
            "Time to first token",
            "How long until the first generated output, reasoning included? Role, empty and usage chunks do not count. "
            f"({q.TIME_TO_FIRST_TOKEN})",
            _quantiles(q.TIME_TO_FIRST_TOKEN),
            "s",
        ),
        8,
        8,
    )
    grid.add(
        lines(
            "Time to first token by model (95 %)",
            f"Which model is slow to begin? ({q.TIME_TO_FIRST_TOKEN})",
            [
                Query(
                    q.quantile(0.95, q.TIME_TO_FIRST_TOKEN, chosen(), "$__rate_interval", q.MODEL),
                    "{{" + q.MODEL + "}}",
                    exemplars=True,
                )
            ],
            "s",
        ),
        8,
        8,
    )
    grid.add(
        lines(
            "Duration of calls",
            f"How long do calls take in all, streamed or not, whatever their end? ({q.DURATION})",
            _quantiles(q.DURATION),
            "s",
        ),
        8,
        8,
    )


def _add_gaps(grid: Grid) -> None:
    grid.row("Gaps between chunks")
    grid.add(
        lines(
            "Gap between chunks",
            "How evenly does the answer flow? Waits for the server only; a reader's own pauses are not part of it. "
            f"({q.GAP})",
            _quantiles(q.GAP),
            "s",
        ),
        8,
        8,
    )
    grid.add(
        lines(
            "Longest gap of a stream",
            f"How bad is the worst moment of a stream? The wait that ended in a stall counts. ({q.LONGEST_GAP})",
            _quantiles(q.LONGEST_GAP),
            "s",
        ),
        8,
        8,
    )
    grid.add(
        heat(
            "Gaps between chunks, all of them",
            f"Are the gaps of one kind, or are some streams of another? ({q.GAP})",
            f"sum by (le) (increase({q.GAP}_bucket{chosen()}[$__rate_interval]))",
            "s",
        ),
        8,
        8,
    )


def _add_stalls(grid: Grid) -> None:
    grid.row("Stalls")
    for title, question, label in (
        ("Stalls by phase", "Do streams stall before the first token, while thinking, or in mid-answer?", q.STALL_PHASE),
        (
            "Stalls by wire verdict",
            "Was the wire dead, or did keepalives or empty chunks hide a dead generation?",
            q.STALL_WIRE,
        ),
    ):
        expr = f"sum by ({label}, {q.STALL_ACTION}) (increase({q.STALLS}{chosen()}[$__rate_interval]))"
        legend = "{{" + label + "}} ({{" + q.STALL_ACTION + "}})"
        grid.add(
            lines(title, f"{question} ({q.STALLS})", [Query(expr, legend, exemplars=True)], "short", stacked=True), 8, 8
        )
    grid.add(
        lines(
            "Wait that was judged a stall",
            f"How long had been waited when a stream was given up? ({q.STALL_WAIT})",
            _quantiles(q.STALL_WAIT),
            "s",
        ),
        8,
        8,
    )


def _add_models(grid: Grid) -> None:
    grid.row("Models")
    by = ", ".join(BY_MODEL)
    ended = f"sum by ({by}) (increase({q.STREAMS}{chosen()}[$__range]))"
    shares = {
        outcome: f"sum by ({by}) (increase({q.STREAMS}{chosen(**{q.OUTCOME: outcome})}[$__range])) / ({ended} > 0)"
        for outcome in ("stalled", "failed")
    }
    panel = rows(
        "Models",
        "Which models are in use, and how do they compare over the chosen time? A click on a model shows it alone. "
        f"({q.STREAMS}, {q.TIME_TO_FIRST_TOKEN}, {q.LONGEST_GAP})",
        {q.PROVIDER: "Provider", q.MODEL: "Model"},
        [
            (Query(f"sum by ({by}) ({q.ACTIVE}{chosen()})", "Open now"), "short"),
            (Query(ended, "Ended"), "short"),
            (Query(shares["stalled"], "Stalled"), "percentunit"),
            (Query(shares["failed"], "Failed"), "percentunit"),
            (
                Query(
                    q.quantile(0.95, q.TIME_TO_FIRST_TOKEN, chosen(), "$__range", *BY_MODEL), "First token (95 %)"
                ),
                "s",
            ),
            (Query(q.quantile(0.95, q.LONGEST_GAP, chosen(), "$__range", *BY_MODEL), "Longest gap (95 %)"), "s"),
        ],
        sort="Stalled",
    )
    url = (
        f"/d/{UID}?var-datasource=${{datasource}}&${{job:queryparam}}&var-provider=${{__data.fields.Provider}}"
        "&var-model=${__value.raw}&${__url_time_range}"
    )
    link = models.DynamicConfigValue(id_val="links", value=[{"title": "Only this model", "url": url}])
    grid.add(panel.override_by_name("Model", [link]), 24, 10)


def _quantiles(histogram: str) -> list[Query]:
    return [
        Query(q.quantile(share, histogram, chosen(), "$__rate_interval"), f"{share * 100:g} %", exemplars=True)
        for share in QUANTILES
    ]
