"""A connection lost after two tokens: the caller gets what the same release raises bare; the telemetry is one for all.

Releases differ: up to 2.x the HTTP library's own error comes out of the iteration, later ones wrap it. Field case A16.
"""

from __future__ import annotations

import openai
import pytest

import stallwatch
from stallwatch.testing import FaultGateway
from support import http_library
from support.children import spawn
from support.connects import http
from support.drivers import Driver, Told
from support.telemetry import Captured

CODES = {
    "reset": ("ReadError", "ECONNRESET", "connection"),
    "cut": ("RemoteProtocolError", "REMOTE_PROTOCOL", "protocol"),
}
"""By scenario (RST, FIN without the final chunk): the transport's error, and the code and reason of its verdict."""


def _shape(told: Told) -> list[tuple[type, str, object]]:
    """The error and all its causes: class, text, and where the SDK keeps it the class of the request."""
    shape, error = [], told.error
    while error is not None:
        # Not by attribute: without a request some of these raise.
        shape.append((type(error), str(error), type(vars(error).get("request", vars(error).get("_request")))))
        error = error.__cause__
    return shape


@pytest.fixture
def bare(gateway: FaultGateway, driver: Driver, scenario: str, api: str) -> Told:
    """The same story before anything was instrumented."""
    return driver.tell(gateway.base_url, f"{scenario}:tokens=2,id=bare", api=api, options={"max_retries": 2})


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
@pytest.mark.parametrize("scenario", CODES)
def test_a_lost_connection_is_told_in_the_class_of_the_bare_release(
    bare: Told, gateway: FaultGateway, driver: Driver, captured: Captured, scenario: str, api: str
) -> None:
    told = driver.tell(
        gateway.base_url, f"{scenario}:tokens=2,id=guarded", api=api, options={"max_retries": 2}
    )
    assert _shape(told) == _shape(bare)
    assert told.text == bare.text == "t0 t1 "
    lost, code, reason = CODES[scenario]
    kind = getattr(http, lost)
    assert told.error is not None
    assert kind in (type(told.error), type(told.error.__cause__))
    assert not isinstance(told.error, stallwatch.StallwatchError)
    attributes = captured.attributes()
    assert attributes["error.type"] == "APIConnectionError"
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["stallwatch.stalled"] is False
    assert {
        "stallwatch.retry.kind": "transport",
        "stallwatch.retry.diagnosis": "retryable",
        "stallwatch.retry.reason": reason,
        "stallwatch.retry.decision": "partial_output",
        "stallwatch.retry.transport_code": code,
    }.items() <= attributes.items()
    assert captured.total("stallwatch.stalls") == 0
    # One bare, one guarded: nothing was delivered twice.
    assert len(gateway.ledger().requests) == 2


def test_the_wrapped_class_is_the_one_of_the_release(driver: Driver, gateway: FaultGateway) -> None:
    told = driver.tell(gateway.base_url, "reset:tokens=2")
    wrapped = int(openai.__version__.partition(".")[0]) >= 3
    assert isinstance(told.error, openai.APIConnectionError) is wrapped


IMPORTS = """
import json, sys
refused = []
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2].split():
            refused.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import openai
sys.meta_path.insert(0, Refuse())
from support.drivers import DRIVERS
import stallwatch
stallwatch.OpenAIInstrumentor().instrument(idle=0.2, first_token=0.2, skip_dep_check=True)
told = []
for driver in DRIVERS:
    for model in ("reset:tokens=2", "cut:tokens=2", "stall-after:tokens=2", "silent>healthy:tokens=2,gap=0"):
        seen = driver.tell(sys.argv[1], model, options={"max_retries": 1})
        told.append(seen.text)
stallwatch.OpenAIInstrumentor().uninstrument()
print(json.dumps([told, refused]))
"""


@pytest.mark.skipif(http_library.legacy(), reason="both HTTP libraries are there")
def test_the_other_http_library_is_not_asked_for(gateway: FaultGateway) -> None:
    others = "httpx httpcore" if http.__name__ == "httpx2" else "httpx2 httpcore2"
    ((told, refused),), err = spawn(IMPORTS, gateway.base_url, others).finish()
    assert told == ["t0 t1 "] * 8
    assert refused == []
    assert err == ""
