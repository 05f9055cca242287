"""A release of the SDK that lacks a seam, or calls it otherwise: one feature is off, and calls are no worse than bare.

The seam is taken out of its class, and the SDK finds the method in a class above. What is on and off is a table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic

import openai
import openai._base_client as base
import openai._streaming as streaming
import pytest

import stallwatch
from stallwatch.sdk import patches
from stallwatch.sdk.seams import survey
from stallwatch.testing import FaultGateway
from support.bounds import LATE
from support.drivers import DRIVERS, MESSAGES, Driver, Told
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

LIMIT = 0.25
LIMITS: dict[str, Any] = {"idle": LIMIT, "first_token": LIMIT, "connect": 5, "total": 30}
OWN = 1.0
"""Seconds; the timeout of the user's client, which ends what is not guarded."""

SYNC_SLEEP = next(seam.name for seam in survey([]) if seam.name in ("_sleep_for_retry", "_retry_request"))


@dataclass(frozen=True)
class Scene:
    """A call under a missing seam."""

    driver: Driver
    gateway: FaultGateway

    def tell(self, model: str, **options: Any) -> tuple[Told, Captured]:
        """Play the model once, instrumented."""
        with instrumented(**LIMITS) as captured:
            return self.bare(model, **options), captured

    def bare(self, model: str, **options: Any) -> Told:
        """Play the model once."""
        return self.driver.tell(
            self.gateway.base_url, model, options={"timeout": OWN, "max_retries": 0, **options}
        )


def attribute(captured: Captured, name: str) -> Any:
    """An attribute of the one span, where there is one."""
    found = [(span.attributes or {}).get(f"stallwatch.{name}") for span in captured.spans]
    return found[0] if len(found) == 1 else None


# The features, each by a call that shows it


def spans(scene: Scene) -> bool:
    """One span, which tells the outcome."""
    _, captured = scene.tell("healthy:tokens=2,gap=0")
    return bool(attribute(captured, "outcome") == "completed")


def stalls(scene: Scene) -> bool:
    """Silence in the middle of a stream is ended by its limit."""
    told, _ = scene.tell("stall-after:tokens=2,gap=0")
    return isinstance(told.error, stallwatch.StreamInactivityTimeoutError) and told.after_last < LIMIT + LATE


def headers(scene: Scene) -> bool:
    """So is silence before the headers."""
    told, _ = scene.tell("never-responds")
    return isinstance(told.error, stallwatch.StreamInactivityTimeoutError)


def again(scene: Scene) -> bool:
    """Silence before anything was delivered is followed by another attempt."""
    told, _ = scene.tell("silent>healthy:tokens=2,gap=0", max_retries=1)
    return told.error is None and told.text == "t0 t1 "


def heartbeats(scene: Scene) -> bool:
    """Chunks that carry nothing are no progress."""
    told, captured = scene.tell("heartbeats:tokens=2,every=0.05,seconds=1")
    return attribute(captured, "stall.wire") == "heartbeat_only" and told.after_last < OWN


def told(scene: Scene) -> bool:
    """A retry of the SDK is told with the verdict that led to it."""
    _, captured = scene.tell("flaky:times=1,retry_after_ms=10", max_retries=1)
    return [
        (event.attributes or {}).get("stallwatch.retry.decision") for event in captured.events("attempt")
    ] == ["retry", None]


def counted(scene: Scene) -> bool:
    """Retries of the SDK are attempts of the run."""
    _, captured = scene.tell("flaky:times=1,retry_after_ms=10", max_retries=1)
    return bool(attribute(captured, "attempts") == 2)


def refused(scene: Scene) -> bool:
    """A pause that would outlast the total is not begun: the server's error comes at once."""
    with stallwatch.policy(total=1.0):
        told, _ = scene.tell("error-status:code=503,retry_after=2", max_retries=1)
    return isinstance(told.error, openai.InternalServerError) and told.seconds < 1.0


def woken(scene: Scene) -> bool:
    """A cancel ends the pause before a retry."""
    with stallwatch.Run() as run:

        def cancel() -> None:
            scene.gateway.wait_for(lambda ledger: ledger.requests and ledger.requests[0].completed_at)
            threading.Timer(0.1, run.cancel).start()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        told, _ = scene.tell("error-status:code=503,retry_after=2", max_retries=1)
        canceller.join()
    return isinstance(told.error, stallwatch.RunCancelledError) and told.seconds < 2.0


