"""The dashboard "Idle-timeout SLO": is the objective met, how fast does the budget burn, and who was told.

It reads what the recording rules work out, so it needs ``rules.yml`` loaded, and shows the very numbers that the
alerts compare. A model without traffic has no ratio and no line.
"""

from __future__ import annotations

from dashboards import collector as c
from dashboards import promql as q
from dashboards import uids
from dashboards.board import MODEL_ROW, ONE_MODEL, STREAM_VARIABLES, begin, finished
from dashboards.classic import models
from dashboards.grid import Grid
from dashboards.objective import FAST, SLOW, SUSTAINED, WINDOWS, Burn, Objective
from dashboards.panels import NONE, NOT_RECORDED, Query, lines, number, rows, share
from dashboards.recordings import BUDGET_LEFT, PERIOD_RATIO, ratio, stalled, streams

FIRING = c.ALERTS.select('alertname=~"LLM.+"', 'alertstate="firing"', 'job=~"$job"')


def build(goal: Objective) -> models.Dashboard:
    """Return the dashboard's model."""
    board = begin(
        "Idle-timeout SLO",
        uids.SLO,
        f"Objective: {100 * goal.target:g} % of streams do not end in a stall, over {goal.period_days} days.",
        STREAM_VARIABLES,
        since="now-7d",
    )
    grid = Grid(board)
    _add_standing(grid, goal)
    _add_burn(grid, goal)
    _add_alerts(grid)
    _add_models(grid, goal)
    return finished(board)


def _add_standing(grid: Grid, goal: Objective) -> None:
    grid.row("Standing")
    good = f"1 - {q.share_of('stalled', '$__range')}"
    grid.line(
        4,
        share(
            "Streams without a stall",
            f"Which share of the streams in the chosen time did not end in a stall? Promised: {goal.target:g}. "
            f"({q.STREAMS})",
            Query(good, "without a stall"),
            bad_below=goal.target,
        ),
        share(
            "Budget left, worst model",
            f"How much of {goal.period_days} days' allowance has the model left that is worst off? Below nought it is "
            f"overspent. ({BUDGET_LEFT})",
            Query(f"min({BUDGET_LEFT}{q.chosen()})", "left"),
            bad_below=0.0,
            empty=NOT_RECORDED,
        ),
        number(
            "Stalled in the last hour",
            f"How many streams stalled within the hour? ({stalled('1h')})",
            Query(f"round(sum({stalled('1h')}{q.chosen()}) or vector(0))", "stalled"),
            "short",
        ),
        number(
            "Ended in the last hour",
            f"Out of how many? ({streams('1h')})",
            Query(f"round(sum({streams('1h')}{q.chosen()}) or vector(0))", "ended"),
            "short",
        ),
        number(
            "Alerts firing",
            f"How many alerts speak of these jobs now? ({c.ALERTS.name})",
            Query(f"count({FIRING}) or vector(0)", "firing"),
            "short",
        ),
        number(
            "Models over budget",
            f"How many models have no allowance left? ({BUDGET_LEFT})",
            Query(f"count({BUDGET_LEFT}{q.chosen()} < 0) or vector(0)", "over budget"),
            "short",
        ),
    )


def _add_burn(grid: Grid, goal: Objective) -> None:
    grid.row("Burn")
    grid.line(
        8, *(_burn(goal, burn, who) for burn, who in ((FAST, "page"), (SUSTAINED, "page"), (SLOW, "ticket")))
    )
    grid.line(
        8,
        lines(
            "Budget left by model",
            f"Since when is the allowance of {goal.period_days} days being eaten up, and by which model? "
            f"({BUDGET_LEFT})",
            [Query(f"min by ({q.MODEL}) ({BUDGET_LEFT}{q.chosen()})", q.legend(q.MODEL))],
            "percentunit",
            top=1,
            signed=True,
            link=ONE_MODEL,
        ),
        lines(
            "Stalled streams by model, in an hour",
            f"How many is that, in streams? {goal.min_stalls} are needed for a burn to be believed. ({stalled('1h')})",
            [Query(f"sum by ({q.MODEL}) ({stalled('1h')}{q.chosen()})", q.legend(q.MODEL))],
            "short",
            stacked=True,
            link=ONE_MODEL,
        ),
        lines(
            "Share that stalled, by window",
            f"Is it a moment, or has it gone on for days? All chosen models together. ({stalled('1h')} and so on)",
            [
                Query(
                    f"sum({stalled(window)}{q.chosen()}) / (sum({streams(window)}{q.chosen()}) > 0)",
                    f"within {window}",
                )
                for window in WINDOWS
            ],
            "percentunit",
            marks=[goal.budget],
        ),
    )


def _burn(goal: Objective, burn: Burn, who: str) -> object:
    factor = goal.factor(burn)
    queries = [
        Query(
            f"max by ({q.MODEL}) ({ratio(window)}{q.chosen()}) / {goal.budget:.6g}",
            f"{q.legend(q.MODEL)}, {window}",
        )
        for window in (burn.long, burn.short)
    ]
    return lines(
        f"Burn over {burn.long} and {burn.short}",
        f"How many times as fast as allowed does the budget burn? Where both lines of a model are above {factor:g}, "
        f"{burn.spent:.0%} of it goes within {burn.long}, and a {who} follows. ({ratio(burn.long)}, "
        f"{ratio(burn.short)})",
        queries,
        "x",
        marks=[factor],
        link=ONE_MODEL,
    )


def _add_alerts(grid: Grid) -> None:
    grid.row("Alerts")
    names = {
        "alertname": "Alert",
        "severity": "Severity",
        "job": "Job",
        q.PROVIDER: "Provider",
        q.MODEL: "Model",
    }
    grid.line(
        8,
        rows(
            "Firing alerts",
            "Who was told of what? Each alert's own links lead to its runbook and to what to look at. "
            f"({c.ALERTS.name})",
            names,
            [(Query(f"sum by ({', '.join(names)}) ({FIRING})", "Firing"), "short")],
            sort="Severity",
            links={"Model": MODEL_ROW},
            empty=NONE,
        ),
        lines(
            "Alerts over time",
            f"When did they fire, and for how long? ({c.ALERTS.name})",
            [Query(f"sum by (alertname) ({FIRING})", q.legend("alertname"))],
            "short",
            stacked=True,
            empty=NONE,
        ),
    )


def _add_models(grid: Grid, goal: Objective) -> None:
    grid.row("Models")
    model = (q.PROVIDER, q.MODEL)
    columns = [
        (Query(f"sum by ({', '.join(model)}) ({streams('3d')}{q.chosen()})", "Ended in 3 d"), "short"),
        *(
            (
                Query(f"max by ({', '.join(model)}) ({ratio(window)}{q.chosen()})", f"Stalled, {window}"),
                "percentunit",
            )
            for window in ("1h", "6h", "3d")
        ),
        (
            Query(
                f"max by ({', '.join(model)}) ({PERIOD_RATIO}{q.chosen()})", f"Stalled, {goal.period_days}d"
            ),
            "percentunit",
        ),
        (Query(f"min by ({', '.join(model)}) ({BUDGET_LEFT}{q.chosen()})", "Budget left"), "percentunit"),
    ]
    grid.line(
        8,
        rows(
            "Models against the objective",
            "Which model eats up its allowance, and is it getting better? Where several jobs use a model, the worst "
            f"counts. ({ratio('1h')} and so on, {BUDGET_LEFT})",
            {q.PROVIDER: "Provider", q.MODEL: "Model"},
            columns,
            sort="Stalled, 3d",
            links={"Model": MODEL_ROW},
        ),
    )
