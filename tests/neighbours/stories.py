"""What happens to a call, and what everybody says of it: the caller, the other tool, and we."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai

import stallwatch
from neighbours.tools import Tool, capture, untouched
from stallwatch.testing import FaultGateway
from support.drivers import MESSAGES, Driver
from support.stage import Stage, play

__all__ = ["APIS", "STORIES", "Account", "Story", "ours", "tell"]

APIS = ("chat", "responses")

OURS = "stallwatch"
IDLE = 0.2
"""Our limit; without us the client's own read timeout stands in for it."""


@dataclass
class Account:
    """What a call has left behind."""

    chunks: list[str] = field(default_factory=list)
    error: str | None = None
    spans: list[tuple[Any, ...]] = field(default_factory=list)
    """Of others: name, scope, status, recorded error, events that tell of one."""
    own_spans: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    """Our attributes on a span of another's."""
    metrics: dict[tuple[str, str], float] = field(default_factory=dict)
    """By scope and name, how often it was recorded."""
    logged: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Story:
    """``model`` is the gateway's scenario; ``read`` is what the caller does with the stream, None without one."""

    name: str
    model: str
    outcome: str
    read: Callable[[Stage, Any, Account], Awaitable[None]] | None
    retries: int = 0
    stalls: bool = False
    only_async: bool = False


async def _to_the_end(stage: Stage, stream: Any, account: Account) -> None:
    async for chunk in stage.over(stream):
        account.chunks.append(_text(chunk))


async def _closed(stage: Stage, stream: Any, account: Account) -> None:
    for _ in range(2):
        account.chunks.append(_text(await stage.step(stream)))
    await stage.of(stream.close())


async def _left(stage: Stage, stream: Any, account: Account) -> None:
    async with stage.inside(stream) as inner:
        async for chunk in stage.over(inner):
            account.chunks.append(_text(chunk))
            if len(account.chunks) == 2:
                break


async def _cancelled(stage: Stage, stream: Any, account: Account) -> None:
    task = asyncio.ensure_future(_to_the_end(stage, stream, account))
    while len(account.chunks) < 3:
        await asyncio.sleep(0.005)
    task.cancel()
    await task


STORIES = (
    Story("not streamed", "healthy:tokens=3,gap=0", "completed", None),
    Story("refused", "error-status:code=400", "failed", None),
    Story("streamed", "healthy:tokens=3,gap=0", "completed", _to_the_end),
    Story("refused stream", "error-status:code=400", "failed", _to_the_end),
    Story("retried", "flaky:times=1,tokens=3,gap=0,retry_after_ms=1", "completed", _to_the_end, retries=1),
    Story("broken", "reset:tokens=2,gap=0", "failed", _to_the_end),
    Story("stalled", "stall-after:tokens=2,gap=0", "stalled", _to_the_end, stalls=True),
    Story("stalled before headers", "never-responds", "stalled", _to_the_end, stalls=True),
    Story("closed", "healthy:tokens=9,gap=0.02", "closed_early", _closed),
    Story("left", "healthy:tokens=9,gap=0.02", "closed_early", _left),
    Story("cancelled", "stall-after:tokens=3,gap=0", "cancelled", _cancelled, only_async=True),
)


@contextmanager
def ours(**settings: Any) -> Iterator[None]:
    """Be instrumented for the block, telling of the common capture."""
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(
        tracer_provider=capture().tracer_provider,
        meter_provider=capture().meter_provider,
        skip_dep_check=True,
        **settings,
    )
    try:
        yield
    finally:
        instrumentor.uninstrument()


def tell(
    gateway: FaultGateway,
    driver: Driver,
    api: str,
    story: Story,
    tool: Tool,
    *,
    order: str,
    caplog: Any,
) -> Account:
    """Play a story beside a tool; ``order`` says who came first, or that we are not there at all (``alone``)."""
    captured, account = capture(), Account()
    captured._spans.clear()
    gateway.reset_ledger()
    before = _counts()
    caplog.clear()
    settings: dict[str, Any] = {}
    if story.stalls:
        settings = {"idle": IDLE, "first_token": IDLE, "thinking": IDLE}
    with untouched():
        try:
            if order in ("theirs", "alone"):
                tool.on(captured)
            if order == "alone":
                play(driver, lambda stage: _played(stage, gateway, api, story, account, alone=True))
            else:
                with ours(**settings):
                    if order == "ours":
                        tool.on(captured)
                    play(driver, lambda stage: _played(stage, gateway, api, story, account))
            # What tools have left to finalisers; the young objects only, there are thousands of old ones.
            gc.collect(1)
        finally:
            tool.off()
    _look(account, before)
    account.logged = [
        f"{record.name}: {record.getMessage()}"
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name != "asyncio"
    ]
    return account


async def _played(
    stage: Stage, gateway: FaultGateway, api: str, story: Story, account: Account, *, alone: bool = False
) -> None:
    timeout = IDLE if story.stalls and alone else 30.0
    request: dict[str, Any] = {"model": story.model}
    if story.read is not None:
        request["stream"] = True
    # Not used, and loading the system's authorities takes longer than a story.
    http = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
    client = stage.client(
        gateway.base_url, max_retries=story.retries, timeout=timeout, http_client=http(verify=False)
    )
    async with stage.inside(client):
        try:
            if api == "chat":
                answer = await stage.of(client.chat.completions.create(messages=MESSAGES, **request))
            else:
                answer = await stage.of(client.responses.create(input="Tell me a story.", **request))
            if story.read is None:
                account.chunks.append(_text(answer))
            else:
                await story.read(stage, answer, account)
        except (Exception, asyncio.CancelledError) as error:
            account.error = type(error).__name__


_CHANGING = re.compile(r'gateway\d+|"(?:created|created_at|completed_at)": [\d.]+')


def _text(chunk: Any) -> str:
    """A chunk as JSON, without what differs from one answer to the next."""
    plain = json.dumps(chunk.model_dump(), default=str, sort_keys=True)
    return f"{type(chunk).__name__} {_CHANGING.sub('', plain)}"


def _look(account: Account, before: dict[tuple[str, str], float]) -> None:
    for span in capture().spans:
        attributes = dict(span.attributes or {})
        scope = "" if span.instrumentation_scope is None else span.instrumentation_scope.name
        if scope == OURS:
            account.own_spans += 1
        else:
            account.data.update({k: v for k, v in attributes.items() if k.startswith("stallwatch.")})
            account.spans.append(
                (
                    span.name,
                    scope,
                    span.status.status_code.name,
                    attributes.get("error.type"),
                    sorted(
                        str((event.attributes or {}).get("exception.type"))
                        for event in span.events
                        if event.name == "exception"
                    ),
                )
            )
    after = _counts()
    account.metrics = {
        key: count - before.get(key, 0) for key, count in after.items() if count != before.get(key, 0)
    }


def _counts() -> dict[tuple[str, str], float]:
    data = capture()._reader.get_metrics_data()
    if data is None:
        return {}
    return {
        (scope.scope.name, metric.name): sum(
            point.count if hasattr(point, "count") else point.value for point in metric.data.data_points
        )
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if not metric.name.startswith(("stallwatch.streams.", "stallwatch.stream.oldest", "otel."))
    }
