"""trio, on its own and through anyio: deadlines, cancels and what is left over are as on asyncio.

The bare SDK is loud about every asynchronous generator that is left to the collection under trio, healthy streams
included; so such warnings are no errors here.
"""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import stallwatch
from stallwatch.runtime.inflight import InFlight
from support.bounds import LATE
from support.drivers import ASYNC
from support.expect import in_time
from support.leaks import leaves_nothing
from support.places import MESSAGES, Place, pool_of
from support.stage import Stage
from support.telemetry import Captured, instrumented
from support.traffic import CANCEL_AFTER, LIMITS, STORIES, Said, check, left, played, tell

trio = pytest.importorskip("trio")

pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

STAGE = Stage(ASYNC)
STALLS = "stall-after:tokens=2,gap=0"
SILENCE = stallwatch.StreamInactivityTimeoutError


def _create(client: Any, model: str, **request: Any) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **request)


def _outcomes(captured: Captured) -> list[Any]:
    return [span.attributes["stallwatch.outcome"] for span in captured.spans]


async def _leave(client: Any, name: str) -> Said:
    began = time.monotonic()
    with anyio.move_on_after(CANCEL_AFTER) as scope:
        await tell(STAGE, client, name)
    return left(began, cancelled=scope.cancelled_caught)


async def _all_traffic(place: Place, captured: Captured) -> dict[str, Said]:
    said: dict[str, Said] = {}

    async def play(client: Any, name: str) -> None:
        said[name] = await (
            _leave(client, name) if STORIES[name].ends == "own" else tell(STAGE, client, name)
        )

    async with place.async_client() as client:
        async with anyio.create_task_group() as group:
            for name in STORIES:
                group.start_soon(play, client, name)
        with anyio.move_on_after(5):
            while len(captured.spans) < len(STORIES) or pool_of(client)[0]:
                gc.collect()
                await anyio.sleep(0.1)
        assert pool_of(client)[0] == 0
    return said


@pytest.mark.parametrize("through", ["trio", "anyio"])
def test_all_traffic(place: Place, through: str) -> None:
    with instrumented(**LIMITS) as captured:
        if through == "trio":
            said = trio.run(_all_traffic, place, captured)
        else:
            said = anyio.run(_all_traffic, place, captured, backend="trio")
        told = played(said, captured)
    check(told, place.gateway.ledger())


def _play(story: Callable[[Captured, Any], Awaitable[object]], place: Place, **settings: Any) -> Captured:
    """Play a story with a client on trio; nothing is left over, in the pool either."""

    async def main() -> None:
        async with place.async_client() as client:
            await story(captured, client)
            with trio.move_on_after(2):
                while pool_of(client)[0]:
                    await trio.sleep(0.01)
            assert pool_of(client)[0] == 0

    with instrumented(**{"first_token": 5.0, "idle": 0.4, **settings}) as captured, leaves_nothing():
        trio.run(main)
    return captured


def test_a_total_ends_a_stream_that_goes_on(plain: Place) -> None:
    async def story(captured: Captured, client: Any) -> None:
        began = time.monotonic()
        with pytest.raises(stallwatch.TotalTimeoutError):
            async for _ in await _create(client, "endless:gap=0.05"):
                pass
        in_time(time.monotonic() - began, 0.6)

    assert _outcomes(_play(story, plain, total=0.6)) == ["stalled"]


@pytest.mark.parametrize("reader", ["lines", "bytes", "helper", "raw"])
def test_every_way_to_read_is_bounded(plain: Place, reader: str) -> None:
    async def read(client: Any) -> None:
        chat, request = client.chat.completions, {"model": STALLS, "messages": MESSAGES}
        if reader == "helper":
            # The oldest SDK has it elsewhere.
            stream = getattr(chat, "stream", None) or client.beta.chat.completions.stream
            async with stream(**request) as events:
                async for _ in events:
                    pass
        elif reader == "raw":
            async for _ in (await chat.with_raw_response.create(stream=True, **request)).parse():
                pass
        else:
            async with chat.with_streaming_response.create(stream=True, **request) as response:
                async for _ in response.iter_lines() if reader == "lines" else response.iter_bytes():
                    pass

    async def story(captured: Captured, client: Any) -> None:
        began = time.monotonic()
        with pytest.raises(SILENCE):
            await read(client)
        in_time(time.monotonic() - began, 0.4)

    assert _outcomes(_play(story, plain)) == ["stalled"]


