"""Test your own program against a model gateway that misbehaves on purpose.

`FaultGateway` is a local server that speaks the OpenAI HTTP forms: chat completions, legacy completions,
Responses, embeddings, images, audio and runs, their Azure addresses included. The model name in the request
chooses what goes wrong::

    import openai
    from stallwatch.testing import FaultGateway

    with FaultGateway() as gateway:
        client = openai.OpenAI(base_url=gateway.base_url, api_key="test")
        stream = client.chat.completions.create(
            model="stall-after:tokens=5,gap=0.05",
            messages=[{"role": "user", "content": "hello"}],
            stream=True,
        )
        ...  # your program's way of reading it
        gateway.wait_for(lambda ledger: ledger.requests[0].peer_closed_at)

``stallwatch gateway --list`` shows all scenarios. A name may hold one scenario per attempt
(``silent>healthy``), and `FaultGateway.script` gives any name, also that of a real model, a scenario or steps
of your own::

    gateway.script("gpt-4o", [Role(), Token("Hel"), Silence()], "healthy")

The ledger (`FaultGateway.ledger`, or as JSON under ``gateway.ledger_url``) says what was received, what was
sent and when, and when and how each connection went away.

With pytest the fixture ``stall_gateway`` is a started gateway::

    def test_my_app_gives_up_on_a_silent_model(stall_gateway):
        answer = my_app.ask("hello", base_url=stall_gateway.base_url, model="silent")
        assert answer.failed
        stall_gateway.wait_for(lambda ledger: ledger.open_connections == 0)

`refusing_address`, `unaccepting_server` and `mute_server` fail before HTTP begins. `FakeClock`,
`ScriptedStream` and `sse_events` are for unit tests without sockets.

Names load on first use, so that the pytest plugin costs a test run nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallwatch.testing.clock import FakeClock
    from stallwatch.testing.gateway import FaultGateway
    from stallwatch.testing.ledger import ConnectionRecord, Ledger, RequestRecord, Sent, SentKind
    from stallwatch.testing.network import Address, mute_server, refusing_address, unaccepting_server
    from stallwatch.testing.scenarios import scenario_table
    from stallwatch.testing.scripted import Pause, ScriptedStream, sse_events
    from stallwatch.testing.steps import (
        CloseAbruptly,
        CloseDelimited,
        Comment,
        Comments,
        Delta,
        Done,
        DripHeaders,
        EmptyDelta,
        Eof,
        ErrorFrame,
        Event,
        Finish,
        Headers,
        Heartbeats,
        PromptFilter,
        Raw,
        Reasoning,
        Refusal,
        RefuseHeaders,
        Reset,
        Role,
        Silence,
        Status,
        Step,
        Token,
        Tokens,
        ToolCall,
        Usage,
        Wait,
    )

__all__ = [
    "Address",
    "CloseAbruptly",
    "CloseDelimited",
    "Comment",
    "Comments",
    "ConnectionRecord",
    "Delta",
    "Done",
    "DripHeaders",
    "EmptyDelta",
    "Eof",
    "ErrorFrame",
    "Event",
    "FakeClock",
    "FaultGateway",
    "Finish",
    "Headers",
    "Heartbeats",
    "Ledger",
    "Pause",
    "PromptFilter",
    "Raw",
    "Reasoning",
    "Refusal",
    "RefuseHeaders",
    "RequestRecord",
    "Reset",
    "Role",
    "ScriptedStream",
    "Sent",
    "SentKind",
    "Silence",
    "Status",
    "Step",
    "Token",
    "Tokens",
    "ToolCall",
    "Usage",
    "Wait",
    "mute_server",
    "refusing_address",
    "scenario_table",
    "sse_events",
    "unaccepting_server",
]

_ELSEWHERE = {
    "clock": ("FakeClock",),
    "gateway": ("FaultGateway",),
    "ledger": ("ConnectionRecord", "Ledger", "RequestRecord", "Sent", "SentKind"),
    "network": ("Address", "mute_server", "refusing_address", "unaccepting_server"),
    "scenarios": ("scenario_table",),
    "scripted": ("Pause", "ScriptedStream", "sse_events"),
}
_HOME = {name: module for module, names in _ELSEWHERE.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME.get(name, 'steps')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