FEATURES: tuple[Callable[[Scene], bool], ...] = (
    spans,
    stalls,
    headers,
    again,
    heartbeats,
    told,
    counted,
    refused,
    woken,
)
ALL = {feature.__name__ for feature in FEATURES}

OFF: dict[tuple[type, str], tuple[str, set[str]]] = {
    (base.SyncAPIClient, "request"): ("sync", ALL),
    (base.AsyncAPIClient, "request"): ("async", ALL),
    (base.BaseClient, "_build_request"): ("sync async", {"headers", "told", "counted"}),
    (base.BaseClient, "_should_retry"): ("sync async", {"refused"}),
    (base.BaseClient, "_calculate_retry_timeout"): ("sync async", {"told"}),
    (base.SyncAPIClient, SYNC_SLEEP): ("sync", {"woken"}),
    (base.SyncAPIClient, "_process_response"): ("sync", {"again"}),
    (base.AsyncAPIClient, "_process_response"): ("async", {"again"}),
    (streaming.Stream, "__init__"): ("sync", {"heartbeats"}),
    (streaming.AsyncStream, "__init__"): ("async", {"heartbeats"}),
}
"""By seam: the kinds of client, and the features, that are off without it. All others are on."""


@contextmanager
def moved(owner: Any, name: str) -> Iterator[None]:
    """Take a method out of its class; the SDK finds it in a class above."""
    original, bases = owner.__dict__[name], owner.__bases__
    delattr(owner, name)
    if Generic in bases:
        owner.__bases__ = (type("Above", (), {name: original, "__slots__": ()}), *bases)
    else:
        owner.__bases__ = (type("Above", bases, {name: original}),)
    try:
        yield
    finally:
        owner.__bases__ = bases
        setattr(owner, name, original)


def _id(value: Any) -> str | None:
    if isinstance(value, Driver):
        return value.kind
    if isinstance(value, tuple):
        return f"{value[0].__name__}.{value[1]}"
    return None