def test_the_stall_is_raised_again_on_every_further_step(plain: Place) -> None:
    async def story(captured: Captured, client: Any) -> None:
        stream = await _create(client, STALLS)
        with pytest.raises(SILENCE):
            async for _ in stream:
                pass
        for _ in range(2):
            with pytest.raises(SILENCE):
                await anext(stream)

    _play(story, plain)


@pytest.mark.parametrize("how", ["blocked", "busy", "blocked just before the deadline"])
def test_a_blocked_loop_is_no_stall(place: Place, how: str) -> None:
    async def block() -> None:
        if how == "busy":
            for _ in range(12):
                time.sleep(0.15)
                await trio.lowlevel.checkpoint()
            return
        await trio.sleep(0.35 if how.endswith("deadline") else 0.1)
        time.sleep(0.7)

    async def story(captured: Captured, client: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(block)
            chunks = [chunk async for chunk in await _create(client, "slow:tokens=30,gap=0.05")]
        assert len(chunks) == 32

    assert _outcomes(_play(story, place)) == ["completed"]


def test_a_reader_that_pauses_and_changes_its_task_is_not_cut(plain: Place) -> None:
    async def story(captured: Captured, client: Any) -> None:
        stream = await _create(client, "burst:tokens=4")
        chunks: list[Any] = []

        async def step() -> None:
            chunks.append(await anext(stream))

        for _ in range(6):
            await trio.sleep(0.15)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(step)
        assert len(chunks) == 6
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    assert _outcomes(_play(story, plain, idle=0.1)) == ["completed"]


def _shots(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None], after: Callable[[], None]) -> None:
    from stallwatch.runtime.trio_waiter import TrioWaiter

    fire = TrioWaiter._fire

    def firing(waiter: Any, task: Any, now: float) -> Any:
        before()
        told = fire(waiter, task, now)
        after()
        return told

    monkeypatch.setattr(TrioWaiter, "_fire", firing)


@pytest.mark.parametrize("when", ["before", "after", "a turn later", "around"])
@pytest.mark.parametrize("model", [STALLS, "silent", "silent:id={0}>healthy"])
def test_the_users_cancel_at_the_deadline_wins(
    plain: Place, monkeypatch: pytest.MonkeyPatch, when: str, model: str
) -> None:
    scopes: list[Any] = []

    def cancel() -> None:
        scopes[-1].cancel()

    def a_turn_later() -> None:
        trio.lowlevel.spawn_system_task(_turn, cancel)

    async def _turn(call: Callable[[], None]) -> None:
        await trio.lowlevel.checkpoint()
        call()

    nothing, times = bool, 20 if when == "around" else 10
    if when != "around":
        shots = {
            "before": (cancel, nothing),
            "after": (nothing, cancel),
            "a turn later": (nothing, a_turn_later),
        }
        _shots(monkeypatch, *shots[when])

    async def one(client: Any, number: int) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            if when == "around":
                scope.deadline = trio.current_time() + 0.05 + random.uniform(-0.003, 0.003)
            try:
                async for _ in await _create(client.with_options(max_retries=1), model.format(number)):
                    pass
            except SILENCE:
                # Ours came out whole before the user's cancel was there; and nothing has swallowed his.
                assert when == "around"
            await trio.sleep(0.1)
        assert scope.cancelled_caught

    async def story(captured: Captured, client: Any) -> None:
        for number in range(times):
            await one(client, number)

    captured = _play(story, plain, idle=0.05, first_token=0.05)
    outcomes = _outcomes(captured)
    assert len(outcomes) == times
    if when != "around":
        assert set(outcomes) == {"cancelled"}


def test_a_cancel_during_a_back_off_wins(plain: Place) -> None:
    async def story(captured: Captured, client: Any) -> None:
        with trio.move_on_after(0.3) as scope:
            await _create(client.with_options(max_retries=2), "flaky:times=2,retry_after=5")
        assert scope.cancelled_caught
        with trio.move_on_after(0.3) as scope:
            async for _ in await _create(client.with_options(max_retries=2), "silent:after=0"):
                pass
        assert scope.cancelled_caught

    assert _outcomes(_play(story, plain, first_token=0.1)) == ["cancelled", "cancelled"]


