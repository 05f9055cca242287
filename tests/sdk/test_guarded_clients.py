"""``guard`` governs one client and what is made of it; ``unguard`` takes that back."""

from __future__ import annotations

from typing import Any

import openai._base_client as base
import pytest

import stallwatch
from stallwatch import Deadlines, Policy, governing
from support.places import MESSAGES, Place, run_on
from support.telemetry import instrumented

STALLS = "stall-after:tokens=1,gap=0"
# With an idle limit of 0.2 s this is a stall; without, it is healthy.
GAPS = "slow:tokens=2,gap=0.3"
TIGHT = Policy(deadlines=Deadlines(idle=0.2, thinking=0.2))


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _stalls(client: Any, model: str = STALLS) -> bool:
    try:
        list(_create(client, model))
    except stallwatch.StreamInactivityTimeoutError:
        return True
    return False


def test_guard_governs_one_client_without_instrument(plain: Place) -> None:
    request = base.SyncAPIClient.__dict__["request"]
    with plain.client() as guarded, plain.client() as other:
        assert stallwatch.guard(guarded, policy=TIGHT) is guarded
        assert _stalls(guarded)
        assert not _stalls(other, GAPS)
        assert stallwatch.unguard(guarded) is guarded
        assert not _stalls(guarded, GAPS)
    assert base.SyncAPIClient.__dict__["request"] is request
    assert governing.patched() == []


def test_guard_governs_an_async_client(plain: Place, loop: str) -> None:
    async def story() -> None:
        async with plain.async_client() as client:
            stallwatch.guard(client, policy=TIGHT)
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                async for _ in await _create(client, STALLS):
                    pass
            stallwatch.unguard(client)
            stream = await _create(client, GAPS)
            assert len([chunk async for chunk in stream]) == 4

    run_on(loop, story())
    assert governing.patched() == []


@pytest.mark.parametrize("how", ["with_options", "copy"])
def test_what_is_made_of_a_guarded_client_is_guarded(plain: Place, how: str) -> None:
    with plain.client() as client:
        stallwatch.guard(client, policy=TIGHT)
        derived = getattr(client, how)(timeout=20)
        assert _stalls(derived)
        stallwatch.unguard(client)
        assert not _stalls(derived, GAPS)


@pytest.mark.parametrize("how", ["with_options", "copy"])
def test_what_is_made_of_a_guarded_async_client_is_guarded(plain: Place, how: str, loop: str) -> None:
    async def story() -> None:
        async with plain.async_client() as client:
            stallwatch.guard(client, policy=TIGHT)
            derived = getattr(client, how)(timeout=20)
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                async for _ in await _create(derived, STALLS):
                    pass
            stallwatch.unguard(client)
            assert len([chunk async for chunk in await _create(derived, GAPS)]) == 4

    run_on(loop, story())


def test_the_clients_policy_beats_that_of_instrument_until_unguarded(plain: Place) -> None:
    with plain.client() as client, instrumented(idle=10) as captured:
        stallwatch.guard(client, policy=TIGHT)
        assert _stalls(client)
        assert captured.attributes()["stallwatch.policy.rule"] == "client"
        stallwatch.unguard(client)
        assert not _stalls(client, GAPS)


def test_a_guarded_client_stays_guarded_when_the_process_is_uninstrumented(plain: Place) -> None:
    with plain.client() as client, plain.client() as other:
        with instrumented(idle=10):
            stallwatch.guard(client, policy=TIGHT)
        assert _stalls(client)
        assert not _stalls(other, GAPS)
        stallwatch.unguard(client)
    assert governing.patched() == []


def test_unguard_of_a_client_that_was_not_guarded_does_nothing(plain: Place) -> None:
    with plain.client() as client:
        assert stallwatch.unguard(client) is client
        with instrumented(idle=0.2):
            stallwatch.unguard(client)
            assert _stalls(client)
    assert governing.patched() == []


@pytest.mark.parametrize("wrong", [None, object(), "client"])
def test_guard_refuses_what_is_no_client(wrong: Any) -> None:
    with pytest.raises(ValueError, match="client="):
        stallwatch.guard(wrong)
    assert governing.patched() == []


def test_what_instrument_was_told_ends_with_it_and_binds_no_guarded_client(plain: Place) -> None:
    with instrumented(mode="observe", idle=0.1, total=0.1):
        pass
    with plain.client() as client:
        stallwatch.guard(client, policy=TIGHT)
        assert _stalls(client)
        stallwatch.unguard(client)
        stallwatch.guard(client)
        assert not _stalls(client, GAPS)
        stallwatch.unguard(client)


def test_a_client_guarded_under_instrument_keeps_only_its_own_policy_after_it(plain: Place) -> None:
    with plain.client() as client:
        with instrumented(mode="observe"):
            stallwatch.guard(client, policy=TIGHT)
            assert not _stalls(client, GAPS)
        assert _stalls(client, GAPS)
        stallwatch.unguard(client)
