"""What users hold answers every question as the bare SDK's objects do, with ``instrument()`` and with ``guard()``."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import openai._base_client as base
import openai._response as responses
import openai._streaming as streaming
import pytest

import stallwatch
from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, MESSAGES, Driver
from support.stage import Stage, play
from support.telemetry import instrumented
from surfaces.identity import told_of
from surfaces.surfaces_of_clients import own_client

MODEL = "healthy:tokens=2,gap=0"

CHANGED_FUNCTIONS = {
    "request",
    "_build_request",
    "_should_retry",
    "_calculate_retry_timeout",
    "_sleep_for_retry",
    "_retry_request",
    "_process_response",
    "__init__",
}
"""The functions at the seams: they stay the objects they were, but other code runs in them."""

ALLOWED = {
    # Of these functions themselves: the code is ours, so their signature must be said.
    "function": {"dir", "vars", "source", "file", "class of .__signature__"},
    # What is read through: private, but for ``response.stream``, which is still the HTTP library's kind of stream.
    "stream": {"class of ._iterator"},
    "response": {"class of .stream"},
    # Where the call travels through the HTTP library.
    "request": {"extensions"},
}
"""All questions whose answers differ, by kind of object. docs/surfaces.md tells the same."""


def kind_of(name: str) -> str | None:
    """Return which row of ALLOWED counts for an object, by the name the session gave it."""
    owner, _, attribute = name.rpartition(".")
    if attribute in CHANGED_FUNCTIONS and (owner == "client" or owner[:1].isupper()):
        return "function"
    last = name.removesuffix(", read").removesuffix(", begun")
    if last in ("stream", "raw stream"):
        return "stream"
    return last.rpartition(".")[2] if last.endswith((".response", ".response.request")) else None


async def held_by_users(stage: Stage, client: Any) -> dict[str, dict[str, str]]:
    """Return what can be asked of everything a program holds in one session, by name."""
    told: dict[str, dict[str, str]] = {}

    def ask(name: str, thing: Any) -> Any:
        told[name] = told_of(thing)
        return thing

    create = client.chat.completions.create
    ask("client", client)
    ask("client.with_options()", client.with_options(timeout=3))
    ask("client.chat.completions", client.chat.completions)
    ask("client.responses", client.responses)
    ask("client.chat.completions.create", create)
    for name in sorted(name for name in dir(type(client)) if not name.startswith("__")):
        if callable(getattr(type(client), name)):
            ask(f"client.{name}", getattr(client, name))

    stream = await stage.of(create(model=MODEL, messages=MESSAGES, stream=True))
    await stream_told(stage, ask, "stream", stream)

    raw = await stage.of(
        client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, stream=True)
    )
    ask("raw response", raw)
    parsed = raw.parse()
    await stream_told(stage, ask, "raw stream", parsed)
    ask("raw response, read", raw)

    manager = client.chat.completions.with_streaming_response.create(
        model=MODEL, messages=MESSAGES, stream=True
    )
    ask("streaming manager", manager)
    async with stage.inside(manager) as streamed:
        ask("streaming response", streamed)
        lines = ask("streaming response.iter_lines()", streamed.iter_lines())
        await stage.all(lines)
        ask("streaming response, read", streamed)

    completions = (
        client.chat.completions
        if hasattr(client.chat.completions, "stream")
        else client.beta.chat.completions
    )
    for name, helper in (
        ("chat helper", completions.stream(model=MODEL, messages=MESSAGES)),
        ("responses helper", client.responses.stream(model=MODEL, input="hello")),
    ):
        ask(f"{name} manager", helper)
        async with stage.inside(helper) as entered:
            ask(name, entered)
            await stage.all(entered)
            ask(f"{name}, read", entered)

    whole = await stage.of(create(model=MODEL, messages=MESSAGES))
    ask("completion", whole)
    raw = await stage.of(client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES))
    ask("raw completion", raw)
    ask("raw completion's response", raw.http_response)
    page = client.models.list()
    ask("page to come", page)
    ask("page", await stage.of(page))
    return told


async def stream_told(stage: Stage, ask: Callable[[str, Any], Any], name: str, stream: Any) -> None:
    ask(name, stream)
    ask(f"{name}.response", stream.response)
    ask(f"{name}.response.request", stream.response.request)
    ask(f"{name}.close", stream.close)
    ask(f"iter({name})", stage.over(stream) if stage.is_async else iter(stream))
    ask(f"{name}'s chunk", await stage.step(stream))
    ask(f"{name}, begun", stream)
    await stage.all(stream)
    ask(f"{name}, read", stream)
    ask(f"{name}.response, read", stream.response)


def of_the_sdk() -> dict[str, dict[str, str]]:
    """Return what can be asked of the SDK's own classes and functions."""
    told: dict[str, dict[str, str]] = {}
    for owner in (
        openai.OpenAI,
        openai.AsyncOpenAI,
        openai.AzureOpenAI,
        openai.AsyncAzureOpenAI,
        base.BaseClient,
        base.SyncAPIClient,
        base.AsyncAPIClient,
        streaming.Stream,
        streaming.AsyncStream,
        responses.APIResponse,
        responses.AsyncAPIResponse,
    ):
        told[owner.__name__] = told_of(owner)
        for name, value in vars(owner).items():
            if callable(value):
                told[f"{owner.__name__}.{name}"] = told_of(getattr(owner, name))
    return told


