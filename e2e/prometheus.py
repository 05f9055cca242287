"""A real Prometheus with the configuration in ``deploy``, and questions to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.needs import ROOT, debian
from e2e.processes import Process, Processes, free_ports
from e2e.waiting import until

__all__ = ["INTERVAL", "RULES", "Prometheus", "Series"]

CONFIG = ROOT / "deploy" / "prometheus" / "prometheus.yml"
RULES = ROOT / "dashboards"
INTERVAL = 1
"""Seconds between scrapes and evaluations, where the file says 15."""

Series = Mapping[str, str]


class Prometheus:
    """The server; targets are given as addresses and written where the configuration looks for them.

    ``rules`` is the folder whose rules it evaluates; the shipped ones unless others are given.
    """

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        *,
        applications: Sequence[str] = (),
        collectors: Sequence[str] = (),
        alertmanagers: Sequence[str] = (),
        rules: Path = RULES,
    ) -> None:
        self.port = free_ports(1)[0]
        self._processes = processes
        self._folder = folder / "prometheus"
        (self._folder / "targets").mkdir(parents=True)
        (self._folder / "rules").mkdir()
        shipped = CONFIG.read_text(encoding="utf-8")
        assert shipped.count("_interval: 15s") == 2, f"{CONFIG}: the intervals are not where they were"
        self.config = self._folder / "prometheus.yml"
        self.config.write_text(shipped.replace("_interval: 15s", f"_interval: {INTERVAL}s"), encoding="utf-8")
        targets = {"applications": applications, "collectors": collectors, "alertmanagers": alertmanagers}
        for name, addresses in targets.items():
            (self._folder / "targets" / f"{name}.yml").write_text(json.dumps([{"targets": [*addresses]}]))
        self._targets = len(applications) + len(collectors)
        for file in rules.glob("*rules.yml"):
            shutil.copy(file, self._folder / "rules")

    @property
    def url(self) -> str:
        """The base address."""
        return f"http://127.0.0.1:{self.port}"

    def check(self) -> None:
        """Have promtool check configuration and rules."""
        done = subprocess.run(
            [debian("promtool"), "check", "config", str(self.config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    def start(self, *, until_scraped: bool = True) -> None:
        """Start it and wait until it has scraped every target; it takes some seconds to look at the files.

        Without ``until_scraped`` until it knows of them: a program that is scraped itself is started later.
        """
        process: Process = self._processes.start(
            "prometheus",
            [
                debian("prometheus"),
                f"--config.file={self.config}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                f"--web.external-url={self.url}",
                "--web.enable-lifecycle",
                "--enable-feature=exemplar-storage",
            ],
        )
        until(
            lambda: not process.running or self._get("/-/ready") is not None,
            "Prometheus is ready",
            seconds=30,
            telling=process.told,
        )
        assert process.running, process.told()
        until(
            lambda: self.value("sum(up)" if until_scraped else "count(up)") >= self._targets,
            f"Prometheus has looked at {self._targets} targets",
            seconds=20,
            telling=lambda: self.query("up"),
        )

    def query(self, expr: str, at: float | None = None) -> list[tuple[Series, float]]:
        """Return the series and values of an instant query, as of now or of a moment in Unix seconds."""
        data = self.api("query", query=expr, **({} if at is None else {"time": at}))
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def value(self, expr: str) -> float:
        """Return the value of the only series of an instant query; 0 if there is none."""
        found = self.query(expr)
        assert len(found) <= 1, f"{expr}: {len(found)} series"
        return found[0][1] if found else 0.0

    def by(self, label: str, expr: str, at: float | None = None) -> dict[str, float]:
        """Return the values of an instant query by one of its labels."""
        return {series.get(label, ""): value for series, value in self.query(expr, at)}

    def exemplars(self, expr: str, *, start: float, end: float) -> list[tuple[Series, Series, float]]:
        """Return series labels, exemplar labels and value of each exemplar of the series in the expression."""
        found = self.api("query_exemplars", query=expr, start=start, end=end)
        return [
            (group["seriesLabels"], exemplar["labels"], float(exemplar["value"]))
            for group in found
            for exemplar in group["exemplars"]
        ]

    def everything(self) -> str:
        """Return names, labels and values of every series it has, as text."""
        return json.dumps(self.api("series", **{"match[]": '{__name__=~".+"}'}))

    def api(self, what: str, **parameters: Any) -> Any:
        """Return the ``data`` of an API call; raises AssertionError with the server's own words if it fails."""
        try:
            answer = json.loads(self._get(f"/api/v1/{what}?{urllib.parse.urlencode(parameters)}"))
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{what} {parameters}: {refused.read().decode()}") from None
        assert answer["status"] == "success", answer
        return answer["data"]

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            text: str = answer.read().decode()
        return text
