"""What leaves traces on the server is not asked for twice, unless the user says that it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

from stallwatch import HedgePolicy
from stallwatch.routing.side_effects import leaves_traces
from stallwatch.testing import Done, Finish, Role, Token, Wait
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import Captured

if TYPE_CHECKING:
    from routing.conftest import Scene

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {}}}
FLAT_FUNCTION = {"type": "function", "name": "f", "parameters": {}}
CUSTOM = {"type": "custom", "name": "f"}
SEARCH = {"type": "web_search"}
MCP = {"type": "mcp", "server_label": "x", "server_url": "https://example.invalid"}
NOT_GIVEN = openai.NOT_GIVEN

REQUESTS: list[tuple[str, str, dict[str, Any], bool]] = [
    ("a plain chat", "chat", {}, False),
    ("a chat that is stored", "chat", {"store": True}, True),
    ("a chat that is not", "chat", {"store": False}, False),
    ("a chat that says nothing of it", "chat", {"store": NOT_GIVEN}, False),
    ("a chat with null", "chat", {"store": None}, False),
    ("a chat that searches", "chat", {"web_search_options": {}}, True),
    ("a chat that searches near somewhere", "chat", {"web_search_options": {"user_location": None}}, True),
    ("a chat with a function", "chat", {"tools": [FUNCTION]}, False),
    ("a chat with a custom tool", "chat", {"tools": [CUSTOM]}, False),
    ("a chat with no tools", "chat", {"tools": []}, False),
    ("a chat with tools not given", "chat", {"tools": NOT_GIVEN}, False),
    ("a chat stored by extra body", "chat", {"extra_body": {"store": True}}, True),
    ("a chat with an extra body", "chat", {"extra_body": {"top_k": 1}}, False),
    ("a chat with a server tool by extra body", "chat", {"extra_body": {"tools": [SEARCH]}}, True),
    ("extra body overrides", "chat", {"store": True, "extra_body": {"store": False}}, False),
    ("a plain response is stored", "responses", {}, True),
    ("a response with null is stored", "responses", {"store": None}, True),
    ("a response not given is stored", "responses", {"store": NOT_GIVEN}, True),
    ("a response that is stored", "responses", {"store": True}, True),
    ("a response that is not", "responses", {"store": False}, False),
    ("a response not stored by extra body", "responses", {"extra_body": {"store": False}}, False),
    ("a background run", "responses", {"store": False, "background": True}, True),
    ("no background run", "responses", {"store": False, "background": False}, False),
    ("a conversation", "responses", {"store": False, "conversation": "conv_1"}, True),
    ("a conversation object", "responses", {"store": False, "conversation": {"id": "conv_1"}}, True),
    ("a function", "responses", {"store": False, "tools": [FLAT_FUNCTION]}, False),
    ("a tuple of functions", "responses", {"store": False, "tools": (FLAT_FUNCTION, CUSTOM)}, False),
    ("a search", "responses", {"store": False, "tools": [FLAT_FUNCTION, SEARCH]}, True),
    ("a tool server", "responses", {"store": False, "tools": [MCP]}, True),
    ("a search in a tuple", "responses", {"store": False, "tools": (SEARCH,)}, True),
    ("a tool that is no mapping", "responses", {"store": False, "tools": [object()]}, True),
    ("a tool of a type to come", "responses", {"store": False, "tools": [{"type": "teleport"}]}, True),
    (
        "a search in another kind of iterable",
        "responses",
        {"store": False, "tools": {"a": SEARCH}.values()},
        True,
    ),
    (
        "functions in another kind of iterable",
        "responses",
        {"store": False, "tools": {"a": CUSTOM}.values()},
        False,
    ),
]


@pytest.mark.parametrize(
    ("api", "arguments", "traces"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS]
)
def test_a_request_leaves_traces(api: str, arguments: dict[str, Any], traces: bool) -> None:
    assert leaves_traces(api, arguments) is traces


SLOW = [Wait(0.15), Role(), Token("a"), Finish(), Done()]
QUICK = [Role(), Token("b"), Finish(), Done()]

HEDGED: list[tuple[str, str, dict[str, Any], dict[str, Any], bool, bool]] = [
    ("plain chat", "chat", {}, {}, False, True),
    ("stored chat", "chat", {"store": True}, {}, False, False),
    ("stored chat, allowed", "chat", {"store": True}, {}, True, True),
    ("response by default", "responses", {"store": NOT_GIVEN}, {}, False, False),
    ("response by default, allowed", "responses", {"store": NOT_GIVEN}, {}, True, True),
    ("response not stored", "responses", {"store": False}, {}, False, True),
    ("response with a search", "responses", {"store": False, "tools": [SEARCH]}, {}, False, False),
    ("background by extra body", "responses", {"extra_body": {"background": True}}, {}, False, False),
    ("stored by the routes' overrides", "chat", {}, {"store": True}, False, False),
    ("searching by the routes' overrides", "chat", {}, {"web_search_options": {}}, False, False),
    ("stored by the routes' extra body", "chat", {}, {"extra_body": {"store": True}}, False, False),
    ("not stored by the routes' overrides", "responses", {"store": NOT_GIVEN}, {"store": False}, False, True),
]


@pytest.mark.parametrize(
    ("api", "request_", "overrides", "allowed", "hedged"),
    [row[1:] for row in HEDGED],
    ids=[row[0] for row in HEDGED],
)
def test_what_leaves_traces_is_hedged_only_when_that_is_allowed(
    scene: Scene,
    driver: Driver,
    captured: Captured,
    api: str,
    request_: dict[str, Any],
    overrides: dict[str, Any],
    allowed: bool,
    hedged: bool,
) -> None:
    """What a route sets counts like what the call sets: it is what is sent."""
    scene.script(SLOW, QUICK)
    hedge = HedgePolicy(delay=0.03, max_share=1.0, side_effects=allowed)
    route = [{"overrides": overrides}, {"overrides": overrides}]

    async def story(stage: Stage) -> None:
        async with scene.router(stage, route=route, hedge=hedge) as router:
            await stage.all(await scene.ask(stage, router, api, **request_))

    play(driver, story)
    assert scene.asked == (1, 1 if hedged else 0)


@pytest.mark.parametrize("request_", [{"store": True}, {"web_search_options": {}}], ids=["stored", "search"])
def test_a_fallback_follows_all_the_same(
    scene: Scene, driver: Driver, captured: Captured, request_: dict[str, Any]
) -> None:
    """The first route has failed, so nothing is asked for twice at the same time."""
    scene.first.script("m1", "error-status:code=503")
    scene.second.script("m2", QUICK)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay=0.5, max_share=1.0)) as router:
            await stage.all(await scene.ask(stage, router, **request_))

    play(driver, story)
    assert scene.asked == (1, 1)


def test_what_is_not_hedged_earns_and_spends_no_share(
    scene: Scene, driver: Driver, captured: Captured
) -> None:
    scene.script(SLOW, QUICK)

    async def story(stage: Stage) -> None:
        async with scene.router(stage, hedge=HedgePolicy(delay=0.03, max_share=0.5)) as router:
            for _ in range(3):
                await stage.all(await scene.ask(stage, router, store=True))
            await stage.all(await scene.ask(stage, router))

    play(driver, story)
    assert scene.asked == (4, 0)
    assert captured.total("stallwatch.hedges", stallwatch__hedge__result="refused") == 1
    assert captured.total("stallwatch.hedges") == 1
