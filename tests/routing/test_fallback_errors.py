"""Which failures another route is asked after, and what the caller gets when all have failed."""

from __future__ import annotations

import copy
import json
import pickle
import threading
import traceback
from typing import TYPE_CHECKING, Any

import openai
import pytest

import stallwatch
from stallwatch.testing import (
    CloseAbruptly,
    Comment,
    Done,
    Eof,
    ErrorFrame,
    Finish,
    Headers,
    RefuseHeaders,
    Reset,
    Role,
    Silence,
    Status,
    Token,
    refusing_address,
)
from support.connects import http
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import Captured

if TYPE_CHECKING:
    from routing.conftest import Scene

SILENT = [Headers(), Silence()]
GOOD = [Role(), Token("Hel"), Token("lo"), Finish(), Done()]
QUOTA = Status(
    429, body={"error": {"message": "no", "code": "insufficient_quota", "type": "insufficient_quota"}}
)
FILTERED = Status(
    400, body={"error": {"message": "no", "code": "content_filter", "type": "invalid_request_error"}}
)
TOO_LONG = Status(400, body={"error": {"message": "no", "code": "context_length_exceeded", "type": "x"}})

AsksNext = list[tuple[str, Any, tuple[str, ...], bool]]

ELIGIBLE: AsksNext = [
    ("silent", SILENT, (), True),
    ("no headers", [RefuseHeaders()], (), True),
    ("role only", [Role(), Silence()], (), True),
    ("refused", "refused", (), True),
    ("reset before the headers", [Reset()], (), True),
    ("reset after the headers", [Headers(), Reset()], (), True),
    ("reset after the role", [Role(), Reset()], (), True),
    ("cut before the headers", [CloseAbruptly()], (), True),
    ("cut after the role", [Role(), CloseAbruptly()], (), True),
    ("429", [Status(429)], (), True),
    ("429, not before an hour", [Status(429, retry_after="3600")], (), True),
    ("500", [Status(500)], (), True),
    ("502", [Status(502)], (), True),
    ("503", [Status(503)], (), True),
    ("529", [Status(529)], (), True),
    ("408", [Status(408)], (), True),
    ("error frame first", [ErrorFrame(code=502), Eof()], (), True),
    ("error frame after the role", [Role(), ErrorFrame(code=502), Eof()], (), True),
    ("error beside choices first", [ErrorFrame(code=502, style="choices"), Done()], (), True),
    ("400", [Status(400)], (), False),
    ("400, asked for by reason", [Status(400)], ("bad_request",), True),
    ("400, asked for by kind", [Status(400)], ("client",), True),
    ("401", [Status(401)], (), False),
    ("401, asked for", [Status(401)], ("auth",), True),
    ("401, another asked for", [Status(401)], ("quota", "content_filter"), False),
    ("403", [Status(403)], (), False),
    ("404", [Status(404)], (), False),
    ("quota", [QUOTA], (), False),
    ("quota, asked for", [QUOTA], ("quota",), True),
    ("content filter", [FILTERED], (), False),
    ("content filter, asked for", [FILTERED], ("content_filter",), True),
    ("context length", [TOO_LONG], (), False),
    ("context length, asked for", [TOO_LONG], ("context_length",), True),
]


@pytest.mark.parametrize(
    ("first", "also", "next_"), [row[1:] for row in ELIGIBLE], ids=[row[0] for row in ELIGIBLE]
)
def test_another_route_is_asked_after(
    scene: Scene, driver: Driver, captured: Captured, first: Any, also: tuple[str, ...], next_: bool
) -> None:
    scene.script("silent" if first == "refused" else first, GOOD)

    async def story(stage: Stage) -> Any:
        with refusing_address() as address:
            urls = [address.base_url, scene.second.base_url] if first == "refused" else None
            async with scene.router(stage, urls=urls, fall_back_on=also) as router:
                try:
                    chunks = await stage.all(await scene.ask(stage, router))
                except openai.APIError as error:
                    return error
                return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    result = play(driver, story)
    attributes = captured.attributes()
    if next_:
        assert result == "Hello"
        assert scene.asked[1] == 1
        assert attributes["stallwatch.outcome"] == "completed"
        (event,) = captured.events("fallback")
        assert event.attributes["stallwatch.retry.decision"] == "fallback"
    else:
        assert type(result) is _bare_error(scene, driver)
        assert scene.asked[1] == 0
        assert attributes["stallwatch.outcome"] == "failed"
        assert attributes["stallwatch.retry.decision"] == "fail_fast"


