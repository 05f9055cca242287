"""LiteLLM: what of it goes through the SDK, and what its Router makes of a stall."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from frameworks.installed import HERE
from stallwatch.testing import FaultGateway
from support.bounds import LIMITS
from support.markdown import ROOT
from support.telemetry import Captured, instrumented

if "litellm" not in HERE:
    pytest.skip("litellm is not installed here", allow_module_level=True)

import litellm

MESSAGES = [{"role": "user", "content": "hi"}]

THROUGH_THE_SDK = [
    "openai",
    "azure",
    *(
        "custom_openai",
        "text-completion-openai",
        "litellm_proxy",
        "lm_studio",
        "dashscope",
        "moonshot",
        "nvidia_nim",
    ),
    *("cerebras", "perplexity", "deepinfra", "vercel_ai_gateway", "novita", "zai", "sambanova"),
]
BY_ITSELF = [
    "deepseek",
    "hosted_vllm",
    *("openrouter", "groq", "xai", "together_ai", "fireworks_ai", "mistral", "azure_ai", "databricks"),
]
BRIEFLY = ("openai", "azure", "deepseek", "hosted_vllm")
"""Those that are always looked at: each costs LiteLLM some imports."""

PROVIDERS = [
    pytest.param(name, marks=() if name in BRIEFLY else pytest.mark.slow)
    for name in (*THROUGH_THE_SDK, *BY_ITSELF)
]


@pytest.fixture
def gateway() -> Iterator[FaultGateway]:
    # Some providers' models get a longer name on the way.
    with FaultGateway(default="healthy") as started:
        yield started


def options(gateway: FaultGateway, provider: str) -> dict[str, Any]:
    azure = {"api_base": gateway.origin, "api_version": "2024-10-21"}
    where = azure if provider == "azure" else {"api_base": gateway.base_url}
    return {"model": f"{provider}/healthy", "api_key": "test", "stream": True, **where}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_goes_through_the_sdk_or_not(
    provider: str, gateway: FaultGateway, captured: Captured
) -> None:
    for _ in litellm.completion(messages=MESSAGES, **options(gateway, provider)):
        pass
    assert len(gateway.ledger().requests) == 1
    assert len(captured.spans) == (provider in THROUGH_THE_SDK)


@pytest.mark.parametrize("provider", ["openai", "azure", "hosted_vllm"])
def test_its_responses_do_not(provider: str, gateway: FaultGateway, captured: Captured) -> None:
    for _ in litellm.responses(input="hi", **options(gateway, provider)):
        pass
    assert gateway.ledger().requests[0].api == "responses"
    assert captured.spans == []


def test_the_page_lists_them_as_they_are() -> None:
    page = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
    for names, said in ((THROUGH_THE_SDK, "| yes |"), (BY_ITSELF, "| **no**")):
        row = ", ".join(f"`{name}/`" for name in names)
        assert f"| {row} {said}" in page


@pytest.mark.slow
def test_its_import_asks_the_internet_for_prices_unless_told_not_to() -> None:
    """Here, and in the page's example, it is told; that it then asks nobody is looked at in every test."""
    program = """
import os, sys

def watch(event, arguments):
    if event == "socket.getaddrinfo":
        os.write(1, f"{arguments[0]} ".encode())
        raise OSError("not from here")

sys.addaudithook(watch)
import litellm
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
        env={},
    )
    assert set(done.stdout.split()) == {"raw.githubusercontent.com"}


def router(gateway: FaultGateway) -> litellm.Router:
    entries = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{name}",
                "api_base": gateway.base_url,
                "api_key": "test",
            },
        }
        for name in ("first", "second")
    ]
    return litellm.Router(model_list=entries, fallbacks=[{"first": ["second"]}], num_retries=0)


async def ask(routed: litellm.Router, *, stream: bool) -> str:
    answer = await routed.acompletion(model="first", messages=MESSAGES, stream=stream)
    if not stream:
        return str(answer.choices[0].message.content)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])


def tell(gateway: FaultGateway, *, is_async: bool, stream: bool = True) -> str:
    if is_async:
        return asyncio.run(ask(router(gateway), stream=stream))
    answer = router(gateway).completion(model="first", messages=MESSAGES, stream=stream)
    if not stream:
        return str(answer.choices[0].message.content)
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("fault", "stream"), [("silent", True), ("never-responds", True), ("never-responds", False)]
)
def test_its_router_falls_back_after_a_stall(
    is_async: bool, fault: str, stream: bool, gateway: FaultGateway
) -> None:
    gateway.script("first", fault)
    gateway.script("second", "healthy:tokens=2")
    with instrumented(**(LIMITS if stream else {**LIMITS, "total": 0.4})) as captured:
        assert tell(gateway, is_async=is_async, stream=stream) == "t0 t1 "
    assert [request.model for request in gateway.ledger().requests] == ["first", "second"]
    assert [span.attributes["stallwatch.outcome"] for span in captured.spans] == ["stalled", "completed"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_its_router_asks_nobody_after_the_first_chunk(
    is_async: bool, gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script("first", "stall-after:tokens=2")
    with pytest.raises(openai.APITimeoutError) as caught:
        tell(gateway, is_async=is_async)
    assert isinstance(caught.value, litellm.Timeout)
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


def test_a_pause_that_is_longer_than_the_first_wait_may_be_is_not_cut(gateway: FaultGateway) -> None:
    """Its asynchronous transport takes the read timeout once, when it sends."""
    gateway.script("first", "slow:tokens=2,gap=0.8")
    with instrumented(**{**LIMITS, "first_token": 0.5, "idle": 3}) as captured:
        assert tell(gateway, is_async=True) == "t0 t1 "
    assert captured.attributes()["stallwatch.outcome"] == "completed"
