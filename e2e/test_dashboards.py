"""Every query of every dashboard, on the Prometheus that the traffic has filled, by either path.

What the rules record needs a minute; the dashboard about that is asked in ``test_rules``.
"""

from __future__ import annotations

import json
import re

import pytest
from dashboards.probe import Answer, Moment, ask, ask_all, panels, shipped

from e2e.ran import Collected, Ran

STREAMS = "LLM streams"
PIPELINE = "Pipeline health"

UNUSED = r"ALERTS|_OTHER|== bool 0|otelcol_exporter_(send|enqueue)_failed"
"""What has no series where nothing of the kind has happened: alerts, models past the cap, dead targets, losses."""
NO_COLLECTOR = UNUSED + "|otelcol_"

WITHOUT_A_COLLECTOR = {
    "Fullest queue",
    "Received and sent",
    "Refused and lost",
    "Queues",
    "Memory",
    "Traces decided",
    "Traces in memory",
    "Traces forgotten undecided",
    "Restarts of collectors",
}
"""The panels of *Pipeline health* that say so; of those with a number, "Collectors", "Refused" and "Lost" say 0."""


@pytest.fixture
def answers(ran: Ran) -> list[Answer]:
    return asked(ran, Moment(until=ran.settled, span=ran.span, window="30s"))


def asked(ran: Ran, moment: Moment) -> list[Answer]:
    return ask_all(ran.prometheus.url, moment)


def empty(answers: list[Answer], board: str) -> list[Answer]:
    return [answer for answer in answers if answer.board == board and not answer.series]


def panel_of(answer: Answer) -> str:
    return answer.where.rpartition(" ")[0]


def test_no_query_fails_and_every_number_is_finite(answers: list[Answer]) -> None:
    assert len(answers) > 100
    assert [str(answer) for answer in answers if answer.fault is not None] == []


def test_every_panel_and_every_choice_of_the_streams_dashboard_has_data(answers: list[Answer]) -> None:
    assert [str(one) for one in empty(answers, STREAMS) if one.kind != "annotation"] == []


def test_with_one_model_chosen_and_with_two_it_has_data_too(ran: Ran) -> None:
    for model in ("recovers", "recovers|late-backup"):
        moment = Moment(until=ran.settled, span=ran.span, window="30s", values={"model": model})
        answers = asked(ran, moment)
        assert [str(answer) for answer in answers if answer.fault is not None] == []
        assert [
            one.where for one in answers if one.board == STREAMS and one.where == "Models C" and one.series
        ]


def test_of_the_pipeline_dashboard_only_that_is_empty_which_did_not_happen(
    ran: Ran, answers: list[Answer]
) -> None:
    absent = UNUSED if isinstance(ran, Collected) else NO_COLLECTOR
    assert [str(one) for one in empty(answers, PIPELINE) if not re.search(absent, one.expr)] == []


def test_without_a_collector_its_panels_say_so(scraped: Ran) -> None:
    answers = asked(scraped, Moment(until=scraped.settled, span=scraped.span, window="30s"))
    found = [one for one in empty(answers, PIPELINE) if re.search("otelcol_", one.expr)]
    assert {panel_of(one) for one in found if one.kind == "panel"} == WITHOUT_A_COLLECTOR
    assert [one.where for one in found if one.kind != "panel"] == ["collector"]
    numbers = {panel_of(one): one.values for one in answers if one.board == PIPELINE and one.single}
    assert {title: numbers[title] for title in ("Jobs that report", "Collectors", "Refused", "Lost")} == {
        "Jobs that report": (1.0,),
        "Collectors": (0.0,),
        "Refused": (0.0,),
        "Lost": (0.0,),
    }


def test_every_panel_that_is_empty_has_words_for_it(answers: list[Answer]) -> None:
    boards = shipped()
    for answer in answers:
        if answer.kind == "panel" and not answer.series:
            (panel,) = [one for one in panels(boards[answer.board]) if one["title"] == panel_of(answer)]
            assert panel["fieldConfig"]["defaults"].get("noValue"), answer


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("stallwatch_stalls_total", "stallwatch_stalls"),
        ("stallwatch_stream_oldest_wait_seconds", "stallwatch_stream_oldest_wait"),
        ("stallwatch_outcome=~", "stallwatch_result=~"),
    ],
    ids=["suffix", "unit", "label"],
)
def test_a_name_that_nobody_emits_would_be_found(ran: Ran, right: str, wrong: str) -> None:
    """Otherwise the checks above would mean nothing."""
    board = json.dumps(shipped()[STREAMS])
    assert right in board
    moment = Moment(until=ran.settled, span=ran.span, window="30s")
    answers = ask(ran.prometheus.url, json.loads(board.replace(right, wrong)), moment)
    assert [one for one in empty(answers, STREAMS) if one.kind == "panel"]


def test_before_the_first_call_nothing_fails(ran: Ran) -> None:
    early = asked(ran, Moment(until=ran.began, span=60, window="30s"))
    assert [str(answer) for answer in early if answer.fault is not None] == []
