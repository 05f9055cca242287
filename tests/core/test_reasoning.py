"""Which requests may think in silence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.core.reasoning import (
    HIDDEN_REASONING_MODELS,
    asks_for_hidden_reasoning,
    is_hidden_reasoning_model,
)

SILENT = [
    "o1",
    "o1-preview",
    "o1-mini-2024-09-12",
    "o3",
    "o3-pro",
    "o3-deep-research-2025-06-26",
    "o4-mini",
    "o10-mini",
    "codex-mini-latest",
    "computer-use-preview",
    "gpt-5-mini-2025-08-07",
    "gpt-5",
    "gpt-5-mini",
    "gpt-5-nano-2025-08-07",
    "gpt-5.1",
    "gpt-5.2-pro",
    "gpt-5-codex",
    "gpt-6",
    "gpt-10-mini",
    "grok-4",
    "grok-4-0709",
    "grok-4-fast-reasoning",
    "grok-4.5",
    "grok-5",
    "gemini-2.5-pro",
    "gemini-3-flash-preview",
    "gemini-3.1-pro",
    "gemini-3-pro-preview",
    # As gateways and clouds spell them.
    "openai/gpt-5",
    "openrouter/openai/o3-mini",
    "x-ai/grok-5",
    "models/gemini-2.5-pro",
    "azure/eu-west/gpt-5-mini",
    "openai:gpt-5",
    "openai/o3:nitro",
    "o3:online",
    "xai.grok-4",
    "us.openai.gpt-5",
    "ft:o4-mini-2025-04-16:acme::abc123",
    "GPT-5",
    "OpenAI/O3-Mini",
]

TALKATIVE = [
    "",
    None,
    "gpt-3.5-turbo",
    "gpt-35-turbo",
    "gpt-4",
    "gpt-4-turbo",
    "gpt-4o",
    "gpt-4o-mini",
    "gpt-4.1",
    "gpt-4.5-preview",
    "gpt-5-chat-latest",
    "gpt-5.2-chat-latest",
    "openai/gpt-5-chat",
    "gpt-oss-120b",
    "gpt-image-1",
    "gpt-realtime",
    "chatgpt-4o-latest",
    "ft:gpt-4o-mini:acme:o3:abc123",
    "grok-2-1212",
    "grok-3-mini",
    "grok-4-fast-non-reasoning",
    "grok-4-1-fast-non-reasoning",
    "x-ai/grok-4.20-non-reasoning",
    "grok-code-fast-1",
    "gemini-1.5-pro",
    "gemini-2.0-flash",
    "gemini-2.5-flash",
    "deepseek-reasoner",
    "deepseek/deepseek-r1",
    "qwen3-235b-a22b-thinking",
    "qwq-plus",
    "kimi-k2-thinking",
    "glm-4.6",
    "magistral-medium",
    "claude-opus-4-5",
    "omni-moderation-latest",
    "o1x",
    "o",
    "o0",
    "oops",
    "ollama",
    "llama-o1",
    "qwen3-max",
    "foo-o1",
    "my-gpt-5",
    "text-embedding-3-large",
]


@pytest.mark.parametrize("model", SILENT)
def test_may_think_in_silence(model: str) -> None:
    assert is_hidden_reasoning_model(model)
    assert asks_for_hidden_reasoning(model, None)


@pytest.mark.parametrize("model", TALKATIVE)
def test_streams_its_thoughts_or_has_none(model: str | None) -> None:
    assert not is_hidden_reasoning_model(model)
    assert not asks_for_hidden_reasoning(model, None)


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("gpt-4o", "medium", True),
        ("gpt-4o", "high", True),
        ("gpt-4o", "xhigh", True),
        ("gpt-4o", "max", True),
        ("my-deployment", "medium", True),
        (None, "high", True),
        ("gpt-4o", "low", False),
        ("deepseek-reasoner", "low", False),
        ("gpt-4o", "minimal", False),
        ("gpt-4o", "unheard-of", False),
        ("o3", "low", True),
        ("gpt-5", "minimal", True),
        ("gpt-5", "unheard-of", True),
        ("gpt-5.1", "none", False),
        ("o3", "none", False),
        ("gpt-5-chat-latest", "medium", True),
    ],
)
def test_the_effort_asked_for_counts(model: str | None, effort: str, expected: bool) -> None:
    assert asks_for_hidden_reasoning(model, effort) is expected


def test_every_pattern_is_documented_and_used() -> None:
    for pattern, covers in HIDDEN_REASONING_MODELS:
        assert covers
        assert any(re.fullmatch(pattern, model) for model in SILENT if model), pattern


@given(st.text())
def test_any_name_gets_an_answer(model: str) -> None:
    assert is_hidden_reasoning_model(model) in (True, False)


@given(
    st.sampled_from([model for model in SILENT if "/" not in model]),
    st.from_regex(r"[a-zA-Z0-9._-]{1,12}", fullmatch=True),
)
def test_a_vendor_prefix_changes_nothing(model: str, vendor: str) -> None:
    assert is_hidden_reasoning_model(f"{vendor}/{model}")
