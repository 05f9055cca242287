"""The shipped rules, as they stand, on the numbers of real traffic, by either path.

Longer windows are summed from looks at the shortest once a minute, so nothing is recorded of them before the first full
minute. When these tests run in their order that has long passed.
"""

from __future__ import annotations

import math
import re
import time
from typing import Any

import pytest
from dashboards.probe import Answer, Moment, ask_all

from e2e.prometheus import Prometheus
from e2e.ran import Collected, Ran
from e2e.test_dashboards import UNUSED
from e2e.waiting import until

SLO = "Idle-timeout SLO"
LONG = r"increase(?!5m)|ratio(?!5m)|budget_left"


@pytest.fixture
def recorded(ran: Ran) -> Ran:
    """Return the traffic when every rule has had something to record."""
    names = [rule["name"] for rule in rules(ran.prometheus) if rule["type"] == "recording"]
    assert len(names) > 20

    def missing() -> list[str]:
        # A share of the open streams is there only while one is open.
        return [name for name in names if not ran.prometheus.query(f"present_over_time({name}[10m])")]

    until(lambda: not missing(), "every rule has recorded something", seconds=75, telling=missing)
    return ran


def rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]


def test_every_rule_can_be_evaluated(recorded: Ran) -> None:
    found = rules(recorded.prometheus)
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []


def test_every_series_that_an_alert_names_is_there(recorded: Ran) -> None:
    absent = UNUSED if isinstance(recorded, Collected) else f"{UNUSED}|otelcol_"
    for rule in rules(recorded.prometheus):
        if rule["type"] != "alerting":
            continue
        # Rewritten by Prometheus: a selector of one metric starts with its name, one of several spellings has none.
        named = re.findall(
            r"\b(?:model:|stallwatch_|gen_ai_client_|otelcol_)\w+(?::\w+)?(?=[{\[ )]|$)", rule["query"]
        )
        spelt = re.findall(r'\{__name__=~"[^"]+"\}', rule["query"])
        wanted = {name for name in [*named, *spelt] if not re.search(absent, name)}
        labels = set(re.findall(r"\b(?:stallwatch|gen_ai)_\w+(?==)", rule["query"]))
        for selector in wanted - labels - LABELS:
            assert recorded.prometheus.query(f"count(present_over_time({selector}[10m]))"), (
                rule["name"],
                selector,
            )


LABELS = {"gen_ai_provider_name", "gen_ai_request_model"}


def test_without_a_stall_the_share_is_nought_and_neither_absent_nor_nan(recorded: Ran) -> None:
    for window in ("5m", "30m", "1h", "6h", "3d", "_period"):
        name = f"model:stallwatch_stalled_streams:ratio{window}"
        found = recorded.prometheus.by("gen_ai_request_model", f"last_over_time({name}[10m])")
        assert found["steady"] == 0.0, window
        assert found["halts"] == 1.0, window
        assert all(math.isfinite(value) for value in found.values())


def test_the_dashboard_of_the_objective_has_data(recorded: Ran) -> None:
    moment = Moment(span=int(time.time() - recorded.began) + 5, window="30s")
    answers = [one for one in ask_all(recorded.prometheus.url, moment) if one.board == SLO]
    assert [str(one) for one in answers if one.fault is not None] == []
    assert [str(one) for one in answers if not one.series and not unused(one)] == []


def unused(answer: Answer) -> bool:
    return re.search(UNUSED, answer.expr) is not None
