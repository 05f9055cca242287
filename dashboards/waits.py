"""Rows of the dashboard "LLM streams" on waits: for the first token, and between chunks.

There is no metric of the time to visible output, only the spans tell it; so it is looked for among the traces, and no
panel pretends otherwise.
"""

from __future__ import annotations

from dashboards import promql as q
from dashboards.board import ONE_MODEL, RATE
from dashboards.grid import Grid
from dashboards.panels import Query, heat, lines


def add_first_token(grid: Grid) -> None:
    """Add the row on the time until an answer begins."""
    grid.row("First token")
    by_model = q.quantile(0.95, q.TIME_TO_FIRST_TOKEN, RATE, q.MODEL)
    grid.line(
        8,
        lines(
            "Time to first token",
            "How long until the first generated output, reasoning included? Role, empty and usage chunks do not "
            f"count. ({q.TIME_TO_FIRST_TOKEN})",
            quantiles(q.TIME_TO_FIRST_TOKEN),
            "s",
        ),
        lines(
            "Time to first token by model (95 %)",
            f"Which model is slow to begin? ({q.TIME_TO_FIRST_TOKEN})",
            [Query(by_model, q.legend(q.MODEL), exemplars=True)],
            "s",
            link=ONE_MODEL,
        ),
        heat(
            "Times to first token, all of them",
            "Is everyone a little slow, or do some wait in a queue? The time to visible output is on spans only. "
            f"({q.TIME_TO_FIRST_TOKEN})",
            q.rate(f"{q.TIME_TO_FIRST_TOKEN}_bucket", RATE, "le"),
            "s",
        ),
    )


def add_gaps(grid: Grid) -> None:
    """Add the row on the gaps of an answer that has begun."""
    grid.row("Gaps between chunks")
    grid.line(
        8,
        lines(
            "Gap between chunks",
            "How evenly does the answer flow? Waits for the server only; a reader's own pauses are not part of it. "
            f"({q.GAP})",
            quantiles(q.GAP),
            "s",
        ),
        lines(
            "Longest gap of a stream",
            f"How bad is the worst moment of a stream? The wait that ended in a stall counts. ({q.LONGEST_GAP})",
            quantiles(q.LONGEST_GAP),
            "s",
        ),
        lines(
            "Longest gap of a stream by model (99 %)",
            f"How close do healthy answers come to the idle limit, model by model? ({q.LONGEST_GAP})",
            [
                Query(q.quantile(0.99, q.LONGEST_GAP, RATE, q.MODEL), q.legend(q.MODEL), exemplars=True),
            ],
            "s",
            link=ONE_MODEL,
        ),
        heat(
            "Gaps between chunks, all of them",
            f"Are the gaps of one kind, or are some streams of another? ({q.GAP})",
            q.rate(f"{q.GAP}_bucket", RATE, "le"),
            "s",
        ),
    )


def quantiles(histogram: str) -> list[Query]:
    """Return the queries of a histogram's usual three quantiles."""
    return [
        Query(q.quantile(part, histogram, RATE), f"{part * 100:g} %", exemplars=True)
        for part in (0.5, 0.95, 0.99)
    ]
