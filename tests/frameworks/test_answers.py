"""What is whole stays what it was without the guard, and what fails fails as it did: one span for each call."""

from __future__ import annotations

import pytest

from frameworks.catalog import SURFACES, patiently
from frameworks.surface import MODEL, Ask, Surface, Told, tell
from stallwatch.testing import FaultGateway
from support.bounds import LIMITS
from support.telemetry import instrumented

STREAMS = [surface for surface in SURFACES if surface.streams]
PLAIN = [surface for surface in SURFACES if not surface.streams]


def bare(surface: Surface, script: str, *, retries: int | None = 0, requests: int = 1) -> Told:
    """What the user sees without us, of a server of its own: LangChain keeps the connections of an address for good."""
    with FaultGateway() as gateway:
        gateway.script(MODEL, script)
        told = tell(surface, Ask(base_url=gateway.base_url, retries=retries))
        assert len(gateway.ledger().requests) == requests
        return told


def guarded(surface: Surface, gateway: FaultGateway, script: str, *, retries: int | None = 0) -> Told:
    """The same with us."""
    gateway.script(MODEL, script)
    return tell(surface, Ask(base_url=gateway.base_url, retries=retries))


def alike(told: Told, without: Told) -> None:
    assert told.pieces == without.pieces
    assert type(told.error) is type(without.error)
    if told.error is not None:
        assert str(told.error) == str(without.error)
        assert type(told.error.__cause__) is type(without.error.__cause__)


@pytest.mark.parametrize("surface", SURFACES, ids=str)
@pytest.mark.parametrize("model", ["healthy", "slow:tokens=2,gap=0.15"], ids=["healthy", "slow"])
def test_a_whole_answer_is_the_same(surface: Surface, model: str, gateway: FaultGateway) -> None:
    without = bare(surface, model)
    with instrumented(**LIMITS) as captured:
        told = guarded(surface, gateway, model)
    alike(told, without)
    assert told.text == ("t0 t1 t2 t3 t4 " if model == "healthy" else "t0 t1 ")
    assert len(told.pieces) == (1 if not surface.streams else told.text.count("t"))
    assert len(gateway.ledger().requests) == 1
    attributes = captured.attributes()
    assert (attributes["stallwatch.outcome"], attributes["stallwatch.attempts"]) == ("completed", 1)
    assert attributes["gen_ai.request.model"] == MODEL


@pytest.mark.parametrize("surface", SURFACES, ids=str)
@pytest.mark.parametrize("model", ["cut:tokens=2", "error-status:code=400"])
def test_what_fails_fails_as_without_us(surface: Surface, model: str, gateway: FaultGateway) -> None:
    without = bare(surface, model)
    assert without.error is not None
    with instrumented(**LIMITS) as captured:
        told = guarded(surface, gateway, model)
    alike(told, without)
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.outcome"] == "failed"


@pytest.mark.parametrize("surface", STREAMS, ids=str)
def test_an_error_in_mid_answer_comes_out_as_without_us(surface: Surface, gateway: FaultGateway) -> None:
    without = bare(surface, "error-frame:tokens=2")
    assert (without.error is not None) is surface.tells_error_frames
    with instrumented(**LIMITS) as captured:
        told = guarded(surface, gateway, "error-frame:tokens=2")
    alike(told, without)
    assert told.text == "t0 t1 "
    assert len(gateway.ledger().requests) == 1
    # Also where the framework says nothing: the span does.
    assert captured.attributes()["stallwatch.outcome"] == "failed"


@pytest.mark.parametrize("surface", PLAIN, ids=str)
def test_an_error_in_place_of_an_answer_is_told_on_the_span(surface: Surface, gateway: FaultGateway) -> None:
    without = bare(surface, "error-frame:code=server_error")
    with instrumented(**LIMITS) as captured:
        told = guarded(surface, gateway, "error-frame:code=server_error")
    alike(told, without)
    assert told.text == ""
    attributes = captured.attributes()
    assert (attributes["stallwatch.outcome"], attributes["error.type"]) == ("failed", "server_error")


@pytest.mark.parametrize("surface", patiently(SURFACES))
def test_a_rate_limit_is_overcome(surface: Surface, gateway: FaultGateway) -> None:
    gateway.script(MODEL, "error-status:code=429,retry_after=0.01", "healthy")
    with instrumented(**LIMITS) as captured:
        told = tell(surface, Ask(base_url=gateway.base_url, retries=None))
    assert (told.text, told.error) == ("t0 t1 t2 t3 t4 ", None)
    assert len(gateway.ledger().requests) == 2
    assert captured.spans[-1].attributes["stallwatch.outcome"] == "completed"
    assert sum(span.attributes["stallwatch.attempts"] for span in captured.spans) == 2


@pytest.mark.parametrize("surface", patiently(SURFACES))
def test_a_server_that_refuses_gets_no_more_requests_than_without_us(
    surface: Surface, gateway: FaultGateway
) -> None:
    # LlamaIndex waits at least 4 s before it tries again what it was not told when to.
    code = 429 if "llama" in surface.name else 503
    script = f"error-status:code={code},retry_after=0.01"
    without = Told() if surface.slow else bare(surface, script, retries=None, requests=surface.refused)
    with instrumented(**LIMITS) as captured:
        told = guarded(surface, gateway, script, retries=None)
    assert surface.slow or type(told.error) is type(without.error)
    assert told.error is not None
    assert len(gateway.ledger().requests) == surface.refused
    assert len(captured.spans) == surface.spans
    assert {span.attributes["stallwatch.outcome"] for span in captured.spans} == {"failed"}
