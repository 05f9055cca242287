"""Which frameworks are installed here, usually one: each has an environment of its own."""

from __future__ import annotations

import importlib.util
import os

__all__ = ["FRAMEWORKS", "HERE"]

# LiteLLM fetches a list of prices when it is imported, LangChain may be told to send its traces away.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["LANGSMITH_TRACING"] = "false"

FRAMEWORKS = {
    "langchain": "langchain_openai",
    "agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "llama_index": "llama_index.llms.openai_like",
    "litellm": "litellm",
    "instructor": "instructor",
}
"""What a framework's tests are called by, and the module that tells whether it is installed."""


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


HERE = [name for name, module in FRAMEWORKS.items() if _is_here(module)]
