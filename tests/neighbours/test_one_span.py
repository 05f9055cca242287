"""Beside another tool there is one span per call, which is the tool's, and the tool says what it says without us."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from neighbours.stories import APIS, OURS, STORIES, Account, Story, tell
from neighbours.tools import EACH, Tool
from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, Driver

_alone: dict[tuple[Any, ...], Account] = {}


def alone(gateway: FaultGateway, driver: Driver, api: str, story: Story, tool: Tool, caplog: Any) -> Account:
    """What the tool says without us, told once."""
    key = (driver.kind, api, story.name, tool.name)
    if key not in _alone:
        _alone[key] = tell(gateway, driver, api, story, tool, order="alone", caplog=caplog)
    return _alone[key]


def _renamed(said: Any) -> Any:
    """A stall has a name of its own, and without us the SDK's read timeout stands in for it."""
    if isinstance(said, str):
        for name in (
            "stallwatch.errors.StreamInactivityTimeoutError",
            "stallwatch.StreamInactivityTimeoutError",
        ):
            said = said.replace(name, "openai.APITimeoutError")
        for name in (
            "StreamInactivityTimeoutError",
            "openai.APITimeoutError",
            "httpx.ReadTimeout",
            "ReadTimeout",
        ):
            said = said.replace(name, "APITimeoutError")
        return said
    return type(said)(_renamed(each) for each in said) if isinstance(said, (list, tuple)) else said


@cache
def _cases() -> list[Any]:
    return [
        pytest.param(driver, story, id=f"{driver.kind}-{story.name}")
        for driver in DRIVERS
        for story in STORIES
        if driver.is_async or not story.only_async
    ]


@pytest.mark.parametrize("tool", EACH)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("driver", "story"), _cases())
def test_one_span_and_it_says_what_it_says_without_us(
    gateway: FaultGateway,
    driver: Driver,
    story: Story,
    api: str,
    tool: Tool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if wrong := tool.broken(story.name, api, driver.is_async):
        pytest.skip(f"{tool.name}: {wrong}")
    bare = alone(gateway, driver, api, story, tool, caplog)
    for order in ("ours", "theirs"):
        both = tell(gateway, driver, api, story, tool, order=order, caplog=caplog)
        assert both.chunks == bare.chunks
        assert both.error == bare.error if not story.stalls else _renamed(both.error) == _renamed(bare.error)
        assert both.spans == bare.spans if not story.stalls else _renamed(both.spans) == _renamed(bare.spans)
        assert _renamed(both.logged) == _renamed(bare.logged) or story.stalls
        assert both.own_spans == (0 if tool.covers(api) else 1)
        _assert_metrics(both, bare, story, covered=tool.covers(api))
        _assert_data(both, story, tool, api, is_async=driver.is_async)


def _assert_metrics(both: Account, bare: Account, story: Story, *, covered: bool) -> None:
    theirs = {key: count for key, count in both.metrics.items() if key[0] != OURS}
    assert theirs == bare.metrics
    names = {name for scope, name in both.metrics if scope == OURS}
    assert "stallwatch.attempt.duration" in names
    assert ("stallwatch.stalls" in names) is story.stalls
    if covered:
        assert all(name.startswith("stallwatch.") for name in names)
    else:
        assert "gen_ai.client.operation.duration" in names


def _assert_data(both: Account, story: Story, tool: Tool, api: str, *, is_async: bool) -> None:
    if not tool.covers(api) or tool.early(story.name, api, is_async):
        assert "stallwatch.outcome" not in both.data
        return
    assert both.data["stallwatch.outcome"] == story.outcome
    assert both.data["stallwatch.stalled"] is story.stalls
    assert both.data["stallwatch.attempts"] == 1 + story.retries
