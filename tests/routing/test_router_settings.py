"""Bad settings are told at once: the field, the value and what is allowed. Good ones work with any client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import openai
import pytest

import stallwatch
from stallwatch import AsyncRouter, HedgePolicy, Policy, RetryPolicy, Route, Router
from stallwatch.governing import is_governed
from stallwatch.testing import Done, Finish, Headers, Role, Silence, Token
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import Captured

if TYPE_CHECKING:
    from routing.conftest import Scene

SILENT = [Headers(), Silence()]
GOOD = [Role(), Token("Hel"), Token("lo"), Finish(), Done()]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="sk-test", base_url="http://127.0.0.1:9/v1") as made:
        yield made
        stallwatch.unguard(made)


@pytest.fixture(scope="module")
def other() -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="sk-test", base_url="http://127.0.0.1:9/v1")


BAD_HEDGES: list[tuple[dict[str, Any], str, str]] = [
    ({"delay": 0}, "delay=0 ", "p95"),
    ({"delay": -1}, "delay=-1 ", "p95"),
    ({"delay": None}, "delay=None", "p95"),
    ({"delay": True}, "delay=True", "p95"),
    ({"delay": "soon"}, "delay='soon'", "p95"),
    ({"delay": "p100"}, "delay='p100'", "p95"),
    ({"delay": "p-5"}, "delay='p-5'", "p95"),
    ({"delay": "p"}, "delay='p'", "p95"),
    ({"delay": float("nan")}, "delay=nan", "p95"),
    ({"delay": float("inf")}, "delay=inf", "p95"),
    ({"delay": [1]}, "delay=[1]", "p95"),
    ({"delay": 1, "max_share": 0}, "max_share=0 ", "above 0, at most 1"),
    ({"delay": 1, "max_share": -0.1}, "max_share=-0.1", "above 0, at most 1"),
    ({"delay": 1, "max_share": 1.01}, "max_share=1.01", "above 0, at most 1"),
    ({"delay": 1, "max_share": 5}, "max_share=5", "above 0, at most 1"),
    ({"delay": 1, "max_share": True}, "max_share=True", "above 0, at most 1"),
    ({"delay": 1, "max_share": "5%"}, "max_share='5%'", "above 0, at most 1"),
    ({"delay": 1, "max_share": None}, "max_share=None", "above 0, at most 1"),
    ({"delay": 1, "max_share": float("nan")}, "max_share=nan", "above 0, at most 1"),
    ({"delay": 1, "side_effects": 1}, "side_effects=1", "True or False"),
    ({"delay": 1, "side_effects": None}, "side_effects=None", "True or False"),
]


@pytest.mark.parametrize(
    ("given", "named", "allowed"), BAD_HEDGES, ids=[row[1].strip() for row in BAD_HEDGES]
)
def test_a_bad_hedge_is_told(given: dict[str, Any], named: str, allowed: str) -> None:
    with pytest.raises(ValueError) as caught:
        HedgePolicy(**given)
    text = str(caught.value)
    assert named.strip() in text
    assert allowed in text
    assert "switches it off" not in text, "a hedge's delay cannot be switched off"


@pytest.mark.parametrize(
    ("delay", "seconds", "percentile"),
    [
        (0.8, 0.8, None),
        (1, 1.0, None),
        ("800ms", 0.8, None),
        ("2m", 120.0, None),
        (timedelta(seconds=3), 3.0, None),
        ("p95", None, 95.0),
        ("p50", None, 50.0),
        ("p5", None, 5.0),
        ("p99.9", None, 99.9),
        (" p95 ", None, 95.0),
    ],
)
def test_a_good_delay_is_read(delay: Any, seconds: float | None, percentile: float | None) -> None:
    made = HedgePolicy(delay=delay)
    assert made.percentile == percentile
    assert seconds is None or made.delay == seconds
    assert (made.max_share, made.side_effects) == (0.05, False)


BAD_ROUTES: list[tuple[dict[str, Any], str]] = [
    ({"client": None}, "client=NoneType"),
    ({"client": openai.OpenAI}, "client=type"),
    ({"client": "https://example.invalid"}, "client=str"),
    ({"model": ""}, "model=''"),
    ({"model": 5}, "model=5"),
    ({"name": ""}, "name=''"),
    ({"name": 5}, "name=5"),
    ({"overrides": {"model": "m"}}, "overrides="),
    ({"overrides": None}, "overrides=None"),
    ({"overrides": 5}, "overrides=5"),
    ({"overrides": [("temperature", 1)]}, "overrides=["),
    ({"policy": {"idle": 3}}, "policy={'idle': 3}"),
    ({"policy": "strict"}, "policy='strict'"),
]


@pytest.mark.parametrize(("given", "named"), BAD_ROUTES, ids=[row[1] for row in BAD_ROUTES])
def test_a_bad_route_is_told(client: Any, given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError) as caught:
        Route(**{"client": client, **given})
    assert named in str(caught.value)
    assert "not allowed: " in str(caught.value)


Settings = Callable[[Any, Any], dict[str, Any]]

BAD_ROUTERS: list[tuple[str, Settings, str]] = [
    ("no routes", lambda _a, _b: {"routes": []}, "routes=[]"),
    ("None", lambda _a, _b: {"routes": None}, "routes=None"),
    ("a client for a route", lambda a, _: {"routes": [a]}, "routes="),
    ("a route for a list of them", lambda a, _: {"routes": Route(client=a)}, "routes="),
    ("an async client", lambda _, b: {"routes": [Route(client=b)]}, "client=AsyncOpenAI"),
    (
        "one async client of two",
        lambda a, b: {"routes": [Route(client=a), Route(client=b)]},
        "client=AsyncOpenAI",
    ),
    ("a negative delay for a hedge", lambda a, _: {"routes": [Route(client=a)], "hedge": -1}, "delay=-1"),
    (
        "a negative number of retries",
        lambda a, _: {"routes": [Route(client=a)], "retry": -1},
        "max_retries=-1",
    ),
    ("a policy for retries", lambda a, _: {"routes": [Route(client=a)], "retry": Policy()}, "retry=Policy"),
    (
        "no such reason",
        lambda a, _: {"routes": [Route(client=a)], "fall_back_on": ["qota"]},
        "fall_back_on='qota'",
    ),
    (
        "a text for a list",
        lambda a, _: {"routes": [Route(client=a)], "fall_back_on": "quota"},
        "fall_back_on='quota'",
    ),
    ("a status", lambda a, _: {"routes": [Route(client=a)], "fall_back_on": [400]}, "fall_back_on=400"),
    ("a number", lambda a, _: {"routes": [Route(client=a)], "fall_back_on": 400}, "fall_back_on=400"),
    ("nothing", lambda a, _: {"routes": [Route(client=a)], "fall_back_on": None}, "fall_back_on=None"),
]


@pytest.mark.parametrize(
    ("make", "named"), [row[1:] for row in BAD_ROUTERS], ids=[row[0] for row in BAD_ROUTERS]
)
def test_a_bad_router_is_told(client: Any, other: Any, make: Settings, named: str) -> None:
    given = make(client, other)
    with pytest.raises(ValueError) as caught:
        Router(given.pop("routes"), **given)
    assert named in str(caught.value)
    assert "not allowed" in str(caught.value)


def test_a_sync_client_in_an_async_router_is_told(client: Any) -> None:
    with pytest.raises(ValueError, match="client=OpenAI is not allowed here: give an AsyncOpenAI client"):
        AsyncRouter([Route(client=client)])


def test_a_router_that_is_refused_guards_nobody(other: Any) -> None:
    with openai.OpenAI(api_key="sk-test", base_url="http://127.0.0.1:9/v1") as fresh:
        with pytest.raises(ValueError):
            Router([Route(client=fresh)], fall_back_on=["qota"])
        assert not is_governed(fresh)
        with pytest.raises(ValueError):
            Router([Route(client=fresh), Route(client=other)])
        assert not is_governed(fresh)


@pytest.mark.parametrize("reason", ["quota", "auth", "content_filter", "client"])
def test_reasons_and_kinds_may_be_given_as_text_or_as_members(client: Any, reason: str) -> None:
    members = [
        kind(reason)
        for kind in (stallwatch.FailureKind, stallwatch.FailureReason)
        if reason in {each.value for each in kind}
    ]
    assert members
    for given in (reason, *members):
        Router([Route(client=client)], fall_back_on=[given])
        Router([Route(client=client)], fall_back_on={given})


# Any client will do


def _kind(stage: Stage) -> Any:
    return AsyncRouter if stage.is_async else Router


async def _text(stage: Stage, router: Any, **request: Any) -> str:
    stream = await stage.of(router.chat.completions.create(messages=[], stream=True, **request))
    return "".join(c.choices[0].delta.content or "" for c in await stage.all(stream) if c.choices)


def test_clients_that_are_guarded_keep_their_policy(scene: Scene, driver: Driver) -> None:
    scene.script(SILENT, GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            first = router.routes[0].client
            stallwatch.guard(first, policy=Policy.of(first_token=0.2))
            again = _kind(stage)(router.routes)
            assert await _text(stage, again) == "Hello"
            for route in router.routes:
                stallwatch.unguard(route.client)

    play(driver, story)
    assert scene.asked == (1, 1)


def test_one_client_for_two_routes_and_without_retries_of_its_own(scene: Scene, driver: Driver) -> None:
    scene.first.script("m1", "error-status:code=503")
    scene.first.script("m2", GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(scene.first.base_url, max_retries=0)) as client:
            router = _kind(stage)(
                [Route(client=client, model="m1"), Route(client=client, model="m2")],
                retry=RetryPolicy(max_retries=2),
            )
            assert await _text(stage, router) == "Hello"
            stallwatch.unguard(client)

    play(driver, story)
    assert scene.asked == (2, 0)


def test_azure_clients_are_asked_at_their_own_deployments(
    scene: Scene, driver: Driver, captured: Captured, attempts: Any
) -> None:
    scene.script("error-status:code=429", GOOD)

    async def story(stage: Stage) -> None:
        first, second = (stage.azure(gateway) for gateway in scene.gateways)
        async with stage.inside(first), stage.inside(second):
            router = _kind(stage)([Route(client=first, model="m1"), Route(client=second, model="m2")])
            assert await _text(stage, router) == "Hello"

    play(driver, story)
    assert "/deployments/m1/" in scene.first.ledger().requests[0].path
    assert "/deployments/m2/" in scene.second.ledger().requests[0].path
    assert [attempt["gen_ai.request.model"] for attempt in attempts(captured)] == ["m1", "m2"]


def test_a_route_without_a_model_keeps_the_calls_own(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.first.script("m", "error-status:code=503")
    scene.second.script("m", GOOD)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, route=[{"model": None}, {"model": None}]) as router:
            assert await _text(stage, router, model="m") == "Hello"

    play(driver, story)
    assert [gateway.ledger().requests[0].model for gateway in scene.gateways] == ["m", "m"]


def test_overrides_are_those_of_their_route_only(scene: Scene, driver: Driver, captured: Captured) -> None:
    scene.script("error-status:code=503", GOOD)
    route = [{"overrides": {"extra_headers": {"x-route": "one"}}}, {"overrides": {"temperature": 0.5}}]

    async def story(stage: Stage) -> None:
        async with scene.router(stage, route=route) as router:
            assert await _text(stage, router, temperature=0.1, extra_headers={"x-call": "yes"}) == "Hello"

    play(driver, story)
    first, second = scene.first.ledger().requests[0], scene.second.ledger().requests[0]
    assert first.headers.get("x-route") == "one"
    assert "x-route" not in second.headers
    assert second.headers.get("x-call") == "yes"
