"""Who else instruments: found by what is patched, whoever did it, and told once."""

from __future__ import annotations

from functools import partial, wraps
from types import ModuleType
from typing import Any

import openai
import openai.resources.chat.completions as chat
import pytest
from wrapt import FunctionWrapper

from stallwatch.sdk.neighbours import Tool, who_else_instruments
from support.telemetry import instrumented

CREATE = "openai.resources.chat.completions.completions.Completions.create"


def _function_of(module: str) -> Any:
    """A wrapper as a module of this name would define it."""
    made = ModuleType(module)
    exec("def wrapper(wrapped, instance, args, kwargs):\n    return wrapped(*args, **kwargs)", vars(made))
    return made.wrapper


def _wrap(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrapper: Any) -> None:
    monkeypatch.setattr(owner, name, FunctionWrapper(getattr(owner, name), wrapper))


def _active() -> dict[str, Tool]:
    # Where the tests' clients are given a legacy HTTP library, the tests are a tool themselves.
    return {tool.name: tool for tool in who_else_instruments() if tool.active and tool.name != "support"}


def test_without_other_tools_nobody_is_active_and_we_are_not_among_them() -> None:
    with instrumented():
        assert _active() == {}


@pytest.mark.parametrize(
    ("module", "name", "distribution"),
    [
        ("opentelemetry.instrumentation.genai.openai", "OpenTelemetry GenAI", "genai-openai"),
        ("opentelemetry.instrumentation.openai_v2.patch", "OpenTelemetry OpenAI v2", "openai-v2"),
        ("opentelemetry.instrumentation.openai.utils", "OpenLLMetry", "instrumentation-openai"),
        ("openinference.instrumentation.openai._request", "OpenInference", "openinference"),
        ("langfuse.openai", "Langfuse", "langfuse"),
        ("openlit.instrumentation.openai.openai", "OpenLIT", "openlit"),
    ],
)
def test_a_known_tool_is_named_with_its_patches(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, distribution: str
) -> None:
    _wrap(monkeypatch, chat.Completions, "create", _function_of(module))
    (tool,) = _active().values()
    assert (tool.name, tool.patches, tool.below) == (name, (CREATE,), False)
    assert tool.distribution is not None
    assert distribution in tool.distribution


def test_an_unknown_tool_is_named_for_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    _wrap(monkeypatch, chat.Completions, "create", partial(_function_of("inhouse.tracing.llm")))
    assert _active()["inhouse"] == Tool(
        name="inhouse", distribution=None, version=None, below=False, patches=(CREATE,)
    )


def test_each_of_several_tools_on_one_method_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("langfuse.openai", "inhouse", "openinference.instrumentation.openai"):
        _wrap(monkeypatch, chat.Completions, "create", _function_of(module))
    assert {name: tool.patches for name, tool in _active().items()} == {
        "Langfuse": (CREATE,),
        "OpenInference": (CREATE,),
        "inhouse": (CREATE,),
    }


def test_a_plain_function_that_passes_itself_off_as_the_sdks_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impostor = wraps(openai.OpenAI.request)(_function_of("logfire._internal.integrations.llm_providers.x"))
    monkeypatch.setattr(openai.OpenAI, "request", impostor, raising=False)
    assert _active()["Logfire"].patches == ("openai.OpenAI.request",)


def test_what_instruments_the_http_library_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = type(openai.OpenAI(api_key="sk-test")._client._transport)
    _wrap(
        monkeypatch,
        transport,
        "handle_request",
        _function_of("opentelemetry.instrumentation.httpx"),
    )
    tool = _active()["OpenTelemetry HTTPX"]
    assert tool.below
    assert tool.patches == (f"{transport.__module__}.HTTPTransport.handle_request",)


def test_a_tool_that_is_only_installed_is_told_without_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    import stallwatch.sdk.neighbours as module

    monkeypatch.setattr(module, "version", lambda _: "1.2.3")
    tools = who_else_instruments()
    assert {"Langfuse", "OpenInference", "OpenTelemetry HTTPX"} <= {tool.name for tool in tools}
    assert all(tool.version == "1.2.3" and not tool.active for tool in tools)


def test_asking_imports_nothing_of_the_sdk() -> None:
    # Optional packages stand behind proxies that import them when they are looked at.
    import sys

    before = set(sys.modules)
    who_else_instruments()
    assert {name for name in set(sys.modules) - before if not name.startswith("importlib")} == set()