def _bare_error(scene: Scene, driver: Driver) -> type:
    return type(driver.tell(scene.first.base_url, "m1").error)


EMPTY: list[tuple[str, str, Any]] = [
    ("no event at all", "chat", [Headers(), Eof()]),
    ("only a comment", "chat", [Headers(), Comment(), Eof()]),
    ("only the end mark", "chat", [Headers(), Done()]),
    ("role, then a clean end", "chat", [Role(), Eof()]),
    ("a web page", "chat", "non-sse"),
    ("no event at all, Responses", "responses", [Headers(), Eof()]),
    ("response.failed first", "responses", [ErrorFrame(code="server_error", style="failed"), Done()]),
    (
        "response.failed after the preamble",
        "responses",
        [Role(), ErrorFrame(code="server_error", style="failed")],
    ),
]


@pytest.mark.parametrize(("api", "first"), [row[1:] for row in EMPTY], ids=[row[0] for row in EMPTY])
def test_another_route_is_asked_after_an_answer_that_is_none(
    scene: Scene, driver: Driver, captured: Captured, api: str, first: Any
) -> None:
    """The SDK raises nothing for these, but there was no output, and the verdict is known."""
    if first == "non-sse":
        scene.first.script("m1", "non-sse")
        scene.second.script("m2", GOOD)
    else:
        scene.script(first, GOOD)

    async def story(stage: Stage) -> int:
        async with scene.router(stage) as router:
            return len(await stage.all(await scene.ask(stage, router, api)))

    assert play(driver, story) >= 4
    assert scene.asked == (1, 1)
    assert captured.attributes()["stallwatch.outcome"] == "completed"


# What is raised when all have failed

PAIRS: list[tuple[str, Any, Any, type, str]] = [
    ("503, then 429", [Status(503)], [Status(429)], openai.RateLimitError, "rate_limit"),
    ("503, then 400", [Status(503)], [Status(400)], openai.BadRequestError, "client"),
    ("stall, then 400", SILENT, [Status(400)], openai.BadRequestError, "client"),
    ("stall, then 401", [RefuseHeaders()], [Status(401)], openai.AuthenticationError, "auth"),
    ("stall, then quota", SILENT, [QUOTA], openai.RateLimitError, "provider"),
    ("503, then stall", [Status(503)], SILENT, stallwatch.StreamInactivityTimeoutError, "transport"),
    ("503, then reset", [Status(503)], [Reset()], openai.APIConnectionError, "transport"),
    ("stall, then an error frame", SILENT, [ErrorFrame(code="content_filter")], openai.APIError, "provider"),
    ("503, then refused", [Status(503)], "refused", openai.APIConnectionError, "transport"),
]


@pytest.mark.parametrize(
    ("first", "second", "kind", "verdict"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS]
)
def test_the_last_routes_error_is_raised_with_the_earlier_ones_below(
    scene: Scene, driver: Driver, captured: Captured, first: Any, second: Any, kind: type, verdict: str
) -> None:
    error = _failing(scene, driver, first, second)
    assert type(error) is kind
    earlier = _below(error)
    assert earlier.route == "m1 at 127.0.0.1"
    cause = earlier.__cause__
    text = "".join(traceback.format_exception(error))
    if first == [Status(503)]:
        assert type(cause) is openai.InternalServerError
        assert "503" in text
    else:
        assert type(cause) is stallwatch.StreamInactivityTimeoutError
    assert "route m1 at 127.0.0.1 had failed before" in text
    assert type(cause).__name__ in text
    # An error frame is told by its code.
    name = "content_filter" if kind is openai.APIError else kind.__name__
    assert captured.attributes()["error.type"] == name