def test_the_table_has_every_seam() -> None:
    assert set(OFF) == {(seam.owner, seam.name) for seam in survey([])}


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS, ids=_id)
@pytest.mark.parametrize("seam", OFF, ids=_id)
def test_a_missing_seam_switches_off_what_rides_on_it_and_nothing_else(
    seam: tuple[type, str], driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    kinds, off = OFF[seam]
    expected = off if driver.kind in kinds.split() else set()
    found, warnings = set(), []
    with moved(*seam):
        for feature in FEATURES:
            caplog.clear()
            with FaultGateway() as gateway:
                if not feature(Scene(driver, gateway)):
                    found.add(feature.__name__)
            warnings.append(
                [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
            )
    caplog.clear()
    assert found == expected
    # Where neither name of this one is there, the later is missed.
    missed = "_sleep_for_retry" if seam[1] == SYNC_SLEEP else seam[1]
    name = f"{seam[0].__name__}.{missed} is missing in this openai release, so this is off: "
    # Each of them was instrumented anew.
    assert all(len(each) == 1 and each[0].startswith(name) for each in warnings), warnings


HOST = (
    ("healthy:tokens=2,gap=0", 0),
    ("healthy:tokens=2,gap=0", 2),
    ("flaky:times=1,retry_after_ms=10", 1),
    ("error-status:code=400", 2),
    ("error-status:code=500,retry_after_ms=10", 1),
    ("cut", 1),
    ("reset", 1),
    ("error-frame:tokens=2", 1),
    ("truncated", 0),
)
"""Models and the retries of the client, none of them a stall."""


def _seen(scene: Scene, model: str, retries: int) -> tuple[Any, ...]:
    told = scene.bare(model, max_retries=retries)
    causes = type(told.error), type(told.error and told.error.__cause__)
    return (*causes, told.text, len(told.chunks), len(scene.gateway.ledger().requests))


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS, ids=_id)
@pytest.mark.parametrize("seam", OFF, ids=_id)
def test_without_a_seam_calls_go_as_bare(
    seam: tuple[type, str], driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    for model, retries in HOST:
        with FaultGateway() as gateway:
            bare = _seen(Scene(driver, gateway), model, retries)
        with FaultGateway() as gateway, moved(*seam), instrumented(**LIMITS):
            assert _seen(Scene(driver, gateway), model, retries) == bare, model
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == len(HOST)
    caplog.clear()


# Parameters by other names


def _renamed(names: dict[str, str]) -> Callable[[Any], Any]:
    """Make a method take, from its callers and from what is wrapped around it, other names for its parameters."""

    def change(original: Any) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self, *args, **{names.get(name, name): value for name, value in kwargs.items()})

        return method

    return change


class _Calls:
    """A client whose calls of a method use the new names: the method in front of the patched one."""

    def __init__(self, owner: Any, name: str, new: dict[str, str]) -> None:
        self.owner, self.name, self.new = owner, name, new
        self.original = owner.__dict__[name]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Rename for the length of the block; what instruments meanwhile sees the new names."""
        owner, name, new = self.owner, self.name, self.new
        setattr(owner, name, _renamed({theirs: ours for ours, theirs in new.items()})(self.original))
        try:
            yield
        finally:
            setattr(owner, name, self.original)

    @contextmanager
    def called(self) -> Iterator[None]:
        """Let the SDK call by the new names what is now in the class; to be entered once it is instrumented."""
        patched = self.owner.__dict__[self.name]

        def method(this: Any, *args: Any, **kwargs: Any) -> Any:
            named = {self.new.get(name, name): value for name, value in kwargs.items()}
            return patched.__get__(this, type(this))(*args, **named)

        setattr(self.owner, self.name, method)
        try:
            yield
        finally:
            setattr(self.owner, self.name, patched)


RENAMED: tuple[tuple[type, str, dict[str, str]], ...] = (
    (base.SyncAPIClient, "request", {"options": "opts", "stream": "streamed"}),
    (base.BaseClient, "_build_request", {"retries_taken": "attempts_made"}),
    (base.BaseClient, "_should_retry", {"response": "reply"}),
    (base.BaseClient, "_calculate_retry_timeout", {"response_headers": "reply_headers"}),
    (base.SyncAPIClient, SYNC_SLEEP, {"max_retries": "most", "retries_taken": "attempts_made"}),
    (base.SyncAPIClient, "_process_response", {"response": "reply", "options": "opts"}),
)


@pytest.mark.parametrize("renamed", RENAMED, ids=_id)
def test_parameters_by_other_names_hurt_no_call(
    renamed: tuple[type, str, dict[str, str]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patches, "_warned", set())
    calls = _Calls(*renamed)
    driver = DRIVERS[0]
    for model, retries in HOST:
        with FaultGateway() as gateway:
            bare = _seen(Scene(driver, gateway), model, retries)
        with (
            FaultGateway() as gateway,
            calls.in_force(),
            instrumented(**LIMITS),
            calls.called(),
            stallwatch.Run(),
        ):
            assert _seen(Scene(driver, gateway), model, retries) == bare, model
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) <= 1
    caplog.clear()


@pytest.mark.parametrize("driver", DRIVERS, ids=_id)
@pytest.mark.parametrize("name", ["_build_request", "_process_response"])
def test_a_raw_reader_is_guarded_without_the_seam_too(
    name: str, driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    owner: Any = base.BaseClient
    if name == "_process_response":
        owner = base.AsyncAPIClient if driver.is_async else base.SyncAPIClient

    async def story(stage: Stage) -> BaseException | None:
        async with stage.inside(stage.client(gateway.base_url, timeout=OWN)) as client:
            request = client.chat.completions.with_streaming_response.create(
                model="stall-after:tokens=2,gap=0", messages=MESSAGES, stream=True
            )
            try:
                async with stage.inside(request) as response:
                    await stage.all(response.iter_lines())
            except Exception as error:
                return error
        return None

    with FaultGateway() as gateway, moved(owner, name), instrumented(**LIMITS) as captured:
        error = play(driver, story)
    caplog.clear()
    assert isinstance(error, stallwatch.StreamInactivityTimeoutError)
    assert captured.attributes()["stallwatch.outcome"] == "stalled"
