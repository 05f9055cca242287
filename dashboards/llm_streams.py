"""The dashboard "LLM streams": what is silent now, how calls end, where the time goes, and which model it is.

Every panel answers one question, which is its description. Zero states: counters and gauges are exported from the
first call of a model on, so a sum over them is a real 0; ``or vector(0)`` stands only in single values, which would
otherwise show nothing before the first call. A ratio without traffic stays empty and reads "No traffic", because
nought out of nought is not a success.
"""

from __future__ import annotations

from dashboards import faults, uids, waits
from dashboards import promql as q
from dashboards.board import (
    BUDGET_ROW,
    MODEL_ROW,
    ONE_MODEL,
    RATE,
    STREAM_VARIABLES,
    add_trace_store,
    begin,
    finished,
)
from dashboards.classic import models
from dashboards.grid import Grid
from dashboards.objective import Objective
from dashboards.panels import NONE, NOT_RECORDED, Query, lines, number, rows, share, traces
from dashboards.recordings import BUDGET_LEFT
from stallwatch.catalogue import SILENT_AFTER, Attr
from stallwatch.core.words import Outcome

OUTCOMES = {
    Outcome.COMPLETED.value: "green",
    Outcome.STALLED.value: "red",
    Outcome.FAILED.value: "orange",
    Outcome.TRUNCATED.value: "yellow",
    Outcome.ABANDONED.value: "purple",
    Outcome.CANCELLED.value: "blue",
    Outcome.CLOSED_EARLY.value: "super-light-blue",
}


def build(goal: Objective) -> models.Dashboard:
    """Return the dashboard's model."""
    board = begin(
        "LLM streams",
        uids.STREAMS,
        "Streams of the OpenAI SDK as stallwatch sees them: silent now, outcomes, waits, stalls, retries.",
        STREAM_VARIABLES,
        since="now-1h",
    )
    add_trace_store(board)
    grid = Grid(board)
    _add_now(grid, goal)
    _add_outcomes(grid)
    waits.add_first_token(grid)
    waits.add_gaps(grid)
    faults.add_stalls(grid)
    faults.add_retries(grid)
    _add_models(grid)
    _add_traces(grid)
    return finished(board)


def _add_now(grid: Grid, goal: Objective) -> None:
    grid.row("Now")
    tried_again = q.decided(q.GOING_ON, "$__range")
    grid.line(
        4,
        number(
            "Open streams",
            f"How many streams are open now? ({q.ACTIVE})",
            Query(f"sum({q.ACTIVE}{q.chosen()}) or vector(0)", "open"),
            "short",
        ),
        number(
            f"Silent for more than {SILENT_AFTER:g} s",
            f"In how many of them does the reader wait for more than {SILENT_AFTER:g} s without progress? ({q.SILENT})",
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
            f"Which share of the streams that ended in the chosen time stalled? The objective allows {goal.budget:g}. "
            f"({q.STREAMS})",
            Query(q.share_of("stalled", "$__range"), "stalled"),
            bad_from=goal.budget,
        ),
        share(
            "Tried again, of all attempts",
            f"After which share of the attempts was there another? ({q.RETRIES}, {q.ATTEMPTS})",
            Query(f"{tried_again} / ({q.rate(q.ATTEMPTS, '$__range')} > 0)", "tried again"),
        ),
        share(
            "Budget left, worst model",
            f"How much of its {goal.period_days} days' allowance of stalls has the model left that is worst off? Below "
            f"nought it is overspent. ({BUDGET_LEFT})",
            Query(f"min({BUDGET_LEFT}{q.chosen()})", "left"),
            bad_below=0.0,
            empty=NOT_RECORDED,
        ),
    )
    grid.line(
        8,
        lines(
            "Open streams by model",
            f"Which models are busy, and did streams pile up? ({q.ACTIVE})",
            [Query(f"sum by ({q.MODEL}) ({q.ACTIVE}{q.chosen()})", q.legend(q.MODEL))],
            "short",
            stacked=True,
            link=ONE_MODEL,
        ),
        lines(
            "Silent streams by phase",
            "Do streams wait for a first token, think, or hang in mid-answer? Phase total is a pause between attempts. "
            f"({q.SILENT})",
            [Query(f"sum by ({q.PHASE}) ({q.SILENT}{q.chosen()})", q.legend(q.PHASE))],
            "short",
            stacked=True,
        ),
        lines(
            "Longest wait by model",
            f"Which model makes its readers wait, and since when? ({q.OLDEST_WAIT})",
            [Query(f"max by ({q.MODEL}) ({q.OLDEST_WAIT}{q.chosen()})", q.legend(q.MODEL))],
            "s",
            link=ONE_MODEL,
        ),
    )