@pytest.mark.parametrize(
    ("first", "second", "kind", "verdict"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS]
)
def test_the_final_error_is_classified_as_the_last_routes(
    scene: Scene, driver: Driver, captured: Captured, first: Any, second: Any, kind: type, verdict: str
) -> None:
    """What an earlier route died of is no fact about the last one."""
    error = _failing(scene, driver, first, second)
    found = stallwatch.classify(error)
    attributes = captured.attributes()
    assert found.kind == verdict
    assert found.kind == attributes["stallwatch.retry.kind"]
    assert found.diagnosis == attributes["stallwatch.retry.diagnosis"]
    assert found.reason == attributes["stallwatch.retry.reason"]


def _failing(scene: Scene, driver: Driver, first: Any, second: Any) -> BaseException:
    scene.script(first, "silent" if second == "refused" else second)

    async def story(stage: Stage) -> BaseException:
        with refusing_address() as address:
            urls = [scene.first.base_url, address.base_url] if second == "refused" else None
            async with scene.router(stage, urls=urls) as router:
                with pytest.raises(openai.OpenAIError) as caught:
                    await stage.all(await scene.ask(stage, router))
                return caught.value

    return play(driver, story)


def _below(error: BaseException) -> stallwatch.EarlierRouteError:
    """The first mark of an earlier route in the chain of causes."""
    level: BaseException | None = error
    for _ in range(20):
        level = None if level is None else level.__cause__
        if isinstance(level, stallwatch.EarlierRouteError):
            return level
    raise AssertionError(f"no earlier route below {error!r}")


def test_three_failures_are_chained_newest_first(scene: Scene, driver: Driver, captured: Captured) -> None:
    scene.first.script("m1", [Status(503)])
    scene.first.script("m2", [Status(502)])
    scene.first.script("m3", [Status(429)])

    async def story(stage: Stage) -> BaseException:
        urls = [scene.first.base_url] * 3
        route: list[dict[str, Any]] = [{"name": "one"}, {"name": "two"}, {"name": "three"}]
        async with scene.router(stage, urls=urls, routes=3, route=route) as router:
            with pytest.raises(openai.RateLimitError) as caught:
                await scene.ask(stage, router)
            return caught.value

    error = play(driver, story)
    second = _below(error)
    assert second.route == "two"
    assert isinstance(second.__cause__, openai.InternalServerError)
    first = _below(second)
    assert first.route == "one"
    assert second.__cause__.status_code == 502
    assert captured.attributes()["stallwatch.attempts"] == 3


@pytest.mark.parametrize("second", [[Status(400)], SILENT], ids=["the SDK's", "ours"])
def test_the_error_survives_copy_and_pickle_where_the_bare_one_does(
    scene: Scene, driver: Driver, captured: Captured, second: Any
) -> None:
    error = _failing(scene, driver, [Status(503)], second)
    bare = driver.tell(scene.second.base_url, "m2").error
    for again in (copy.copy, lambda each: pickle.loads(pickle.dumps(each))):
        try:
            expected: type | None = type(again(bare))
        except Exception:
            expected = None
        if expected is not None:
            assert type(again(error)) is expected
            assert str(again(error)) == str(error)
    earlier = _below(error)
    for again in (copy.copy(earlier), pickle.loads(pickle.dumps(earlier))):
        assert (str(again), again.route, again.what) == (str(earlier), earlier.route, earlier.what)


def test_what_an_earlier_route_said_is_not_quoted(scene: Scene, driver: Driver, captured: Captured) -> None:
    """A careless provider puts the key into its message: the mark of ours in the chain must not repeat it."""
    error = _failing(scene, driver, [Status(503, echo="key")], [Status(400)])
    assert "sk-test" not in str(_below(error))
    assert not [event for event in captured.events() if "sk-test" in json.dumps(dict(event.attributes))]


# A transport that raises one and the same object each time, as mocks do


