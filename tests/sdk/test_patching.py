"""What is patched, when it is given back, and how live streams end when it is."""

from __future__ import annotations

from typing import Any

import openai
import openai._base_client as base
import openai._streaming as streaming
import pytest
from wrapt import wrap_function_wrapper

import stallwatch
from stallwatch import governing
from support.places import MESSAGES, Place, run_on
from support.telemetry import Captured, instrumented

OWNERS = (base.BaseClient, base.SyncAPIClient, base.AsyncAPIClient, streaming.Stream, streaming.AsyncStream)


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _attributes() -> dict[tuple[type, str], Any]:
    """What each attribute is, and what runs when it is called: a function may be changed from within."""
    return {
        (owner, name): (value, getattr(value, "__code__", None))
        for owner in OWNERS
        for name, value in vars(owner).items()
    }


def _changed(before: dict[tuple[type, str], Any]) -> set[str]:
    after = _attributes()
    return {
        name
        for key in before | after
        for name in key[1:]
        if any(was is not now for was, now in zip(before.get(key, ()), after.get(key, ()), strict=True))
    }


def _outcomes(captured: Captured) -> list[Any]:
    return [span.attributes["stallwatch.outcome"] for span in captured.spans]


def test_after_uninstrument_every_attribute_is_the_original() -> None:
    before = _attributes()
    for _ in range(2):
        with instrumented():
            assert _changed(before) >= {"request", "_build_request", "_process_response", "__init__"}
        assert _changed(before) == set()
    assert governing.patched() == []


def test_instrumenting_twice_patches_once() -> None:
    before = _attributes()
    with instrumented():
        first = _attributes()
        # The base class tells so by itself, and does nothing.
        stallwatch.OpenAIInstrumentor().instrument(skip_dep_check=True)
        assert _attributes() == first
    assert _changed(before) == set()


def test_uninstrument_without_instrument_does_nothing() -> None:
    before = _attributes()
    stallwatch.OpenAIInstrumentor().uninstrument()
    assert _changed(before) == set()


def test_another_tools_patch_over_ours_stays_and_ours_passes_through(plain: Place) -> None:
    calls: list[str] = []

    def other(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        calls.append("other")
        return wrapped(*args, **kwargs)

    original = base.SyncAPIClient.__dict__["request"]
    try:
        with instrumented(idle=0.2) as captured, plain.client() as client:
            wrap_function_wrapper("openai._base_client", "SyncAPIClient.request", other)
            theirs = base.SyncAPIClient.__dict__["request"]
            assert len(list(_create(client, "healthy:tokens=1,gap=0"))) == 3
        assert base.SyncAPIClient.__dict__["request"] is theirs
        assert _outcomes(captured) == ["completed"]
        with plain.client() as client:
            stream = _create(client, "slow:tokens=2,gap=0.3")
            assert type(stream._iterator).__name__ == "generator"
            assert len(list(stream)) == 4
        assert calls == ["other", "other"]
        assert len(captured.spans) == 1
        with instrumented(idle=0.2) as again, plain.client() as client:
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                list(_create(client, "stall-after:tokens=1,gap=0"))
            assert calls == ["other"] * 3
        assert _outcomes(again) == ["stalled"]
        assert len(captured.spans) == 1
    finally:
        base.SyncAPIClient.request = original  # type: ignore[method-assign]


def test_a_patch_that_was_there_before_is_there_after(plain: Place) -> None:
    original = base.SyncAPIClient.__dict__["request"]
    calls: list[str] = []

    def other(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        calls.append("other")
        return wrapped(*args, **kwargs)

    try:
        wrap_function_wrapper("openai._base_client", "SyncAPIClient.request", other)
        theirs = base.SyncAPIClient.__dict__["request"]
        with instrumented() as captured, plain.client() as client:
            list(_create(client, "healthy:tokens=1,gap=0"))
        assert base.SyncAPIClient.__dict__["request"] is theirs
        assert calls == ["other"]
        assert _outcomes(captured) == ["completed"]
    finally:
        base.SyncAPIClient.request = original  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("model", "outcome"),
    [("healthy:tokens=5,gap=0.02", "completed"), ("stall-after:tokens=2,gap=0.02", "stalled")],
)
def test_a_live_stream_ends_guarded_after_uninstrument(place: Place, model: str, outcome: str) -> None:
    with place.client() as client:
        with instrumented(idle=0.2) as captured:
            stream = _create(client, model)
            next(stream)
        if outcome == "stalled":
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                list(stream)
        else:
            assert len(list(stream)) == 6
        assert _outcomes(captured) == [outcome]


def test_a_live_async_stream_ends_guarded_after_uninstrument(place: Place, loop: str) -> None:
    async def story() -> None:
        async with place.async_client() as client:
            with instrumented(idle=0.2) as captured:
                stream = await _create(client, "stall-after:tokens=2,gap=0.02")
                await anext(stream)
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                async for _ in stream:
                    pass
            assert _outcomes(captured) == ["stalled"]

    run_on(loop, story())


def test_a_client_made_before_instrument_is_governed(plain: Place) -> None:
    with plain.client() as client, instrumented() as captured:
        list(_create(client, "healthy:tokens=1,gap=0"))
        assert _outcomes(captured) == ["completed"]


def test_a_subclass_of_a_client_is_governed(plain: Place) -> None:
    class Own(openai.OpenAI):
        """A client of somebody's own, with a step of its own."""

        def _prepare_options(self, options: Any) -> Any:
            return super()._prepare_options(options)

        def request(self, *args: Any, **kwargs: Any) -> Any:
            return super().request(*args, **kwargs)

    with (
        instrumented(idle=0.2) as captured,
        Own(base_url=plain.base_url, api_key="sk-test", max_retries=0) as client,
    ):
        with pytest.raises(stallwatch.StreamInactivityTimeoutError):
            list(_create(client, "stall-after:tokens=1,gap=0"))
        assert _outcomes(captured) == ["stalled"]


def test_settings_given_to_an_instrumented_process_replace_those_in_force(plain: Place) -> None:
    # As under opentelemetry-instrument, which instruments before the program runs.
    with instrumented(idle=10) as captured, plain.client() as client:
        stallwatch.OpenAIInstrumentor().instrument(idle=0.2)
        with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
            list(client.chat.completions.create(model="stall-after:tokens=1", messages=MESSAGES, stream=True))
        assert caught.value.limit == 0.2
        assert caught.value.set_by == "code"
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


def test_bad_settings_given_to_an_instrumented_process_change_nothing() -> None:
    with instrumented(idle=10):
        with pytest.raises(ValueError, match="idel"):
            stallwatch.OpenAIInstrumentor().instrument(idel=0.2)
        assert base.SyncAPIClient.__dict__["request"] is not None