def _add_outcomes(grid: Grid) -> None:
    grid.row("Outcomes")
    errors = q.rate(f"{q.DURATION}_count", RATE, q.ERROR_TYPE, **{q.ERROR_TYPE: '!=""'})
    grid.line(
        8,
        lines(
            "Streams by outcome",
            f"How do streams end? ({q.STREAMS})",
            [Query(q.ended("", RATE, q.OUTCOME), q.legend(q.OUTCOME))],
            "cps",
            stacked=True,
            colours=OUTCOMES,
        ),
        lines(
            "Share that stalled, failed or was cut, by model",
            f"Which model fails its callers? Cancelled, closed and abandoned streams are not failures. ({q.STREAMS})",
            [Query(q.share_of("stalled|failed|truncated", RATE, q.MODEL), q.legend(q.MODEL))],
            "percentunit",
            link=ONE_MODEL,
        ),
        lines(
            "Calls that raised, by error",
            f"What do callers get to catch, streamed calls and others together? ({q.DURATION})",
            [Query(errors, q.legend(q.ERROR_TYPE))],
            "cps",
            stacked=True,
            empty=NONE,
        ),
        lines(
            "Duration of calls",
            f"How long do calls take in all, streamed or not, whatever their end? ({q.DURATION})",
            waits.quantiles(q.DURATION),
            "s",
        ),
    )


def _add_models(grid: Grid) -> None:
    grid.row("Models")
    model = (q.PROVIDER, q.MODEL)
    by = q.sum_by(model)
    panel = rows(
        "Models",
        "Which models are in use, and how do they compare over the chosen time? A click on a model shows it alone. "
        f"({q.STREAMS}, {q.TIME_TO_FIRST_TOKEN}, {q.LONGEST_GAP}, {q.RETRIES})",
        {q.PROVIDER: "Provider", q.MODEL: "Model"},
        [
            (Query(f"{by} ({q.ACTIVE}{q.chosen()})", "Open now"), "short"),
            (Query(f"{by} ({q.SILENT}{q.chosen()})", "Silent now"), "short"),
            (Query(f"{by} (increase({q.STREAMS}{q.chosen()}[$__range]))", "Ended"), "short"),
            (Query(q.share_of("stalled", "$__range", *model), "Stalled"), "percentunit"),
            (Query(q.share_of("failed", "$__range", *model), "Failed"), "percentunit"),
            (Query(q.quantile(0.95, q.TIME_TO_FIRST_TOKEN, "$__range", *model), "First token (95 %)"), "s"),
            (Query(q.quantile(0.95, q.LONGEST_GAP, "$__range", *model), "Longest gap (95 %)"), "s"),
            (Query(f"60 * {q.decided(q.GOING_ON, '$__range', *model)}", "Tried again"), "cpm"),
            (
                Query(q.helped(q.RETRY, q.FAILED_RETRY, "$__range", *model), "Retries that helped"),
                "percentunit",
            ),
        ],
        sort="Stalled",
        links={"Model": MODEL_ROW, "Stalled": BUDGET_ROW},
        missing={"Retries that helped": "No retries"},
    )
    grid.line(8, panel)


def _add_traces(grid: Grid) -> None:
    ours = f'span.{Attr.REQUEST_MODEL} =~ "$model"'
    grid.folded(
        "Traces (needs a Tempo)",
        10,
        traces(
            "Stalled",
            f"Which calls stalled? The span's {Attr.STALL_PHASE} and {Attr.REQUEST_ID} say where, and what to quote.",
            f"{{ span.{Attr.STALLED} = true && {ours} }}",
        ),
        traces(
            "Tried again",
            f"What was overcome, and what was not? ({Attr.ATTEMPTS})",
            f"{{ span.{Attr.ATTEMPTS} > 1 && {ours} }}",
        ),
        traces(
            "Late to show anything",
            f"Which answers took more than 30 s to visible output? ({Attr.TIME_TO_VISIBLE})",
            f"{{ span.{Attr.TIME_TO_VISIBLE} > 30 && {ours} }}",
        ),
    )
