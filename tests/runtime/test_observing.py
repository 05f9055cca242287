"""Observing changes nothing: the backstop ends only spans, observe mode only reports, off leaves requests alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import stallwatch
from stallwatch import resolution
from support.drivers import DRIVERS, Driver
from support.places import MESSAGES, Place, eventually, eventually_async, run_on
from support.telemetry import Captured, instrumented

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _events(captured: Captured) -> list[Any]:
    return [(event.name, dict(event.attributes or {})) for event in captured.events()]


@pytest.fixture
def short_backstop(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting goes this low, because the backstop must never end the span of a wait that is still allowed."""
    resolve = resolution.resolve
    monkeypatch.setattr(
        resolution, "resolve", lambda *args, **more: replace(resolve(*args, **more), backstop=0.2)
    )


@pytest.mark.usefixtures("short_backstop")
def test_the_backstop_ends_the_span_of_a_paused_reader_and_aborts_nothing(place: Place) -> None:
    with instrumented() as captured, place.client() as client:
        stream = _create(client, "slow:tokens=3,gap=0.01")
        chunks = [next(stream), next(stream)]
        eventually(lambda: captured.spans)
        _assert_ended_by_the_backstop(captured)
        chunks += list(stream)
        assert len(chunks) == 5
        _assert_counted_as_completed(captured)


@pytest.mark.usefixtures("short_backstop")
def test_it_is_so_with_a_paused_task(place: Place, loop: str) -> None:
    async def story() -> None:
        async with place.async_client() as client:
            stream = await _create(client, "slow:tokens=3,gap=0.01")
            chunks = [await anext(stream), await anext(stream)]
            await eventually_async(lambda: captured.spans)
            _assert_ended_by_the_backstop(captured)
            chunks += [chunk async for chunk in stream]
            assert len(chunks) == 5

    with instrumented() as captured:
        run_on(loop, story())
        _assert_counted_as_completed(captured)


def _assert_ended_by_the_backstop(captured: Captured) -> None:
    attributes = captured.attributes()
    assert attributes["stallwatch.backstop"] is True
    assert attributes["stallwatch.outcome"] == "abandoned"
    assert attributes["stallwatch.chunks"] == 2
    assert captured.total("stallwatch.streams", stallwatch__outcome="abandoned") == 0


def _assert_counted_as_completed(captured: Captured) -> None:
    assert len(captured.spans) == 1
    assert captured.total("stallwatch.streams", stallwatch__outcome="completed") == 1
    assert captured.total("stallwatch.streams", stallwatch__outcome="abandoned") == 0
    assert captured.total("gen_ai.client.operation.duration") == 1


@drivers
@pytest.mark.parametrize("model", ["slow:tokens=4,gap=0.3", "late-headers:seconds=0.4,tokens=4,gap=0"])
def test_observe_mode_reports_what_it_would_have_aborted(plain: Place, driver: Driver, model: str) -> None:
    with instrumented(idle=0.15, first_token=0.2, thinking=0.2, mode="observe") as captured:
        told = driver.tell(plain.base_url, model)
        assert (told.error, told.text) == (None, "t0 t1 t2 t3 ")
        assert captured.attributes()["stallwatch.outcome"] == "completed"
        assert captured.attributes()["stallwatch.stalled"] is False
        events = _events(captured)
        assert events
        assert {name for name, _ in events} == {"stallwatch.stall"}
        assert {attributes["stallwatch.stall.action"] for _, attributes in events} == {"observe"}
        assert captured.total("stallwatch.stalls", stallwatch__stall__action="observe") == len(events)
        assert captured.total("stallwatch.stalls", stallwatch__stall__action="abort") == 0


def _timeout_of(driver: Driver, plain: Place, **settings: Any) -> tuple[Any, Any]:
    """Return the timeouts and the extensions of the request as sent."""
    kept: list[Any] = []

    def client(base_url: str, **options: Any) -> Any:
        made = driver.client(base_url, **options)
        build = made._build_request

        def building(*args: Any, **more: Any) -> Any:
            request = build(*args, **more)
            kept.append(request)
            return request

        made._build_request = building
        return made

    with instrumented(**settings):
        assert driver.tell(plain.base_url, "healthy:tokens=1,gap=0", client=client).error is None
    (request,) = kept
    return dict(request.extensions["timeout"]), set(request.extensions)


@drivers
def test_observe_mode_leaves_the_users_timeouts_alone(plain: Place, driver: Driver) -> None:
    timeouts, _ = _timeout_of(driver, plain, mode="observe", idle=0.2, first_token=0.2, connect=0.2)
    assert timeouts == dict.fromkeys(("connect", "read", "write", "pool"), 60.0)


@drivers
def test_off_leaves_the_request_alone(plain: Place, driver: Driver) -> None:
    timeouts, extensions = _timeout_of(driver, plain, mode="off", idle=0.2, first_token=0.2, connect=0.2)
    assert timeouts == dict.fromkeys(("connect", "read", "write", "pool"), 60.0)
    assert extensions == {"timeout"}


def test_off_for_one_call_leaves_its_stream_alone(plain: Place) -> None:
    with instrumented(idle=0.1) as captured, plain.client() as client, stallwatch.policy(mode="off"):
        stream = _create(client, "slow:tokens=2,gap=0.2")
        assert type(stream._iterator).__name__ == "generator"
        assert len(list(stream)) == 4
        assert captured.spans == []


def test_the_limits_of_the_headers_do_not_bound_the_body(plain: Place) -> None:
    for driver in DRIVERS:
        with instrumented(first_token=0.2, thinking=2, idle=2) as captured:
            told = driver.tell(plain.base_url, "slow:tokens=2,gap=0.4,first=0")
            assert (told.error, told.text) == (None, "t0 t1 ")
            assert captured.attributes()["stallwatch.outcome"] == "completed"
