"""Whatever bytes a server sends, a guarded stream is to its reader what a bare one is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.oracle import Answer, Observed, both_ways
from fuzz.profile import examples
from fuzz.surfaces import RAW_READINGS, READINGS, STREAMED
from fuzz.wires import wires
from stallwatch.runtime import splicing, waking

# The Assistants API is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

surfaces = pytest.mark.parametrize("surface", STREAMED, ids=[surface.name for surface in STREAMED])


@surfaces
@given(data=st.data())
@examples(60)
def test_events_are_those_of_the_bare_sdk(played: Observed, surface, data) -> None:
    answer = Answer(data.draw(wires(surface.name)))
    reading = READINGS[data.draw(st.sampled_from(sorted(READINGS)))]
    for is_async in (False, True):
        bare, guarded = both_ways(played, surface, reading, answer, is_async=is_async)
        assert guarded == bare


@surfaces
@given(data=st.data())
@examples(30)
def test_raw_readers_get_the_very_bytes(played: Observed, surface, data) -> None:
    answer = Answer(data.draw(wires(surface.name)))
    reading = RAW_READINGS[data.draw(st.sampled_from(sorted(RAW_READINGS)))]
    for is_async in (False, True):
        bare, guarded = both_ways(played, surface, reading, answer, is_async=is_async)
        assert guarded == bare


@pytest.fixture(scope="module")
def no_back_off() -> Iterator[None]:
    async def turn(_: float) -> None:
        await asyncio.sleep(0)

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(waking, "sleep", lambda run, delay: None)
        patching.setattr(splicing, "anyio", SimpleNamespace(sleep=turn))
        yield


@pytest.mark.usefixtures("no_back_off")
@pytest.mark.parametrize("surface", STREAMED[:3], ids=[surface.name for surface in STREAMED[:3]])
@given(data=st.data())
@examples(30)
def test_what_fails_each_time_ends_as_it_does_bare(played: Observed, surface, data) -> None:
    answer = Answer(data.draw(wires(surface.name)), retries=2)
    reading = READINGS[data.draw(st.sampled_from(sorted(READINGS)))]
    for is_async in (False, True):
        bare, guarded = both_ways(played, surface, reading, answer, is_async=is_async)
        assert guarded == bare
