"""On HTTP/2 a call ends alone: its stream is reset, and those beside it on the connection never notice."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
import trustme

import stallwatch
from stallwatch.runtime import http2_names, http2_streams
from stallwatch.runtime.interrupt_proof import interrupt_proof
from stallwatch.testing import FaultGateway
from support.bounds import CLOSE_SEEN, LATE, LIMITS
from support.connects import http
from support.drivers import SYNC, Driver
from support.expect import in_time
from support.leaks import wait_until
from support.stage import Stage, play
from support.telemetry import Captured, instrumented
from transports.together import Call, together

if importlib.util.find_spec("h2") is None:
    pytest.skip("h2 is not installed", allow_module_level=True)

from transports.h2_front import CANCEL, H2Front

STALLS = "stall-after:tokens=2,gap=0"
HEALTHY = "healthy:tokens=20,gap=0.04"

BESIDE: dict[str, Any] = {**LIMITS, "connect": 3, "first_token": 0.8, "idle": 0.7, "total": 20}
"""Limits for those that have healthy calls beside them, which a busy machine must not make late."""

Make = Callable[..., Any]


@pytest.fixture(params=["tcp", "tls"])
def front(request: pytest.FixtureRequest, gateway: FaultGateway, authority: trustme.CA) -> Iterator[H2Front]:
    context = None
    if request.param == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
    with H2Front(gateway.port, context) as started:
        yield started


@pytest.fixture
def plain(gateway: FaultGateway) -> Iterator[H2Front]:
    with H2Front(gateway.port) as started:
        yield started


@pytest.fixture
def made(driver: Driver, authority: trustme.CA) -> Make:
    def make(front: H2Front, **options: Any) -> Any:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(context)
        # Without TLS nothing is agreed on; HTTP/2 must be all there is.
        tls = front.base_url.startswith("https")
        kind = http.AsyncClient if driver.is_async else http.Client
        return driver.client(
            front.base_url, http_client=kind(verify=context, http1=tls, http2=True), **options
        )

    return make


def said(captured: Captured) -> list[str]:
    return [str((span.attributes or {})["stallwatch.interrupt"]) for span in captured.spans]


def outcomes(captured: Captured) -> list[str]:
    return sorted(str((span.attributes or {})["stallwatch.outcome"]) for span in captured.spans)


def seen(condition: Callable[[], object], front: H2Front) -> None:
    wait_until(condition, lambda: front.seen, CLOSE_SEEN)


@pytest.mark.parametrize(
    ("model", "stream", "phase"),
    [
        ("never-responds", True, "first_token"),
        ("never-responds", False, "total"),
        ("silent", True, "first_token"),
        ("keepalive:tokens=0,every=0.05", True, "first_token"),
        (STALLS, True, "idle"),
        ("keepalive:tokens=2,gap=0,every=0.05", True, "idle"),
    ],
)
def test_a_silent_call_ends_at_its_deadline_and_its_stream_is_reset(
    front: H2Front, driver: Driver, made: Make, model: str, stream: bool, phase: str
) -> None:
    limits = {**LIMITS, "total": 0.5} if phase == "total" else LIMITS
    with instrumented(**limits) as captured:
        (call,) = together(driver, lambda: made(front), [Call(model, stream)])
    assert isinstance(call.error, stallwatch.StreamTimeoutError)
    assert call.error.phase == phase
    in_time(call.error.waited, limits[phase])
    assert call.last <= limits[phase] + LATE + (0.2 if call.chunks == 0 else 0)
    seen(lambda: front.seen.resets == [CANCEL], front)
    assert said(captured) == ["proven"]
    assert outcomes(captured) == ["stalled"]


def test_thirty_silent_calls_beside_a_healthy_one_end_and_it_is_left_alone(
    front: H2Front, gateway: FaultGateway, driver: Driver, made: Make
) -> None:
    # All at once: left to the library, some of the threads would be given the same stream.
    silent = [Call(STALLS) for _ in range(30)]
    healthy = Call("healthy:tokens=50,gap=0.05")
    with instrumented(**{**LIMITS, "first_token": 5, "idle": 1}) as captured:
        together(driver, lambda: made(front), [healthy, *silent])
    assert healthy.error is None
    assert healthy.chunks == 52
    for call in silent:
        assert isinstance(call.error, stallwatch.StreamInactivityTimeoutError), call
        # Each is ended by its own thread, thirty at one moment.
        assert 0.98 <= call.last <= 1.5
    seen(lambda: front.seen.resets == [CANCEL] * 30, front)
    assert front.seen.connections == 1
    assert said(captured) == ["proven"] * 31
    assert outcomes(captured) == ["completed"] + ["stalled"] * 30


def test_the_call_after_all_slots_were_taken_by_silent_ones_gets_through(
    plain: H2Front, driver: Driver, made: Make
) -> None:
    plain.max_streams = 5
    silent = [Call(STALLS, after=0.05 + 0.01 * number) for number in range(4)]
    keeper, late = Call("healthy:tokens=40,gap=0.02"), Call("healthy:tokens=2,gap=0", after=0.15)
    with instrumented(**{**BESIDE, "first_token": 3}) as captured:
        together(driver, lambda: made(plain), [keeper, *silent, late])
    assert (keeper.error, late.error) == (None, None)
    assert plain.seen.most_at_once == 5
    assert plain.seen.connections == 1
    assert outcomes(captured) == ["completed"] * 2 + ["stalled"] * 4


def test_waiting_for_a_slot_is_bounded_too(plain: H2Front, driver: Driver, made: Make) -> None:
    plain.max_streams = 1
    keeper = Call("healthy:tokens=40,gap=0.04")
    late = Call("healthy:tokens=2,gap=0", after=0.2)
    with instrumented(**BESIDE) as captured:
        together(driver, lambda: made(plain), [keeper, late])
    assert keeper.error is None
    assert isinstance(late.error, stallwatch.StreamInactivityTimeoutError)
    assert late.error.phase == "first_token"
    in_time(late.seconds, BESIDE["first_token"])
    assert plain.seen.streams == 1
    assert outcomes(captured) == ["completed", "stalled"]


def test_an_answer_does_not_wait_for_silent_calls_to_hand_it_over(
    plain: H2Front, driver: Driver, made: Make
) -> None:
    # Left to the library, an answer that has come waits until a silent call that reads for all gets something, too.
    silent = [Call("silent", after=0.01 * number) for number in range(5)]
    quick = [Call("healthy:tokens=2,gap=0", after=0.2 + 0.05 * number) for number in range(5)]
    with instrumented(**{**BESIDE, "first_token": 3}):
        together(driver, lambda: made(plain), silent + quick)
    for call in quick:
        assert call.error is None
        assert call.seconds < 1, call


@pytest.mark.parametrize("place", ["reads for all", "stands at the lock", "waits for a slot"])
def test_a_cancel_is_heard_wherever_the_call_waits(
    plain: H2Front, driver: Driver, made: Make, place: str
) -> None:
    plain.max_streams = 1 if place == "waits for a slot" else 100
    stopped: list[float] = []

    def cancelled() -> Any:
        run = stallwatch.Run()

        def stop() -> None:
            stopped.append(time.monotonic())
            run.cancel("enough")

        timer = threading.Timer(0.35, stop)
        timer.start()
        return run

    mine = Call("silent", within=cancelled, after=0.0 if place == "reads for all" else 0.15)
    other = Call("healthy:tokens=10,gap=0.05,first=0.5", after=0.1 if place == "reads for all" else 0.0)
    with instrumented(**{**BESIDE, "first_token": 3}) as captured:
        together(driver, lambda: made(plain), [mine, other])
    assert isinstance(mine.error, stallwatch.RunCancelledError), mine
    assert mine.ended - stopped[0] < LATE
    assert other.error is None
    assert other.chunks == 12
    if place != "waits for a slot":
        seen(lambda: plain.seen.resets == [CANCEL], plain)
    assert outcomes(captured) == ["cancelled", "completed"]


def test_a_cancel_between_two_reads_resets_the_stream_at_once(
    front: H2Front, driver: Driver, made: Make
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(made(front)) as client:
            with stallwatch.Run() as run:
                stream = await stage.chat(client, STALLS)
                await stage.take(stream, 2)
                run.cancel("enough")
                until = time.monotonic() + CLOSE_SEEN
                while front.seen.resets != [CANCEL]:
                    assert time.monotonic() < until, front.seen
                    await stage.sleep(0.01)
                with pytest.raises(stallwatch.RunCancelledError):
                    await stage.step(stream)

    with instrumented(**LIMITS):
        play(driver, story)


def test_a_close_from_elsewhere_ends_the_wait_and_nobody_else(
    front: H2Front, driver: Driver, made: Make
) -> None:
    async def close_async(stream: Any) -> None:
        await asyncio.sleep(0.3)
        await stream.close()

    def close(stream: Any) -> None:
        time.sleep(0.3)
        stream.close()

    mine = Call("silent", then=close_async if driver.is_async else close)
    other = Call("healthy:tokens=15,gap=0.04", after=0.1)
    with instrumented(**{**BESIDE, "first_token": 3}) as captured:
        together(driver, lambda: made(front), [mine, other])
    assert mine.seconds < 0.3 + LATE
    assert not isinstance(mine.error, stallwatch.StallwatchError)
    assert other.error is None
    assert other.chunks == 17
    seen(lambda: front.seen.resets == [CANCEL], front)
    assert outcomes(captured) == ["closed_early", "completed"]


def test_leaving_a_stream_frees_its_slot(front: H2Front, driver: Driver, made: Make) -> None:
    front.max_streams = 2

    async def story(stage: Stage) -> None:
        async with stage.inside(made(front)) as client:
            for _ in range(10):
                async with stage.inside(await stage.chat(client, STALLS)) as stream:
                    await stage.take(stream, 2)

    with instrumented(**BESIDE) as captured:
        play(driver, story)
    seen(lambda: front.seen.resets == [CANCEL] * 10, front)
    assert front.seen.connections == 1
    assert outcomes(captured) == ["closed_early"] * 10


def test_a_tighter_timeout_of_the_user_s_ends_this_call_alone(
    front: H2Front, driver: Driver, made: Make
) -> None:
    mine = Call("silent", request={"timeout": 0.3})
    other = Call("silent:after=0.8", after=0.1)
    with instrumented(**{**BESIDE, "first_token": 1.5}) as captured:
        together(driver, lambda: made(front), [mine, other])
    assert isinstance(other.error, stallwatch.StreamInactivityTimeoutError), other
    assert mine.error is not None
    assert not isinstance(mine.error, stallwatch.StallwatchError)
    assert "Timeout" in type(mine.error).__name__
    assert outcomes(captured) == ["failed", "stalled"]


def test_a_connection_that_has_died_takes_no_further_calls(
    plain: H2Front, driver: Driver, made: Make
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(made(plain)) as client:
            assert len(await stage.all(await stage.chat(client, "healthy:tokens=1,gap=0"))) == 3
            plain.deaf = True
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                await stage.chat(client, "healthy:tokens=1,gap=0")
            plain.deaf = False
            assert len(await stage.all(await stage.chat(client, "healthy:tokens=1,gap=0"))) == 3

    with instrumented(**BESIDE) as captured:
        play(driver, story)
    assert plain.seen.connections == 2
    assert said(captured) == ["proven"] * 3


def test_what_cannot_be_proven_is_said(plain: H2Front, driver: Driver, made: Make) -> None:
    quiet = [
        Call("stall-after:tokens=2,gap=0.25", within=lambda: stallwatch.policy(idle=0.5)),
        Call("silent", after=0.05, within=lambda: stallwatch.policy(first_token=2)),
    ]
    with instrumented(**LIMITS) as captured:
        together(driver, lambda: made(plain), quiet)
    # Nothing has come for either since; of the first it is not known that the server lives, with the second the
    # connection is closed.
    assert said(captured) == ["unproven", "proven"]


def test_an_upload_that_nobody_takes_is_bounded(plain: H2Front, driver: Driver, made: Make) -> None:
    plain.keeps_windows_shut = True
    messages = [{"role": "user", "content": "x" * 300_000}]
    mine, other = Call("silent", request={"messages": messages}), Call(HEALTHY, after=0.05)
    with instrumented(**BESIDE) as captured:
        together(driver, lambda: made(plain), [mine, other])
    assert isinstance(mine.error, stallwatch.StreamInactivityTimeoutError)
    in_time(mine.seconds, BESIDE["first_token"])
    assert other.error is None
    assert said(captured) == ["proven"] * 2


def test_a_server_that_goes_away_is_told_as_by_the_bare_sdk_and_the_next_call_has_another_connection(
    plain: H2Front, driver: Driver, made: Make
) -> None:
    async def story(stage: Stage) -> BaseException | None:
        async with stage.inside(made(plain)) as client:
            raised = None
            try:
                stream = await stage.chat(client, "healthy:tokens=5,gap=0.05")
                plain.go_away()
                await stage.all(stream)
            except Exception as error:
                raised = error
            assert len(await stage.all(await stage.chat(client, "healthy:tokens=1,gap=0"))) == 3
            return raised

    bare = play(driver, story)
    with instrumented(**BESIDE):
        ours = play(driver, story)
    assert type(ours) is type(bare)
    assert plain.seen.connections == 4


def test_calls_and_their_texts_are_not_mixed_up(front: H2Front, driver: Driver, made: Make) -> None:
    calls = [Call(f"healthy:tokens={20 + number},gap=0.01", after=0.02 * number) for number in range(8)]
    with instrumented(**BESIDE):
        together(driver, lambda: made(front), calls)
    for number, call in enumerate(calls):
        assert (call.error, call.chunks) == (None, 22 + number)


def test_after_the_patches_are_off_the_client_works_on(front: H2Front, driver: Driver, made: Make) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(made(front)) as client:
            with instrumented(**BESIDE):
                assert len(await stage.all(await stage.chat(client, "healthy:tokens=1,gap=0"))) == 3
            assert len(await stage.all(await stage.chat(client, "healthy:tokens=1,gap=0"))) == 3

    play(driver, story)
    assert front.seen.connections == 1


def test_ctrl_c_leaves_the_connection_to_the_others(plain: H2Front, authority: trustme.CA) -> None:
    client = SYNC.client(plain.base_url, http_client=http.Client(verify=False, http1=False, http2=True))
    other: list[int] = []

    def read() -> None:
        time.sleep(0.1)
        stream = client.chat.completions.create(
            model="healthy:tokens=15,gap=0.04", messages=[{"role": "user", "content": "a"}], stream=True
        )
        other.append(len(list(stream)))

    before = signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    main = threading.get_ident()
    timer = threading.Timer(0.35, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    thread = threading.Thread(target=read)
    try:
        with instrumented(**{**BESIDE, "first_token": 3}) as captured, client:
            thread.start()
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                client.chat.completions.create(
                    model="never-responds", messages=[{"role": "user", "content": "a"}], stream=True
                )
            thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert other == [17]
    seen(lambda: plain.seen.resets == [CANCEL], plain)
    assert outcomes(captured) == ["cancelled", "completed"]


@pytest.mark.parametrize("name", ["_read_incoming_data", "_events"])
def test_a_library_that_lacks_a_name_is_left_alone_and_told_of_once(
    plain: H2Front,
    driver: Driver,
    made: Make,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = "_METHODS" if name.startswith("_read") else "_ATTRIBUTES"
    monkeypatch.setattr(http2_names, table, (*getattr(http2_names, table), "_gone"))
    monkeypatch.setattr(http2_streams, "_classes", {})
    monkeypatch.setattr(http2_names, "_told", [])
    calls = [Call("silent", request={"timeout": 0.8}), Call("silent", after=0.05, request={"timeout": 0.8})]
    with instrumented(**LIMITS) as captured:
        told = interrupt_proof(made(plain))
        together(driver, lambda: made(plain), calls)
    (record,) = [each for each in caplog.records if each.name == "stallwatch"]
    assert "_gone" in record.getMessage()
    caplog.clear()
    least = "unproven" if driver.is_async else "none"
    assert told.proof == least
    assert said(captured) == [least] * 2
    if driver.is_async:
        assert all(isinstance(call.error, stallwatch.StreamInactivityTimeoutError) for call in calls)
    else:
        assert all(isinstance(call.error, (openai.APIError, http.HTTPError)) for call in calls), calls