@contextmanager
def bare(client: Any) -> Iterator[None]:
    yield


@contextmanager
def instrumented_process(client: Any) -> Iterator[None]:
    with instrumented():
        yield


@contextmanager
def guarded(client: Any) -> Iterator[None]:
    stallwatch.guard(client)
    try:
        yield
    finally:
        stallwatch.unguard(client)


def ask_all(gateway: FaultGateway, driver: Driver, make: Any, how: Any) -> dict[str, dict[str, str]]:
    async def story(stage: Stage) -> dict[str, dict[str, str]]:
        async with stage.inside(make(stage, gateway)) as client:
            with how(client):
                return {**of_the_sdk(), **await held_by_users(stage, client)}

    gateway.reset_ledger()
    with warnings.catch_warnings():
        # Of what is asked for and never awaited.
        warnings.simplefilter("ignore")
        told = play(driver, story)
        gc.collect()
    return told


MAKES = {
    "client": lambda stage, gateway: stage.client(gateway.base_url),
    "a class of one's own": own_client,
    "azure": lambda stage, gateway: stage.azure(gateway),
}


_bare: dict[tuple[str, str], dict[str, dict[str, str]]] = {}


def of_the_bare_sdk(gateway: FaultGateway, driver: Driver, make: str) -> dict[str, dict[str, str]]:
    """Return the bare SDK's answers, which do not change; its classes keep what is asked the first time."""
    if not _bare:
        for each in DRIVERS:
            for kind in MAKES.values():
                ask_all(gateway, each, kind, bare)
    if (driver.kind, make) not in _bare:
        _bare[driver.kind, make] = ask_all(gateway, driver, MAKES[make], bare)
    return _bare[driver.kind, make]


# A copy of a client fails half way, and the half-made HTTP client complains when it goes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
@pytest.mark.parametrize("how", [instrumented_process, guarded])
@pytest.mark.parametrize("make", MAKES)
def test_every_answer_is_the_bare_sdks(gateway: FaultGateway, driver: Driver, make: str, how: Any) -> None:
    expected = of_the_bare_sdk(gateway, driver, make)
    told = ask_all(gateway, driver, MAKES[make], how)
    assert told.keys() == expected.keys()
    different = {
        (name, question): (expected[name].get(question, "")[:300], told[name].get(question, "")[:300])
        for name in expected
        for question in {*expected[name], *told[name]}
        if told[name].get(question) != expected[name].get(question)
        and question not in ALLOWED.get(kind_of(name) or "", ())
    }
    assert different == {}


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_nothing_is_allowed_that_does_not_differ(gateway: FaultGateway, driver: Driver) -> None:
    expected = of_the_bare_sdk(gateway, driver, "client")
    told = ask_all(gateway, driver, MAKES["client"], instrumented_process)
    found: dict[str, set[str]] = {}
    for name in expected:
        for question in {*told[name], *expected[name]}:
            if told[name].get(question) != expected[name].get(question):
                found.setdefault(kind_of(name) or name, set()).add(question)
    assert found == ALLOWED


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_afterwards_every_answer_is_the_old_one(gateway: FaultGateway, driver: Driver) -> None:
    expected = of_the_bare_sdk(gateway, driver, "client")
    ask_all(gateway, driver, MAKES["client"], instrumented_process)
    assert ask_all(gateway, driver, MAKES["client"], bare) == expected
