"""Real calls against a server on loopback that misbehaves on purpose: does each end as it must?

The installed SDK makes them, synchronously and asynchronously, as the process is patched now. Deadlines are lowered to
a second. Whatever goes wrong, a call ends after some seconds: the client's own read timeout and the ends of the
scenarios see to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai

from stallwatch.cli.doctor.measured import Measured, Notes, noting, quiet
from stallwatch.cli.doctor.report import Finding, Section, ok, problem, warning
from stallwatch.core.words import Phase, Wire
from stallwatch.errors import StreamTimeoutError
from stallwatch.governing import in_force
from stallwatch.policy import Policy
from stallwatch.policy_blocks import policy
from stallwatch.testing.gateway import FaultGateway

__all__ = ["STORIES", "Story", "probe"]

LIMIT = 1.0
_PROMISED = 0.5
"""Seconds past the limit within which a call ends under load."""
_PATIENCE = 5.0
_CLOSE = 2.0
_POLICY = Policy.of(
    connect=LIMIT,
    first_token=LIMIT,
    thinking=LIMIT,
    idle=LIMIT,
    total=_PATIENCE,
    mode="enforce",
    progress="content",
    keepalive_factor=1,
    max_retries=0,
    hidden_reasoning=False,
)
_HTTP: dict[str, Any] = {"trust_env": False, "verify": False}
"""Without proxies, which may not lead back to this machine; and no authorities are loaded, for there is no TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the server does, and the stall it must become; None for none."""

    key: str
    title: str
    scenario: str
    phase: Phase | None = None
    wire: Wire | None = None


STORIES = (
    Story(key="healthy", title="healthy stream", scenario="healthy:tokens=30,gap=0.05"),
    Story(
        key="silent",
        title="200, then silence",
        scenario="silent",
        phase=Phase.FIRST_TOKEN,
        wire=Wire.DEAD_WIRE,
    ),
    Story(
        key="keepalive",
        title="keepalives only",
        scenario=f"keepalive:tokens=2,gap=0.02,every=0.2,seconds={_PATIENCE:g}",
        phase=Phase.IDLE,
        wire=Wire.KEEPALIVE_ONLY,
    ),
    Story(
        key="stall",
        title="stall in mid-answer",
        scenario="stall-after:tokens=3,gap=0.02",
        phase=Phase.IDLE,
        wire=Wire.DEAD_WIRE,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of one call: as the caller and the server saw it."""

    story: Story
    kind: str
    chunks: int
    error: BaseException | None
    seconds: float
    close: float | None
    """When the server saw the close, in seconds from the call; None for never."""
    measured: Measured | None

    @property
    def model(self) -> str:
        """The model that was asked for, one for each call."""
        return _model(self.story, self.kind)


def probe() -> Section:
    """Make the calls, all at the same time."""
    if in_force() is None:
        findings = [
            problem("probe", "calls", "not made", "mend that first", "the process is not instrumented")
        ]
    else:
        with FaultGateway() as gateway, noting() as notes:
            findings = [*map(_finding, asyncio.run(_all(gateway, notes)))]
    return Section(
        key="probe",
        title="Calls against a server on loopback",
        findings=tuple(findings),
        lead=f"Deadlines lowered to {LIMIT:g} s for these calls, no retries; nothing of them is exported.",
    )


def _model(story: Story, kind: str) -> str:
    return f"doctor-{story.key}-{kind}"


async def _all(gateway: FaultGateway, notes: Notes) -> list[Played]:
    calls = []
    for story in STORIES:
        for kind in ("sync", "async"):
            gateway.script(_model(story, kind), story.scenario)
            calls.append(_played(gateway, notes, story, kind))
    return list(await asyncio.gather(*calls))


async def _played(gateway: FaultGateway, notes: Notes, story: Story, kind: str) -> Played:
    model, heard = _model(story, kind), _Heard()
    error: BaseException | None = None
    try:
        if kind == "sync":
            await asyncio.to_thread(_read, gateway.base_url, model, heard)
        else:
            await _read_async(gateway.base_url, model, heard)
    except Exception as raised:
        error = raised
    seconds = time.monotonic() - heard.began
    return Played(
        story=story,
        kind=kind,
        chunks=len(heard.chunks),
        error=error,
        seconds=seconds,
        close=await _close_seen(gateway, model, heard.began),
        measured=notes.by_model.get(model),
    )


