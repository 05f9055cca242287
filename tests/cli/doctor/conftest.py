from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test sets is in the environment."""
    for name in list(os.environ):
        if name.startswith(("STALLWATCH_", "OTEL_", "OPENAI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
