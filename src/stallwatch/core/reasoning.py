"""Which requests may think for minutes without a sign of life.

Rule: a request is *hidden-reasoning* when it asks for effort of medium or more, or when its model is known to think
without streaming its thoughts. Models that stream their reasoning (DeepSeek, Qwen, ...) do not belong here: their
thinking is visible as progress, and a wider limit would only hide their stalls. The list is a default, not a law:
a policy rule with ``hidden_reasoning`` set wins in either direction.
"""

from __future__ import annotations

import re

__all__ = ["HIDDEN_REASONING_MODELS", "asks_for_hidden_reasoning", "is_hidden_reasoning_model"]

HIDDEN_REASONING_MODELS: tuple[tuple[str, str], ...] = (
    (r"o[1-9]\d*([-:].*)?", "OpenAI o-series"),
    (r"(codex|computer-use)-.*", "OpenAI agent models built on the o-series"),
    # No further than gpt-29, because Azure spells gpt-3.5 as gpt-35.
    (r"gpt-([5-9]|[12]\d)(?!\d)(?!.*chat).*", "OpenAI gpt-5 and later, chat variants excepted"),
    (r"grok-([4-9]|[1-9]\d)(?!.*non-reasoning).*", "xAI grok-4 and later, non-reasoning variants excepted"),
    (
        r"gemini-(2\.5-pro|[3-9]|[1-9]\d).*",
        "Google Gemini 2.5 Pro and 3 and later, which may hold back even headers",
    ),
)
"""Pattern (full match on the model name without its vendor prefix, lower case) and what it covers."""

_VENDOR = re.compile(r"(?:.*/)?(?:[a-z]+[.:])*")
"""``vendor/name``, ``vendor.name`` (region first, if any), ``vendor:name`` and ``ft:name``."""

_LONG_EFFORTS = frozenset({"medium", "high", "xhigh", "max"})


def is_hidden_reasoning_model(model: str | None) -> bool:
    """Tell whether the built-in list covers ``model``; vendor prefixes are ignored."""
    if not model:
        return False
    name = _VENDOR.sub("", model.lower(), count=1)
    return any(re.fullmatch(pattern, name) for pattern, _ in HIDDEN_REASONING_MODELS)


def asks_for_hidden_reasoning(model: str | None, effort: str | None) -> bool:
    """Tell whether a request for ``model`` with reasoning ``effort`` may be silent while it thinks.

    An explicit low or minimal effort does not make a listed model loquacious, so the list still counts then;
    ``none`` switches reasoning off and is believed.
    """
    if effort == "none":
        return False
    return effort in _LONG_EFFORTS or is_hidden_reasoning_model(model)