def test_a_stall_in_a_clean_up_after_the_users_cancel_is_not_told_of(plain: Place) -> None:
    async def story(captured: Captured, client: Any) -> None:
        with trio.move_on_after(0.1) as scope:
            response = _create(client, STALLS)
            stream = await response
            inner = stream.response.stream._body.inner

            class _SlowToLeave:
                async def __aiter__(self) -> Any:
                    try:
                        async for piece in inner:
                            yield piece
                    finally:
                        with trio.CancelScope(shield=True):
                            await trio.sleep(0.5)

                async def aclose(self) -> None:
                    await inner.aclose()

            stream.response.stream._body.inner = _SlowToLeave()
            async for _ in stream:
                pass
        assert scope.cancelled_caught
        assert not captured.events()

    assert _outcomes(_play(story, plain, idle=0.3)) == ["cancelled"]


@pytest.mark.parametrize("where", ["in the body", "before headers", "in a back-off"])
def test_a_runs_cancel_from_another_thread_wakes(plain: Place, where: str) -> None:
    model = {"before headers": "never-responds", "in a back-off": "flaky:times=2,retry_after=5"}.get(
        where, STALLS
    )

    async def story(captured: Captured, client: Any) -> None:
        with stallwatch.Run() as run:
            threading.Timer(0.2, run.cancel).start()
            began = time.monotonic()
            with pytest.raises(stallwatch.RunCancelledError):
                stream = await _create(client.with_options(max_retries=2), model)
                async for _ in stream:
                    pass
            assert time.monotonic() - began < 0.2 + LATE

    assert _outcomes(_play(story, plain, idle=30)) == ["cancelled"]


def test_a_runs_cancel_gives_the_connection_up_although_nobody_reads(plain: Place) -> None:
    async def story(captured: Captured, client: Any) -> None:
        with stallwatch.Run() as run:
            stream = await _create(client, STALLS)
            await anext(stream)
            run.cancel()
            await trio.to_thread.run_sync(
                lambda: plain.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how)
            )
            with pytest.raises(stallwatch.RunCancelledError):
                await anext(stream)

    assert _outcomes(_play(story, plain, idle=30)) == ["cancelled"]


def test_a_transport_without_a_socket_is_bounded_too(plain: Place) -> None:
    async def story(captured: Captured, client: Any) -> None:
        class _Hangs(type(client._client._transport)):  # type: ignore[misc]
            async def handle_async_request(self, request: Any) -> Any:
                await trio.sleep_forever()

        client._client._transport = _Hangs()
        client._client._mounts.clear()
        began = time.monotonic()
        with pytest.raises(SILENCE):
            await _create(client, "healthy")
        in_time(time.monotonic() - began, 0.3)

    assert _outcomes(_play(story, plain, first_token=0.3)) == ["stalled"]


def test_what_outlives_its_run_is_ended_when_it_is_dropped(plain: Place) -> None:
    kept: list[Any] = []

    async def main() -> None:
        client = plain.async_client()
        stream = await _create(client, STALLS)
        await anext(stream)
        kept.extend((client, stream))

    with instrumented(idle=0.3) as captured:
        trio.run(main)
        kept.clear()
        gc.collect()
        until = time.monotonic() + 3
        while not captured.spans and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        # trio closes half-read generators when its run ends.
        assert len(captured.spans) == 1
        assert _outcomes(captured)[0] in ("abandoned", "closed_early")


def test_two_runs_one_after_the_other_and_three_at_the_same_time(plain: Place) -> None:
    async def one() -> None:
        async with plain.async_client() as client:
            with pytest.raises(SILENCE):
                async for _ in await _create(client, STALLS):
                    pass

    with instrumented(idle=0.2) as captured, leaves_nothing():
        trio.run(one)
        trio.run(one)
        threads = [threading.Thread(target=trio.run, args=(one,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert _outcomes(captured) == ["stalled"] * 5


def test_finished_calls_are_freed_without_a_collection_and_their_watch_with_the_run(plain: Place) -> None:
    from stallwatch.runtime import trio_waiter

    freed: list[weakref.ref[Any]] = []

    async def story(captured: Captured, client: Any) -> None:
        for model in (STALLS, "healthy:tokens=2,gap=0"):
            stream = await _create(client, model)
            waiter = stream._iterator._waiter
            freed.extend((weakref.ref(waiter), weakref.ref(waiter._run)))
            assert isinstance(waiter._run, InFlight)
            del waiter
            try:
                async for _ in stream:
                    pass
            except SILENCE:
                pass
            await stream.close()

    _play(story, plain, idle=0.2)
    gc.collect()
    assert [each() for each in freed] == [None] * 4
    assert not len(trio_waiter._watches)
