"""Which requests may think in silence."""

from __future__ import annotations

import re

import pytest

from stallwatch.core.reasoning import (
    HIDDEN_REASONING_MODELS,
    asks_for_hidden_reasoning,
    is_hidden_reasoning_model,
)

SILENT = [
    "o1",
    "o1-mini",
    "o3",
    "o3-deep-research-2025-06-26",
    "o4-mini",
    "O4-MINI",
    "gpt-5",
    "gpt-5-mini-2025-08-07",
    "gpt-5.2",
    "gpt-6",
    "openai/gpt-5",
    "openrouter/openai/o3",
    "codex-mini-latest",
    "computer-use-preview",
    "grok-4",
    "grok-4-fast-reasoning",
    "x-ai/grok-5",
    "gemini-2.5-pro",
    "gemini-3-pro-preview",
]
TALKING = [
    None,
    "",
    "gpt-4o",
    "gpt-4.1",
    "gpt-3.5-turbo",
    "gpt-35-turbo",
    "gpt-5-chat-latest",
    "gpt-oss-120b",
    "grok-3",
    "grok-4-1-fast-non-reasoning",
    "gemini-2.5-flash",
    "deepseek-reasoner",
    "qwen3-max",
    "llama-o1",
    "oops",
    "o",
    "o0",
    "ollama",
]


@pytest.mark.parametrize("model", SILENT)
def test_a_model_known_to_think_in_silence(model: str) -> None:
    assert is_hidden_reasoning_model(model)


@pytest.mark.parametrize("model", TALKING)
def test_a_model_that_shows_its_thoughts_or_has_none(model: str | None) -> None:
    assert not is_hidden_reasoning_model(model)


REQUESTS = [
    # (model, effort, may be silent)
    ("gpt-4o", "medium", True),
    ("gpt-4o", "high", True),
    ("gpt-4o", "xhigh", True),
    (None, "medium", True),
    ("gpt-4o", "low", False),
    ("gpt-4o", "minimal", False),
    ("gpt-4o", None, False),
    ("gpt-5", "low", True),
    ("gpt-5", None, True),
    ("gpt-5", "none", False),
    ("deepseek-reasoner", None, False),
]


@pytest.mark.parametrize(("model", "effort", "silent"), REQUESTS)
def test_a_request_is_judged_by_its_effort_and_its_model(
    model: str | None, effort: str | None, silent: bool
) -> None:
    assert asks_for_hidden_reasoning(model, effort) is silent


@pytest.mark.parametrize(("pattern", "covers"), HIDDEN_REASONING_MODELS)
def test_every_pattern_says_what_it_covers_and_covers_something(pattern: str, covers: str) -> None:
    assert covers
    assert any(re.fullmatch(pattern, model.lower()) for model in SILENT)
