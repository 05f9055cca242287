"""Rows of the dashboard "LLM streams" on what goes wrong: stalls, and what retries and hedges make of failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards import promql as q
from dashboards.board import ONE_MODEL, RATE
from dashboards.grid import Grid
from dashboards.panels import NONE, Query, lines
from dashboards.waits import quantiles
from stallwatch.core.words import HedgeResult, RetryDecision

FOLLOWED = {
    q.RETRY: "green",
    q.FALLBACK: "blue",
    RetryDecision.EXHAUSTED.value: "red",
    RetryDecision.PARTIAL_OUTPUT.value: "orange",
    q.KEPT_BACK: "purple",
}
RACES = {
    q.WON_HEDGE: "green",
    HedgeResult.LOST.value: "blue",
    HedgeResult.FAILED.value: "red",
    q.REFUSED_HEDGE: "orange",
}


def add_stalls(grid: Grid) -> None:
    """Add the row on stalls: phase, wire verdict, model and wait."""
    grid.row("Stalls")
    stalls = q.rate(q.STALLS, RATE, q.MODEL)
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
            "Stalls per thousand streams, by model",
            "Which model stalls, its traffic taken out? A stall that was mended by a retry counts here, and not among "
            f"the outcomes. ({q.STALLS}, {q.STREAMS})",
            [Query(f"1000 * {stalls} / ({q.ended('', RATE, q.MODEL)} > 0)", q.legend(q.MODEL))],
            "short",
            link=ONE_MODEL,
        ),
        lines(
            "Wait that was judged a stall",
            f"How long had been waited when a stream was given up? ({q.STALL_WAIT})",
            quantiles(q.STALL_WAIT),
            "s",
            empty=NONE,
        ),
    )


def _stalls_by(label: str, what: str, question: str) -> Any:
    expr = f"60 * {q.rate(q.STALLS, RATE, label, q.STALL_ACTION)}"
    named = f"{q.legend(label)} ({q.legend(q.STALL_ACTION)})"
    queries = [Query(expr, named, exemplars=True)]
    return lines(f"Stalls by {what}", f"{question} ({q.STALLS})", queries, "cpm", stacked=True, empty=NONE)


def add_retries(grid: Grid) -> None:
    """Add the row on failed attempts: verdicts, what followed, whether it helped, and what it cost."""
    grid.row("Retries and hedges")
    grid.line(
        8,
        _failed_by(
            (q.RETRY_KIND, q.RETRY_DIAGNOSIS), "verdict", "What goes wrong, and is it worth another try?"
        ),
        _failed_by((q.RETRY_DECISION,), "what followed", "Was there another attempt, or why not?", FOLLOWED),
        _failed_by(
            (q.ATTEMPT_ROLE,),
            "role",
            "Is it first attempts that fail, or also those made because others had failed or were late?",
        ),
    )
    grid.line(8, _mended(), _load(), _hedges())


def _failed_by(
    labels: tuple[str, ...], what: str, question: str, colours: Mapping[str, str] | None = None
) -> Any:
    expr = f"60 * {q.rate(q.RETRIES, RATE, *labels)}"
    queries = [Query(expr, q.legend(*labels), exemplars=True)]
    return lines(
        f"Failed attempts by {what}",
        f"{question} ({q.RETRIES})",
        queries,
        "cpm",
        stacked=True,
        colours=colours,
        empty=NONE,
    )


def _mended() -> Any:
    won = q.rate(q.HEDGES, RATE, **{q.HEDGE_RESULT: f'="{q.WON_HEDGE}"'})
    started = q.rate(q.HEDGES, RATE, **{q.HEDGE_RESULT: f'!="{q.REFUSED_HEDGE}"'})
    return lines(
        "What retries, fallbacks and hedges mend",
        "Which share of the retries and fallbacks did not fail as well, and which share of the hedges came first? A "
        "fallback fails with another model than the one it stands in for: look at all models for that curve. "
        f"({q.RETRIES}, {q.HEDGES})",
        [
            Query(q.helped(q.RETRY, q.FAILED_RETRY, RATE), "retries that helped"),
            Query(q.helped(q.FALLBACK, q.FAILED_FALLBACK, RATE), "fallbacks that helped"),
            Query(f"{won} / ({started} > 0)", "hedges that won"),
        ],
        "percentunit",
        top=1,
        empty=NONE,
    )


def _load() -> Any:
    attempts = q.rate(q.ATTEMPTS, RATE)
    return lines(
        "Load that retries add",
        "After how many of the attempts was there another, and after how many was one only kept back by the budget? "
        f"({q.RETRIES}, {q.ATTEMPTS})",
        [
            Query(f"{q.decided(q.GOING_ON, RATE)} / ({attempts} > 0)", "tried again"),
            Query(f"{q.decided(q.KEPT_BACK, RATE)} / ({attempts} > 0)", "kept back"),
        ],
        "percentunit",
        stacked=True,
    )


def _hedges() -> Any:
    expr = f"60 * {q.rate(q.HEDGES, RATE, q.HEDGE_RESULT)}"
    return lines(
        "Hedges by result",
        "Do second attempts win, and are they refused because their share of the calls is used up? "
        f"({q.HEDGES})",
        [Query(expr, q.legend(q.HEDGE_RESULT), exemplars=True)],
        "cpm",
        stacked=True,
        colours=RACES,
        empty=NONE,
    )
