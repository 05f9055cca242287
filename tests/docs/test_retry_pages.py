"""What the pages on retries, runs, routing and hedging say in words and numbers is what the code does."""

from __future__ import annotations

import bisect
import heapq
import random
import re
from enum import StrEnum

import openai
import pytest

import stallwatch
from stallwatch import HedgePolicy, RetryPolicy, Route, Router, Run, RunCancelledError
from stallwatch.core import budget, hedging, opening, pacing
from stallwatch.core.words import (
    AttemptRole,
    FailureKind,
    FailureReason,
    HedgeResult,
    RaceResult,
    RetryDecision,
)
from stallwatch.resolution import BUILT_IN
from stallwatch.routing.side_effects import leaves_traces
from stallwatch.testing import FaultGateway
from support.markdown import ROOT, prose
from support.places import MESSAGES
from support.telemetry import instrumented


def page(name: str) -> str:
    # Lines may be broken anywhere.
    return " ".join(prose(ROOT / "docs" / name).split())


def first_cells(name: str) -> set[str]:
    """Return the words in code type that begin the rows of a page's tables."""
    return set(re.findall(r"^\| `([\w=]+)`", prose(ROOT / "docs" / name), re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "words"),
    [("retries.md", RetryDecision), ("hedging.md", HedgeResult)],
)
def test_every_word_of_a_closed_list_is_explained(name: str, words: type[StrEnum]) -> None:
    assert {word.value for word in words} <= first_cells(name)


@pytest.mark.parametrize("words", [AttemptRole, RaceResult])
def test_the_glossary_knows_roles_and_results(words: type[StrEnum]) -> None:
    assert {word.value for word in words} <= set(re.findall(r"`([^`]+)`", page("glossary.md")))


def test_the_numbers_of_the_retries_are_those_of_the_code() -> None:
    text = page("retries.md")
    assert f"`max_retries`, {BUILT_IN.retry.max_retries} by default" in text
    assert (
        f"{budget.FIRST_BACK_OFF:g} s, doubled each time, at most {budget.LONGEST_BACK_OFF:g} s, less up to a quarter"
        in text
    )
    assert budget.back_off(0, 1 - 1e-9) == pytest.approx(budget.FIRST_BACK_OFF * 3 / 4)
    assert f"**More than {budget.LONGEST_SERVER_WAIT:g} s is not slept.**" in text
    assert f"a place that is more than {budget.LONGEST_SERVER_WAIT:g} s away is none" in text.lower()
    assert (budget.CALL_SHARE, budget.PER_MINUTE, budget.HALF_LIFE) == (1 / 5, 10, 60)
    assert (
        "earns a fifth of a retry, and ten a minute are free. What is earned and not spent halves every minute"
        in text
    )
    assert (pacing.BURST, pacing.SPACING) == (5, 1 / 10)
    assert f"five attempts have failed within {pacing.BURST_WINDOW:g} s" in text
    assert "take turns, a tenth of a second apart" in text
    assert opening.LONGEST == 1 << 20
    assert "a first event larger than 1 MiB" in text


def test_of_a_hundred_calls_at_once_thirty_are_tried_again() -> None:
    route = budget.RetryBudget()
    for _ in range(100):
        route.on_call(0.0)
    assert sum(route.take(0.0) for _ in range(200)) == 30
    assert "of a hundred calls at once whose answers break after the headers, thirty are tried again" in page(
        "retries.md"
    )


@pytest.mark.parametrize("paced", [False, True])
def test_two_hundred_retries_come_as_the_page_says(paced: bool) -> None:
    """A hundred calls at once, refused each time: by back-off alone, which is the SDK's own, and in a queue."""
    route, dice, came = pacing.Pacing(), random.Random(1), []
    failing = [(0.0, 0)] * 100
    while failing:
        now, retries = heapq.heappop(failing)
        if retries:
            came.append(now)
        if retries < 2:
            delay = budget.back_off(retries, dice.random())
            if paced:
                route.on_failure(now)
                delay = route.reserve(now, delay).delay
            heapq.heappush(failing, (now + delay, retries + 1))
    crowd = max(bisect.bisect(came, at + 0.1) - number for number, at in enumerate(came))
    assert len(came) == 200
    text = page("retries.md")
    if paced:
        assert came[-1] == pytest.approx(20, abs=1)
        # The first of them had no queue yet.
        assert crowd <= 1 + pacing.BURST
        assert "With stallwatch the same two hundred are spread over 20 s, ten a second" in text
    else:
        assert came[-1] <= 1.5
        assert 70 < crowd <= 100
        assert "the two hundred retries arrive within 1.5 s, up to 88 of them in a tenth of a second" in text