class _Heard:
    """When a call was made, the client being ready, and what came."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.chunks: list[Any] = []


def _options(base_url: str) -> dict[str, Any]:
    return {"base_url": base_url, "api_key": "doctor", "max_retries": 0, "timeout": _PATIENCE}


def _request(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": True}


def _read(base_url: str, model: str, heard: _Heard) -> None:
    http = openai.DefaultHttpxClient(**_HTTP)
    with quiet(), policy(_POLICY), openai.OpenAI(http_client=http, **_options(base_url)) as client:
        heard.began = time.monotonic()
        heard.chunks.extend(client.chat.completions.create(**_request(model)))


async def _read_async(base_url: str, model: str, heard: _Heard) -> None:
    http = openai.DefaultAsyncHttpxClient(**_HTTP)
    with quiet(), policy(_POLICY):
        async with openai.AsyncOpenAI(http_client=http, **_options(base_url)) as client:
            heard.began = time.monotonic()
            async for chunk in await client.chat.completions.create(**_request(model)):
                heard.chunks.append(chunk)  # what came before an error counts


async def _close_seen(gateway: FaultGateway, model: str, began: float) -> float | None:
    def closed(ledger: Any) -> bool:
        return any(request.closed_how in ("fin", "rst") for request in ledger.for_model(model))

    try:
        ledger = await gateway.wait_for_async(closed, _CLOSE)
    except Exception:
        return None
    (request, *_) = ledger.for_model(model)
    return None if request.peer_closed_at is None else request.peer_closed_at - began


def _finding(played: Played) -> Finding:
    story, error = played.story, played.error
    key, title = f"probe.{story.key}.{played.kind}", f"{story.title}, {played.kind}"
    measured = played.measured
    data = {
        "outcome": None if measured is None else measured.outcome,
        "interrupt": None if measured is None else measured.interrupt,
        "seconds": round(played.seconds, 3),
        "chunks": played.chunks,
        "server_saw_close_after": None if played.close is None else round(played.close, 3),
        "error": None if error is None else type(error).__name__,
    }
    wrong = list(_differences(played))
    if wrong:
        return problem(
            key,
            title,
            _told(played),
            "look at the sections above for what is missing or not patched; if all is well there, report this",
            "; ".join(wrong),
            **data,
        )
    close = "" if played.close is None else f"; the server saw the close after {played.close:.2f} s"
    if isinstance(error, StreamTimeoutError):
        detail = f"phase {error.phase}, {error.wire}{close}"
        if error.waited > LIMIT + _PROMISED:
            return warning(
                key,
                title,
                _told(played),
                "try again on a machine that is less busy",
                f"late; {detail}",
                **data,
            )
        return ok(key, title, _told(played), detail, **data)
    return ok(key, title, _told(played), f"{played.chunks} chunks{close}", **data)


def _told(played: Played) -> str:
    error = played.error
    if error is None:
        return f"completed in {played.seconds:.2f} s"
    if isinstance(error, StreamTimeoutError):
        return f"ended after {error.waited:.2f} s of silence"
    return f"{type(error).__name__} after {played.seconds:.2f} s"


def _differences(played: Played) -> Iterator[str]:
    """Yield what is not as it must be."""
    story, error, measured = played.story, played.error, played.measured
    if measured is None:
        yield "the call was not watched"
    elif measured.chunks != played.chunks:
        yield f"{measured.chunks} chunks were counted, of {played.chunks}"
    if story.phase is None:
        if error is not None:
            yield "a healthy stream must be let be"
    elif not isinstance(error, StreamTimeoutError):
        yield "it must end with StreamTimeoutError"
    elif (error.phase, error.wire) != (story.phase, story.wire):
        yield f"told as phase {error.phase}, {error.wire}; it is phase {story.phase}, {story.wire}"
    if played.close is None:
        yield "the server has not seen the connection close"
