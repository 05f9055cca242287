"""Streams of images, transcripts and runs are told as chat is: first output, usage, end, truncation, failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stallwatch.testing import Eof, ErrorFrame, FaultGateway, Finish, Role, Silence, Step, Token, Wait
from support.bounds import LATE, LIMITS
from support.drivers import Driver
from support.expect import ended, stalled
from support.stage import Stage, play
from support.telemetry import Captured, instrumented
from surfaces.surfaces_of_others import PICTURE, SOUND, takes

LATER = 0.15
"""Seconds from the preamble to the first output."""

CALLS: dict[str, tuple[Any, Any]] = {
    "images": (
        takes("images", "generate", option="stream"),
        lambda client: client.images.generate(model="m", prompt="a", stream=True),
    ),
    "edits": (
        takes("images", "edit", option="stream"),
        lambda client: client.images.edit(model="m", prompt="a", image=PICTURE, stream=True),
    ),
    "two images": (
        takes("images", "generate", option="stream"),
        lambda client: client.images.generate(model="m", prompt="a", n=2, stream=True),
    ),
    "transcriptions": (
        takes("audio", "transcriptions", "create", option="stream"),
        lambda client: client.audio.transcriptions.create(model="m", file=SOUND, stream=True),
    ),
    "runs": (
        takes("beta", "threads", "runs", "create", option="stream"),
        lambda client: client.beta.threads.runs.create(
            "thread_1", assistant_id="asst_1", model="m", stream=True
        ),
    ),
}

ONE = [name for name in CALLS if name != "two images"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def captured() -> Iterator[Captured]:
    with instrumented(**LIMITS) as telemetry:
        yield telemetry


def read(gateway: FaultGateway, driver: Driver, name: str, steps: list[Step]) -> list[Any]:
    offered, call = CALLS[name]
    gateway.script("m", steps)

    async def story(stage: Stage) -> list[Any] | None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            if not offered(client):
                return None
            return await stage.all(await stage.of(call(client)))

    told = play(driver, story)
    if told is None:
        pytest.skip("this release does not stream it")
    return told


@pytest.mark.parametrize("name", ONE)
def test_a_whole_answer_is_completed_with_its_usage_and_time_to_first_token(
    gateway: FaultGateway, driver: Driver, captured: Captured, name: str
) -> None:
    told = read(gateway, driver, name, [Role(), Wait(LATER), Token("a"), Token("b"), Finish()])
    attributes = ended(captured, "completed", chunks=len(told))
    assert attributes["gen_ai.usage.output_tokens"] == 2
    assert attributes["gen_ai.usage.input_tokens"] == 11
    # The announcements of a run are no token.
    assert LATER - 0.01 <= attributes["stallwatch.time_to_first_token"] < LATER + LATE
    if name == "runs":
        assert attributes["gen_ai.response.model"] == "m"
        assert attributes["gen_ai.response.finish_reasons"] == ("stop",)


@pytest.mark.parametrize("name", ONE)
def test_after_the_last_event_a_body_that_lingers_is_no_stall(
    gateway: FaultGateway, driver: Driver, captured: Captured, name: str
) -> None:
    told = read(gateway, driver, name, [Role(), Token("a"), Finish(), Silence()])
    assert getattr(told[-1], "type", getattr(told[-1], "event", "")).rpartition(".")[2] in (
        "completed",
        "done",
    )
    ended(captured, "completed", chunks=len(told))


def test_of_two_images_both_are_waited_for(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    told = read(
        gateway, driver, "two images", [Token("a"), Finish(), Wait(0.1), Token("b"), Finish(), Silence()]
    )
    assert len(told) == 4
    ended(captured, "completed", chunks=4)


def test_one_image_of_two_is_no_whole_answer(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    with pytest.raises(TimeoutError) as caught:
        read(gateway, driver, "two images", [Token("a"), Finish(), Silence()])
    stalled(captured, caught.value, phase="idle", limit=LIMITS["idle"], chunks=2)


@pytest.mark.parametrize("name", ONE)
def test_an_end_without_the_last_event_is_truncated(
    gateway: FaultGateway, driver: Driver, captured: Captured, name: str
) -> None:
    told = read(gateway, driver, name, [Role(), Token("a"), Eof()])
    ended(captured, "truncated", chunks=len(told), error_type="truncated")


def test_a_run_that_reports_its_failure_has_failed(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    told = read(gateway, driver, "runs", [Role(), Token("a"), ErrorFrame(style="failed")])
    assert told[-1].event == "thread.run.failed"
    ended(captured, "failed", chunks=len(told), error_type="server_error")
