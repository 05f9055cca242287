"""How long a caller can be kept waiting at the very most."""

from __future__ import annotations

from typing import Any

import pytest

from stallwatch.core.deadlines import Limits
from stallwatch.core.worst_case import UNBOUNDED, WorstCase, worst_case
from stallwatch.policy import Policy
from stallwatch.resolution import Layers, resolve


def case(first_token: float | None, silence: float | None, total: float | None) -> WorstCase:
    return WorstCase(first_token=first_token, silence=silence, total=total)


PLAIN = {"connect": 5.0, "first_token": 10.0, "thinking": 20.0, "idle": 30.0, "total": 1000.0}

ROWS: dict[str, tuple[dict[str, Any], int, WorstCase]] = {
    # limits, retries, worst case
    "one attempt, stretched by signs of life": ({}, 0, case(20, 40, 1000)),
    "three attempts and two pauses": ({}, 2, case(300, 40, 1000)),
    "a total that is shorter": ({"total": 50.0}, 2, case(50, 40, 50)),
    "a total shorter than a silence": ({"total": 15.0}, 2, case(15, 15, 15)),
    "no stretching": ({"keepalive_factor": 1.0}, 1, case(140, 30, 1000)),
    "stretching has an end": ({"first_token": 400.0, "total": None}, 0, case(600, 40, None)),
    "a limit beyond that end is kept": ({"first_token": 900.0, "total": None}, 0, case(900, 40, None)),
    "idle is not stretched": ({"idle": 50.0}, 0, case(20, 50, 1000)),
    "no first_token: the total bounds it": ({"first_token": None}, 2, case(1000, 40, 1000)),
    "no thinking: the total bounds a silence": ({"thinking": None}, 0, case(20, 1000, 1000)),
    "no idle: the total bounds a silence": ({"idle": None}, 0, case(20, 1000, 1000)),
    "no total": ({"total": None}, 2, case(300, 40, None)),
    "nothing at all": (dict.fromkeys(PLAIN), 2, UNBOUNDED),
    "connect alone bounds nothing but itself": ({**dict.fromkeys(PLAIN), "connect": 5.0}, 0, UNBOUNDED),
}


@pytest.mark.parametrize(("changes", "retries", "worst"), ROWS.values(), ids=ROWS.keys())
def test_row(changes: dict[str, Any], retries: int, worst: WorstCase) -> None:
    assert worst_case(Limits(**PLAIN | changes), retries) == worst


@pytest.mark.parametrize(
    ("longest_wait", "first_token"), [(0, 76), (8, 76), (30, 120), (120, 300), (9999, 300)]
)
def test_servers_may_be_taken_to_ask_for_less_but_a_back_off_remains(
    longest_wait: float, first_token: float
) -> None:
    assert worst_case(Limits(**PLAIN), 2, longest_wait).first_token == first_token


# Of a policy

BY_POLICY: dict[str, tuple[dict[str, Any], dict[str, Any], WorstCase]] = {
    # policy, question, worst case
    "the built-in": ({}, {}, case(960, 240, 3600)),
    "the built-in, thinking in silence": ({}, {"model": "o3"}, case(2040, 600, 3600)),
    "by the policy's own word": ({"hidden_reasoning": True}, {}, case(2040, 600, 3600)),
    "the client allows fewer": ({}, {"max_retries": 0}, case(240, 240, 3600)),
    "the client allows more than is built in": ({}, {"max_retries": 3}, case(4 * 240 + 3 * 120, 240, 3600)),
    "the client allows more than the policy": ({"max_retries": 2}, {"max_retries": 9}, case(960, 240, 3600)),
    "the policy allows none": ({"max_retries": 0}, {"max_retries": 2}, case(240, 240, 3600)),
    "without streaming": ({}, {"stream": False}, case(3600, 3600, 3600)),
    "a short total": ({"total": 30}, {}, case(30, 30, 30)),
    "observing bounds nothing": ({"mode": "observe"}, {}, UNBOUNDED),
    "off bounds nothing": ({"mode": "off"}, {}, UNBOUNDED),
}


@pytest.mark.parametrize(("settings", "asked", "worst"), BY_POLICY.values(), ids=BY_POLICY.keys())
def test_of_a_policy(settings: dict[str, Any], asked: dict[str, Any], worst: WorstCase) -> None:
    policy = Policy.of(**settings)
    assert policy.worst_case(**asked) == worst
    resolved = resolve(
        Layers(code=policy), model=asked.get("model"), base_url=None, stream=asked.get("stream", True)
    )
    assert resolved.worst_case(max_retries=asked.get("max_retries")) == worst


def test_a_client_cannot_allow_fewer_than_none() -> None:
    with pytest.raises(ValueError, match=r"max_retries=-1 is not allowed: give the client's own, 0 or more"):
        Policy().worst_case(max_retries=-1)