def test_the_numbers_of_the_hedges_are_those_of_the_code() -> None:
    text = page("hedging.md")
    share = HedgePolicy(delay=1).max_share
    assert f"{share * 100:g} % by default" in text
    earned = hedging.HedgeShare(share)
    calls = 0
    while not earned.take():
        earned.on_call()
        calls += 1
    assert calls == 20
    assert "the first comes after twenty calls at the earliest" in text
    assert hedging.SAVED_HEDGES == 10
    assert "no more than ten are saved up" in text
    assert f"the router's last {hedging.SAMPLES} calls" in text
    assert f"Until {hedging.MIN_SAMPLES} are known, nothing is hedged" in text


@pytest.mark.parametrize(
    ("api", "asked", "hedged"),
    [
        ("chat", {}, True),
        ("responses", {}, False),
        ("responses", {"store": False}, True),
        ("chat", {"store": True}, False),
        ("responses", {"store": False, "background": True}, False),
        ("responses", {"store": False, "conversation": "conv_1"}, False),
        ("chat", {"web_search_options": {"search_context_size": "low"}}, False),
        ("chat", {"tools": [{"type": "function", "function": {"name": "f"}}]}, True),
        ("responses", {"store": False, "tools": [{"type": "web_search"}]}, False),
        ("chat", {"extra_body": {"store": True}}, False),
    ],
)
def test_what_is_hedged_is_what_the_page_says(api: str, asked: dict[str, object], hedged: bool) -> None:
    assert leaves_traces(api, asked) is not hedged
    for name in asked.keys() - {"tools"}:
        assert f"`{name}" in page("hedging.md")


def test_kinds_and_reasons_named_in_the_routing_page_exist() -> None:
    (example,) = re.findall(
        r"fall_back_on=\[(.*?)\]", (ROOT / "docs" / "routing.md").read_text(encoding="utf-8")
    )
    named = re.findall(r'"(\w+)"', example)
    assert named
    assert set(named) <= {*FailureKind, *FailureReason}


def test_a_routes_fields_are_on_the_page() -> None:
    assert set(Route.__dataclass_fields__) <= first_cells("routing.md")


def test_a_number_and_a_delay_stand_for_their_policies() -> None:
    with openai.OpenAI(api_key="test") as client:
        router = Router([Route(client=client)], retry=1, hedge="p95")
    assert router.retry == RetryPolicy(max_retries=1)
    assert router.hedge == HedgePolicy(delay="p95")


@pytest.mark.parametrize(
    ("routed", "decision"), [(False, RetryDecision.PARTIAL_OUTPUT), (True, RetryDecision.NOT_REPLAYABLE)]
)
def test_what_falls_silent_after_its_role_is_not_tried_again(routed: bool, decision: RetryDecision) -> None:
    with FaultGateway() as gateway, instrumented(first_token=0.2, max_retries=1):
        with openai.OpenAI(base_url=gateway.base_url, api_key="test") as client:
            asking = Router([Route(client=client)]) if routed else client
            with pytest.raises(stallwatch.StreamTimeoutError) as stall:
                list(
                    asking.chat.completions.create(
                        model="stall-after:tokens=0", messages=MESSAGES, stream=True
                    )
                )
        assert stall.value.decision == decision
        assert len(gateway.ledger().requests) == 1


def test_a_page_instead_of_an_answer_is_an_empty_one_and_a_router_falls_back() -> None:
    asked = {"messages": MESSAGES, "stream": True}
    with (
        FaultGateway() as gateway,
        instrumented(),
        openai.OpenAI(base_url=gateway.base_url, api_key="test") as client,
    ):
        assert list(client.chat.completions.create(model="non-sse", **asked)) == []
        router = Router([Route(client=client, model=model) for model in ("non-sse", "healthy")])
        assert len(list(router.chat.completions.create(**asked))) > 1


def test_a_cancel_is_no_api_error() -> None:
    assert issubclass(RunCancelledError, openai.OpenAIError)
    assert not issubclass(RunCancelledError, openai.APIError)


def test_what_the_runs_page_names_of_a_run_exists() -> None:
    named = set(re.findall(r"`run\.(\w+)", page("runs.md")))
    assert named
    assert all(hasattr(Run, name) for name in named)


@pytest.mark.parametrize(
    ("policy", "client", "by_sdk"),
    [(None, 2, 2), (None, 5, 5), (1, 5, 1), (5, 2, 2), (0, 5, 0), (2, 0, 0)],
)
def test_the_sdk_makes_as_many_retries_as_the_table_says(
    policy: int | None, client: int, by_sdk: int
) -> None:
    settings = {} if policy is None else {"max_retries": policy}
    with FaultGateway() as gateway, instrumented(**settings):
        asking = openai.OpenAI(base_url=gateway.base_url, api_key="test", max_retries=client)
        with asking, pytest.raises(openai.InternalServerError):
            asking.completions.create(model="error-status:code=503,retry_after_ms=1", prompt="Hello")
        assert len(gateway.ledger().requests) == by_sdk + 1
