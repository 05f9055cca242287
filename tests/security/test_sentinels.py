"""Content, keys, credentials and query strings come out nowhere by default, whatever the surface and the end (A30)."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

import stallwatch
from security.net import ANSWER, HEADER, KEY, PASSWORD, PROMPT, QUERY, USER, Net
from stallwatch.testing import (
    CloseAbruptly,
    Delta,
    Done,
    ErrorFrame,
    Event,
    FaultGateway,
    Finish,
    Headers,
    Raw,
    Reasoning,
    Reset,
    Role,
    Silence,
    Status,
    Step,
    Token,
)
from support.drivers import Driver
from support.stage import Stage, play
from surfaces.all_surfaces import cells
from surfaces.observed import Observed
from surfaces.scenes import Scene, Surface

_QUOTES_ALL = f"{KEY} {PROMPT} http://{USER}:{PASSWORD}@host/v1?api-key={QUERY}"


def _error(**fields: Any) -> dict[str, Any]:
    return {"error": {"message": _QUOTES_ALL, "type": "t", "param": PROMPT, "code": None, **fields}}


_SPEAKS: list[Step] = [Role(), Reasoning(ANSWER), Token(ANSWER)]

ROWS: Mapping[str, list[Step]] = {
    "ok": [*_SPEAKS, Finish(), Done()],
    "ok, and what the answer says of itself quotes the key": [
        Event(
            {
                "id": KEY,
                "model": f"m-{KEY}",
                "system_fingerprint": KEY,
                "service_tier": KEY.upper(),
                "choices": [{"index": 0, "delta": {"content": ANSWER}, "finish_reason": KEY}],
            }
        ),
        Done(),
    ],
    "401 that quotes the key": [Status(401, body=_error())],
    "401 whose code and type are the key": [Status(401, body=_error(code=KEY, type=KEY, request_id=KEY))],
    "400 that echoes the prompt": [Status(400, body=_error(code="invalid_prompt"))],
    "429": [Status(429, {"x-request-id": KEY}, body=_error())],
    "503 with the key in its headers": [
        Status(503, {"x-request-id": KEY, "x-key": KEY, "retry-after": KEY}, body=_QUOTES_ALL)
    ],
    "error frame first": [ErrorFrame(_QUOTES_ALL, code=KEY, type=KEY)],
    "error frame later": [*_SPEAKS, ErrorFrame(_QUOTES_ALL, code=KEY, type=KEY)],
    "error frame beside choices": [*_SPEAKS, ErrorFrame(_QUOTES_ALL, code=KEY, type=PROMPT, style="choices")],
    "failed response": [*_SPEAKS, ErrorFrame(_QUOTES_ALL, code=KEY, type=KEY, style="failed")],
    "no JSON": [Headers(), Raw(f"data: {_QUOTES_ALL}\n\n".encode())],
    "silence": [*_SPEAKS, Silence()],
    "silence at once": [Headers({"x-request-id": KEY}), Silence()],
    "reset": [*_SPEAKS, Reset()],
    "cut": [Role(), Delta({"content": ANSWER}), CloseAbruptly()],
}
"""What the gateway does, by what it is."""

STALLS = ("silence", "silence at once")
TIGHT: dict[str, Any] = {"first_token": 0.12, "thinking": 0.12, "idle": 0.12, "total": 0.25}


@dataclass(frozen=True)
class Call:
    """One use of a surface."""

    surface: Surface
    stage: Stage
    client: Any
    gateway: FaultGateway


def secretive(client: Any) -> Any:
    """Make every request of a client carry the prompt, wherever content may stand."""
    kind: Any = type(client)

    def request(self: Any, cast_to: Any, options: Any, **more: Any) -> Any:
        body = options.json_data
        if isinstance(body, dict):
            instead = {
                "messages": [{"role": "user", "content": PROMPT}],
                **dict.fromkeys(("input", "prompt", "instructions"), PROMPT),
            }
            options.json_data = {
                **{name: instead.get(name, value) for name, value in body.items()},
                "user": PROMPT,
                "stop": [PROMPT],
                "metadata": {PROMPT: PROMPT},
            }
        return kind.request(self, cast_to, options, **more)

    client.__class__ = type(kind.__name__, (kind,), {"request": request})
    return client


def client_of(stage: Stage, gateway: FaultGateway, surface: Surface, **options: Any) -> Any:
    """A client with all that is secret, of the surface's own kind."""
    client = surface.made(stage, gateway)
    url = str(client.base_url).replace("://", f"://{USER}:{PASSWORD}@")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copied = client.copy(
            api_key=KEY,
            base_url=url,
            default_query={"api-key": QUERY},
            default_headers={"x-secret": HEADER},
            **options,
        )
    return secretive(copied)


def model_of(row: str) -> str:
    """Name a model after its row."""
    return f"row-{list(ROWS).index(row)}"


async def use(call: Call, row: str, net: Net) -> None:
    """Use the surface once, and keep the error."""
    model = model_of(row)
    tight = stallwatch.policy(**TIGHT) if row in STALLS else nullcontext()
    with tight, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        try:
            await call.surface.use(Scene(call.stage, call.client, call.gateway, model, Observed(model)))
        except Exception as error:
            net.errors.append(error.with_traceback(None))


@pytest.mark.parametrize(("surface", "driver"), cells())
def test_no_surface_tells_a_secret_however_a_call_ends(
    surface: Surface, driver: Driver, gateway: FaultGateway, net: Net
) -> None:
    if surface.sync_only:
        pytest.skip("its client is the module's own")

    async def story(stage: Stage) -> bool:
        client = client_of(stage, gateway, surface)
        if not surface.offered(client):
            return False
        async with stage.inside(client):
            call = Call(surface, stage, client, gateway)
            if stage.is_async:
                await asyncio.gather(*(use(call, row, net) for row in ROWS))
            else:
                for row in ROWS:
                    if row != left_out:
                        await use(call, row, net)
        return True

    # One after the other, the waits add up.
    left_out = STALLS[len(surface.name) % 2]
    for row, steps in ROWS.items():
        # Only these forms have reasoning.
        spoken = surface.api in ("chat", "completions", "responses")
        gateway.script(model_of(row), [step for step in steps if spoken or not isinstance(step, Reasoning)])
    if not play(driver, story):
        pytest.skip("this release does not have it")
    assert len(net.spans) >= len(ROWS) - 1
    assert "completed" in net.outcomes()
    assert {"failed", "stalled"} <= set(net.outcomes())
    net.assert_clean()