class _Broken:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def sync(self, _: Any) -> Any:
        raise self.error

    async def asynchronous(self, _: Any) -> Any:
        raise self.error


def _mock_client(stage: Stage, error: Exception) -> Any:
    broken = _Broken(error)
    handler = broken.asynchronous if stage.is_async else broken.sync
    kind = http.AsyncClient if stage.is_async else http.Client
    return stage.client("http://127.0.0.1:9/v1", http_client=kind(transport=http.MockTransport(handler)))


@pytest.mark.timeout(8)
@pytest.mark.parametrize("routes", [2, 3])
def test_one_error_object_for_all_routes_is_no_trap(driver: Driver, captured: Captured, routes: int) -> None:
    """The chain must not be closed to a ring, in which the next look for its end would go round for ever."""
    error = http.ConnectError("down")

    async def story(stage: Stage) -> None:
        client = _mock_client(stage, error)
        kind = stallwatch.AsyncRouter if stage.is_async else stallwatch.Router
        router = kind([stallwatch.Route(client=client, model=f"m{number}") for number in range(routes)])
        for _ in range(3):
            with pytest.raises(openai.APIConnectionError) as caught:
                await stage.of(router.chat.completions.create(messages=[], stream=True))
            seen: list[int] = []
            level: BaseException | None = caught.value
            while level is not None:
                assert id(level) not in seen, "the chain is a ring"
                seen.append(id(level))
                level = level.__cause__
        await stage.close(client)

    play(driver, story)


# Arguments that can be read once only


@pytest.mark.parametrize("hedged", [False, True], ids=["fallback", "hedge"])
def test_every_route_is_sent_the_whole_request(
    scene: Scene, driver: Driver, captured: Captured, hedged: bool
) -> None:
    """The SDK takes any iterable of messages, a generator too; what the first route used up the second must get."""
    scene.script(SILENT if hedged else [Status(503)], GOOD)
    settings: dict[str, Any] = {"hedge": stallwatch.HedgePolicy(delay=0.05, max_share=1.0)} if hedged else {}

    async def story(stage: Stage) -> None:
        async with scene.router(stage, **settings) as router:
            messages = ({"role": "user", "content": word} for word in ("one", "two"))
            await stage.all(await scene.ask(stage, router, messages=messages))

    play(driver, story)
    first, second = scene.first.ledger().requests[0], scene.second.ledger().requests[0]
    assert first.body_bytes == second.body_bytes


# Errors that no route is to blame for


@pytest.mark.parametrize("kind", [ValueError, LookupError])
def test_an_error_of_the_callers_own_hook_passes_and_asks_nobody_else(
    scene: Scene, driver: Driver, captured: Captured, kind: type[Exception]
) -> None:
    """Nobody knows that it would not be the same on another route."""
    scene.script(GOOD, GOOD)
    own = kind("own")

    def hook(_: Any) -> None:
        raise own

    async def async_hook(_: Any) -> None:
        raise own

    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            client = router.routes[0].client
            client._client.event_hooks = {"response": [async_hook if stage.is_async else hook]}
            with pytest.raises((kind, openai.APIConnectionError)) as bare:
                await stage.chat(client, "m1")
            if bare.value is not own:
                pytest.skip("this release of the SDK takes it for a failed connection")
            with pytest.raises(kind) as caught:
                await scene.ask(stage, router)
            assert caught.value is own

    play(driver, story)
    assert scene.asked == (2, 0)
    assert {span.attributes["error.type"] for span in captured.spans} == {kind.__name__}


def test_a_wrong_argument_is_the_sdks_type_error(scene: Scene, driver: Driver, captured: Captured) -> None:
    async def story(stage: Stage) -> None:
        async with scene.router(stage) as router:
            with pytest.raises(TypeError):
                await scene.ask(stage, router, no_such_argument=1)
            with pytest.raises(TypeError):
                await stage.of(router.chat.completions.create(model="m"))

    before = threading.active_count()
    play(driver, story)
    assert threading.active_count() <= before + 1
    assert captured.spans == []
    assert scene.asked == (0, 0)
