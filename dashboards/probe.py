"""Asks a Prometheus everything that the dashboards ask: ``python -m dashboards.probe http://127.0.0.1:9090``.

A dashboard that shows nothing may be right (there is no traffic), or ask for names that nobody emits. So every query of
every panel, variable and annotation is sent as Grafana would send it, and each answer is one of three: a fault (an
error, or a number that is none), nothing, or data. Queries of trace stores are left out.

Only the standard library is used, so that it runs where Grafana's SDK is not installed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent

Kind = Literal["panel", "variable", "annotation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The time that a dashboard is looked at, and how.

    ``until``: its end, in seconds since the epoch; None for now. ``span``: how many seconds it shows. ``window``: what
    ``$__rate_interval`` stands for, four scrape intervals. ``values``: what is chosen, by variable; of others, "All".
    """

    until: float | None = None
    span: int = 3600
    window: str = "1m"
    values: Mapping[str, str] | None = None

    @property
    def step(self) -> int:
        """Seconds between two points of a curve; a panel is some hundred points wide."""
        return max(1, self.span // 120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one query got."""

    board: str
    kind: Kind
    where: str
    """The panel's, variable's or annotation's name, and the query's letter."""
    expr: str
    """As it was sent."""
    single: bool
    """Whether it is a panel's single number."""
    series: int = 0
    values: tuple[float, ...] = ()
    """The last value of each series; a variable has none."""
    fault: str | None = None

    def __str__(self) -> str:
        told = self.fault or ("nothing" if not self.series else f"{self.series} series")
        return f"{self.board}: {self.kind} {self.where}: {told}"


def shipped() -> dict[str, dict[str, Any]]:
    """Return the committed dashboards by their titles."""
    found = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*.json")))
    return {board["title"]: board for board in found}


def ask(prometheus: str, board: Mapping[str, Any], moment: Moment | None = None) -> list[Answer]:
    """Send every query of one dashboard to the Prometheus at this address and return the answers, faults included.

    Raises OSError when it cannot be reached at all.
    """
    return list(_answers(prometheus.rstrip("/"), board, moment or Moment()))


def ask_all(prometheus: str, moment: Moment | None = None) -> list[Answer]:
    """The same for every dashboard here."""
    return [answer for board in shipped().values() for answer in ask(prometheus, board, moment)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print what each query got; the status is 1 when there are faults."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.probe", description=__doc__)
    parser.add_argument("prometheus", help="address of a Prometheus")
    parser.add_argument("--span", type=int, default=3600, metavar="SECONDS", help="how far to look back")
    parser.add_argument("--window", default="1m", metavar="DURATION", help="four times your scrape interval")
    options = parser.parse_args(argv)
    try:
        answers = ask_all(options.prometheus, Moment(span=options.span, window=options.window))
    except OSError as problem:
        print(f"probe: {problem}", file=sys.stderr)
        return 2
    for answer in answers:
        print(answer)
    faults = sum(answer.fault is not None for answer in answers)
    print(f"{len(answers)} queries, {sum(not a.series for a in answers)} without data, {faults} with a fault")
    return 1 if faults else 0


def _answers(prometheus: str, board: Mapping[str, Any], moment: Moment) -> Iterator[Answer]:
    fill = filler(board, moment)
    title = board["title"]
    until = {} if moment.until is None else {"time": moment.until}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            match, _, label = (
                variable["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
            )
            expr, path = fill(match), f"/api/v1/label/{label}/values"
            yield _answer(
                prometheus,
                path,
                {"match[]": expr, **_range(moment)},
                title,
                "variable",
                variable["name"],
                expr,
            )
    for annotation in board["annotations"]["list"]:
        expr = fill(annotation["expr"])
        yield _answer(prometheus, *over(expr, moment), title, "annotation", annotation["name"], expr)
    for panel in panels(board):
        for target in panel["targets"]:
            if "expr" not in target:
                continue
            expr = fill(target["expr"])
            asked: tuple[str, dict[str, Any]] = (
                ("/api/v1/query", {"query": expr, **until}) if target.get("instant") else over(expr, moment)
            )
            where = f"{panel['title']} {target['refId']}"
            yield _answer(prometheus, *asked, title, "panel", where, expr, single=panel["type"] == "stat")


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every panel that asks for something, those in closed rows included."""
    for panel in board["panels"]:
        yield from (one for one in [panel, *(panel.get("panels") or [])] if one["type"] != "row")


def filler(board: Mapping[str, Any], moment: Moment) -> Callable[[str], str]:
    """Return what puts the variables' values into a dashboard's queries."""
    values = {"__rate_interval": moment.window, "__range": f"{moment.span}s", "__interval": f"{moment.step}s"}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            values[variable["name"]] = variable["allValue"]
    values |= dict(moment.values or {})

    def fill(expr: str) -> str:
        return re.sub(r"\$(\w+)", lambda match: values[match[1]], expr)

    return fill


def over(expr: str, moment: Moment) -> tuple[str, dict[str, Any]]:
    """Return how a query is asked over the whole time: the API's path and its parameters."""
    return "/api/v1/query_range", {"query": expr, "step": moment.step, **_range(moment)}


def _range(moment: Moment) -> dict[str, float]:
    until = time.time() if moment.until is None else moment.until
    return {"start": until - moment.span, "end": until}


def _answer(
    prometheus: str,
    path: str,
    parameters: Mapping[str, Any],
    board: str,
    kind: Kind,
    where: str,
    expr: str,
    *,
    single: bool = False,
) -> Answer:
    told = Answer(board=board, kind=kind, where=where, expr=expr, single=single)
    data, fault = fetch(f"{prometheus}{path}?{urllib.parse.urlencode(parameters)}")
    if fault is not None:
        return replace(told, fault=fault)
    if isinstance(data, list):
        return replace(told, series=len(data))
    rows = data["result"]
    points = [[float(value) for _, value in row.get("values") or [row["value"]]] for row in rows]
    wild = next((value for row in points for value in row if not math.isfinite(value)), None)
    return replace(
        told,
        series=len(rows),
        values=tuple(row[-1] for row in points),
        fault=None if wild is None else f"{wild} among the values",
    )


def fetch(url: str) -> tuple[Any, str | None]:
    """Return the data that an API call got, and what was wrong with it if anything was."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            told = json.load(response)
    except urllib.error.HTTPError as refusal:
        body = refusal.read().decode(errors="replace")
        try:
            body = json.loads(body)["error"]
        except (ValueError, KeyError):
            pass
        return None, f"HTTP {refusal.code}: {body[:200]}"
    if told.get("warnings"):
        return told["data"], f"warning: {told['warnings'][0]}"
    return told["data"], None


if __name__ == "__main__":
    raise SystemExit(main())
