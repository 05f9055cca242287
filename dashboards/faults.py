"""Rows of the dashboard "LLM streams" on what goes wrong: stalls, and what retries and hedges make of failures."""

from __future__ import annotations

from typing import Any

from dashboards import promql as q
from dashboards.board import ONE_MODEL, RATE
from dashboards.grid import Grid
from dashboards.panels import NONE, Query, lines
from dashboards.waits import quantiles


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
        ),
    )


def _stalls_by(label: str, what: str, question: str) -> Any:
    expr = f"60 * {q.rate(q.STALLS, RATE, label, q.STALL_ACTION)}"
    named = f"{q.legend(label)} ({q.legend(q.STALL_ACTION)})"
    queries = [Query(expr, named, exemplars=True)]
    return lines(f"Stalls by {what}", f"{question} ({q.STALLS})", queries, "cpm", stacked=True, empty=NONE)


def add_retries(grid: Grid) -> None:
    """Add the row on failed attempts: verdicts, what followed, and what it cost."""
    grid.row("Retries and hedges")
    verdict = (q.RETRY_KIND, q.RETRY_DIAGNOSIS)
    attempts = q.rate(q.ATTEMPTS, RATE)
    grid.line(
        8,
        lines(
            "Failed attempts by verdict",
            f"What goes wrong, and is it worth another try? ({q.RETRIES})",
            [Query(f"60 * {q.rate(q.RETRIES, RATE, *verdict)}", q.legend(*verdict), exemplars=True)],
            "cpm",
            stacked=True,
            empty=NONE,
        ),
        lines(
            "Failed attempts by what followed",
            "Was there another attempt, or why not? Where retries help, retry and fallback lead, and exhausted stays "
            f"near nought. ({q.RETRIES})",
            [
                Query(
                    f"60 * {q.rate(q.RETRIES, RATE, q.RETRY_DECISION)}",
                    q.legend(q.RETRY_DECISION),
                    exemplars=True,
                )
            ],
            "cpm",
            stacked=True,
            empty=NONE,
        ),
        lines(
            "Load by retries, and failures in spite of them",
            "How much do retries add to the load, and how many attempts end a call for which all retries were made? "
            f"({q.RETRIES}, {q.ATTEMPTS})",
            [
                Query(f"{q.decided(q.GOING_ON, RATE)} / ({attempts} > 0)", "tried again"),
                Query(f"{q.decided(q.IN_VAIN, RATE)} / ({attempts} > 0)", "in vain"),
            ],
            "percentunit",
        ),
        lines(
            "Hedges by result",
            "Do second attempts win, and are they refused because their share of the calls is used up? "
            f"({q.HEDGES})",
            [
                Query(
                    f"60 * {q.rate(q.HEDGES, RATE, q.HEDGE_RESULT)}", q.legend(q.HEDGE_RESULT), exemplars=True
                )
            ],
            "cpm",
            stacked=True,
            empty=NONE,
        ),
    )
