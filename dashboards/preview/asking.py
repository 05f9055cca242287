"""What a panel's queries get from a Prometheus: series of points, exemplars, and when alerts fired."""

from __future__ import annotations

import re
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dashboards.probe import Moment, fetch, filler, over


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of a query: what it is called, and its points as (Unix seconds, value)."""

    letter: str
    name: str
    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a panel's queries got; ``fault`` is the first thing that went wrong."""

    series: tuple[Series, ...] = ()
    exemplars: tuple[tuple[float, float], ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """When an alert began to fire."""

    at: float
    colour: str
    text: str


class Source:
    """A Prometheus, asked about one dashboard at one moment."""

    def __init__(self, prometheus: str, board: Mapping[str, Any], moment: Moment) -> None:
        self._prometheus = prometheus.rstrip("/")
        # One end for all panels, or their axes would differ.
        self.moment = moment if moment.until is not None else replace(moment, until=time.time())
        self._fill = filler(board, self.moment)

    def panel(self, panel: Mapping[str, Any]) -> Told:
        """Ask all that a panel asks."""
        series: list[Series] = []
        exemplars: list[tuple[float, float]] = []
        for target in panel["targets"]:
            rows, fault = self._rows(target)
            if fault is not None:
                return Told(fault=fault)
            series += [_series(target, row) for row in rows]
            if target.get("exemplar"):
                exemplars += self._exemplars(target["expr"])
        return Told(series=tuple(series), exemplars=tuple(exemplars))

    def marks(self, annotation: Mapping[str, Any]) -> list[Mark]:
        """Return when the alerts of an annotation began to fire."""
        path, parameters = over(self._fill(annotation["expr"]), self.moment)
        data, _ = self._get(path, parameters)
        rows = data["result"] if data else []
        return [
            Mark(
                at=float(row["values"][0][0]),
                colour=annotation["iconColor"],
                text=row["metric"].get("alertname", ""),
            )
            for row in rows
        ]

    def _rows(self, target: Mapping[str, Any]) -> tuple[list[Any], str | None]:
        expr = self._fill(target["expr"])
        if target.get("instant"):
            path, parameters = "/api/v1/query", {"query": expr, "time": self.moment.until}
        else:
            path, parameters = over(expr, self.moment)
        data, fault = self._get(path, parameters)
        return ([], fault) if fault is not None else (data["result"], None)

    def _exemplars(self, expr: str) -> list[tuple[float, float]]:
        _, parameters = over(self._fill(expr), self.moment)
        data, _ = self._get("/api/v1/query_exemplars", parameters)
        return [
            (float(one["timestamp"]), float(one["value"])) for row in data or [] for one in row["exemplars"]
        ]

    def _get(self, path: str, parameters: Mapping[str, Any]) -> tuple[Any, str | None]:
        return fetch(f"{self._prometheus}{path}?{urllib.parse.urlencode(parameters)}")


def _series(target: Mapping[str, Any], row: Mapping[str, Any]) -> Series:
    points = row.get("values") or [row["value"]]
    return Series(
        letter=target["refId"],
        name=_named(target.get("legendFormat", ""), row["metric"]),
        labels=row["metric"],
        points=tuple((float(at), float(value)) for at, value in points),
    )


def _named(pattern: str, labels: Mapping[str, str]) -> str:
    """Fill in a legend; a label that is absent leaves nothing, as in Grafana."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), pattern)
