"""What users may set, and what is said about what they may not."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import pytest

from stallwatch.core.words import Mode
from stallwatch.policy import DEFAULT, Deadlines, Policy, RetryPolicy, Rule
from stallwatch.policy_blocks import call_layers, policy

BAD: list[tuple[str, Any, str]] = [
    ("connect", "abc", "a number of seconds"),
    ("first_token", math.nan, "a number of seconds"),
    ("thinking", True, "a number of seconds"),
    ("idle", [], "a number of seconds"),
    ("total", 10**9, "at most 1,000,000 s"),
    ("max_retries", -1, "from 0 to 100"),
    ("max_retries", 101, "from 0 to 100"),
    ("max_retries", 1.0, "from 0 to 100"),
    ("max_retries", True, "from 0 to 100"),
    ("max_retries", None, "from 0 to 100"),
    ("mode", "enforced", "enforce, observe, off"),
    ("mode", None, "enforce, observe, off"),
    ("mode", [], "enforce, observe, off"),
    ("progress", "bytes", "content, chunk"),
    ("gaps", True, "all, summary, off"),
    ("keepalive_factor", 0.5, "from 1 to 10"),
    ("keepalive_factor", 11, "from 1 to 10"),
    ("keepalive_factor", math.nan, "from 1 to 10"),
    ("keepalive_factor", True, "from 1 to 10"),
    ("keepalive_factor", "2", "from 1 to 10"),
    ("hidden_reasoning", 1, "True or False"),
    ("hidden_reasoning", None, "True or False"),
    ("deadlines", None, "a Deadlines"),
    ("deadlines", {"idle": 3}, "a Deadlines"),
    ("retry", 2, "a RetryPolicy"),
]


def call_policies() -> tuple[Policy, ...]:
    """The policies of the blocks around, outermost first."""
    return tuple(chosen for _, chosen in call_layers())


@pytest.mark.parametrize(("field", "value", "allowed"), BAD)
def test_a_bad_value_is_refused_naming_field_value_and_range(field: str, value: object, allowed: str) -> None:
    with pytest.raises(ValueError, match="is not allowed") as caught:
        Policy.of(**{field: value})
    assert str(caught.value).startswith(f"{field}={value!r} ")
    assert allowed in str(caught.value)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="idel=3 is not a policy setting") as caught:
        Policy.of(idel=3)
    for name in ("idle", "first_token", "max_retries", "mode", "gaps"):
        assert name in str(caught.value)


def test_nothing_is_set_by_default() -> None:
    empty = Policy()
    values = [
        empty.mode,
        empty.progress,
        empty.keepalive_factor,
        empty.gaps,
        empty.hidden_reasoning,
        empty.retry.max_retries,
    ]
    values += [getattr(empty.deadlines, field.name) for field in dataclasses.fields(Deadlines)]
    assert set(values) == {DEFAULT}


def test_off_is_something_else_than_not_set() -> None:
    assert Deadlines(idle=None) == Deadlines(idle=0) == Deadlines(idle=-1) != Deadlines()
    assert Deadlines(idle=0).idle is None
    assert Deadlines().idle is DEFAULT


def test_values_are_normalised_so_that_equal_policies_are_equal() -> None:
    assert Deadlines(idle=120) == Deadlines(idle="2m") == Deadlines(idle=timedelta(minutes=2))
    assert Policy(mode="observe") == Policy(mode=Mode.OBSERVE)
    assert Policy(mode="observe").mode is Mode.OBSERVE
    assert Policy(keepalive_factor=2) == Policy(keepalive_factor=2.0)


def test_flat_names_reach_every_part() -> None:
    built = Policy.of(idle=30, first_token=None, max_retries=0, mode="observe", progress="chunk", gaps="off")
    assert built == Policy(
        deadlines=Deadlines(idle=30, first_token=None),
        retry=RetryPolicy(max_retries=0),
        mode="observe",
        progress="chunk",
        gaps="off",
    )


def test_flat_names_are_laid_over_the_parts() -> None:
    built = Policy.of(deadlines=Deadlines(idle=30, total=60), idle=5, retry=RetryPolicy(max_retries=1))
    assert built == Policy(deadlines=Deadlines(idle=5, total=60), retry=RetryPolicy(max_retries=1))


@pytest.mark.parametrize("kind", [Deadlines, RetryPolicy, Policy])
def test_policies_are_frozen_and_keyword_only(kind: type[Any]) -> None:
    made = kind()
    name = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, name, 1)
    with pytest.raises(TypeError):
        kind(1)
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_policies_survive_copies_with_not_set_still_not_set(twin: Any) -> None:
    made = Policy.of(idle=30, first_token=None)
    assert twin(made) == made
    assert twin(made).deadlines.total is DEFAULT


ROUTE = "https://api.example.com/v1/"


@pytest.mark.parametrize(
    ("model", "base_url", "matches"),
    [
        (None, None, True),
        ("*", None, True),
        ("gpt-5", None, True),
        ("gpt-5*", None, True),
        ("GPT-?", None, True),
        ("gpt-[45]", None, True),
        ("gpt", None, False),
        ("gpt-4*", None, False),
        (None, ROUTE, True),
        (None, "https://api.example.com/v1", True),
        (None, "https://API.example.com/*", True),
        (None, "*.example.com*", True),
        (None, "http://*", False),
        ("gpt-5", "http://*", False),
        ("gpt-4*", ROUTE, False),
        ("gpt-5*", "*example*", True),
    ],
)
def test_a_rule_covers(model: str | None, base_url: str | None, matches: bool) -> None:
    rule = Rule(name="rule", policy=Policy(), model=model, base_url=base_url)
    assert rule.matches("gpt-5", ROUTE) is matches


def test_a_rule_with_a_pattern_needs_something_to_match() -> None:
    assert not Rule(name="rule", policy=Policy(), model="*").matches(None, ROUTE)
    assert not Rule(name="rule", policy=Policy(), base_url="*").matches("gpt-5", None)
    assert Rule(name="rule", policy=Policy()).matches(None, None)


def test_an_address_with_brackets_matches_itself() -> None:
    rule = Rule(name="rule", policy=Policy(), base_url="http://[::1]:8080/v1")
    assert rule.matches("gpt-5", "http://[::1]:8080/v1/")
    assert not rule.matches("gpt-5", "http://[::1]:8081/v1/")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", None),
        ("name", 3),
        ("model", 5),
        ("model", ""),
        ("model", ["gpt-5"]),
        ("base_url", b"http"),
        ("base_url", " "),
        ("policy", {"idle": 3}),
        ("policy", None),
    ],
)
def test_a_bad_rule_is_refused_naming_field_and_value(field: str, value: object) -> None:
    given: dict[str, Any] = {"name": "rule", "policy": Policy(), field: value}
    with pytest.raises(ValueError, match="is not allowed: give") as caught:
        Rule(**given)
    assert str(caught.value).startswith(f"{field}={value!r} ")


def test_blocks_nest_outermost_first_and_end() -> None:
    assert call_policies() == ()
    with policy(idle=30) as outer:
        assert call_policies() == (outer,) == (Policy.of(idle=30),)
        with policy(Policy.of(idle=5)) as inner:
            assert call_policies() == (outer, inner)
        assert call_policies() == (outer,)
    assert call_policies() == ()


def test_a_block_ends_with_an_exception_too() -> None:
    with pytest.raises(KeyError), policy(idle=30):
        raise KeyError
    assert call_policies() == ()


@pytest.mark.parametrize(
    ("args", "settings"),
    [((), {"idle": "abc"}), ((), {"idel": 3}), ((Policy(),), {"idle": 3}), ((3,), {}), (("observe",), {})],
)
def test_a_block_with_bad_settings_is_refused_before_it_begins(args: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not"), policy(*args, **settings):
        pytest.fail("the block must not begin")
    assert call_policies() == ()


def test_tasks_inherit_a_block_and_do_not_leak_theirs() -> None:
    async def inner() -> tuple[Policy, ...]:
        with policy(idle=5):
            await asyncio.sleep(0)
            return call_policies()

    async def outer() -> None:
        with policy(idle=30) as mine:
            first, second = await asyncio.gather(inner(), inner())
            assert first == second == (mine, Policy.of(idle=5))
            assert call_policies() == (mine,)

    asyncio.run(outer())


def test_other_threads_do_not_see_a_block() -> None:
    seen: list[tuple[Policy, ...]] = []
    with policy(idle=30):
        thread = threading.Thread(target=lambda: seen.append(call_policies()))
        thread.start()
        thread.join()
    assert seen == [()]


def test_a_block_left_in_another_context_does_no_harm() -> None:
    @contextmanager
    def dependency() -> Iterator[None]:
        with policy(idle=30):
            yield

    block = dependency()
    copy_context().run(block.__enter__)
    copy_context().run(block.__exit__, None, None, None)
    assert call_policies() == ()


def _holding(made: Policy) -> Iterator[tuple[Policy, ...]]:
    with policy(made):
        while True:
            yield call_policies()


A, B = Policy.of(idle=1), Policy.of(idle=2)


@pytest.mark.parametrize("second", [B, A, Policy.of(idle=1)], ids=["another", "the same", "an equal one"])
@pytest.mark.parametrize("order", ["first", "last"])
def test_blocks_of_generators_end_in_any_order(second: Policy, order: str) -> None:
    one, other = _holding(A), _holding(second)
    assert (next(one), next(other)) == ((A,), (A, second))
    left, staying = (one, other) if order == "first" else (other, one)
    left.close()  # type: ignore[attr-defined]  # a generator
    remaining = second if order == "first" else A
    assert len(call_policies()) == 1
    assert call_policies()[0] is remaining
    assert next(staying) == (remaining,)
    staying.close()  # type: ignore[attr-defined]
    assert call_policies() == ()


def test_a_block_of_a_generator_ends_between_those_of_its_consumer() -> None:
    held = _holding(A)
    with policy(B):
        next(held)
        with policy(mode="off") as inner:
            held.close()  # type: ignore[attr-defined]
            assert call_policies() == (B, inner)
        assert call_policies() == (B,)
    assert call_policies() == ()


def test_a_block_left_in_a_copy_of_its_context_ends_there() -> None:
    def enter_here_leave_in_a_copy() -> None:
        block = policy(A)
        block.__enter__()
        copied = copy_context()
        copied.run(block.__exit__, None, None, None)
        assert copied.run(call_policies) == ()

    copy_context().run(enter_here_leave_in_a_copy)
    assert call_policies() == ()


def test_deadlines_are_understood_with_timeout_at_the_end() -> None:
    assert Policy.of(idle_timeout=3, first_token_timeout="2m") == Policy.of(idle=3, first_token=120)
    with pytest.raises(ValueError, match="idle is set already"):
        Policy.of(idle_timeout=3, idle=4)
