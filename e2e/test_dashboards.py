"""Every query of every dashboard, on the Prometheus that the traffic has filled through the collector."""

from __future__ import annotations

import pytest
from dashboards.probe import Answer, Moment, ask_all

from e2e.ran import Ran

STREAMS = "LLM streams"


@pytest.fixture(scope="module")
def answers(ran: Ran) -> list[Answer]:
    return ask_all(ran.stack.prometheus.url, Moment(span=int(ran.ended - ran.began) + 60, window="30s"))


def test_no_query_fails_and_every_number_is_finite(answers: list[Answer]) -> None:
    assert answers
    assert [str(answer) for answer in answers if answer.fault is not None] == []


def test_every_panel_and_every_choice_of_the_streams_dashboard_has_data(answers: list[Answer]) -> None:
    asked = [answer for answer in answers if answer.board == STREAMS and answer.kind != "annotation"]
    assert asked
    assert [str(answer) for answer in asked if not answer.series] == []


def test_before_the_first_call_nothing_fails(ran: Ran) -> None:
    early = ask_all(ran.stack.prometheus.url, Moment(until=ran.began, span=60, window="30s"))
    assert [str(answer) for answer in early if answer.fault is not None] == []
