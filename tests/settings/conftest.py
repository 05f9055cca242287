"""Loading settings, and the policy files they may come from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from stallwatch.resolution import Layers
from stallwatch.settings import load


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Any:
    """Load, and return the layers with the texts that were logged meanwhile."""
    caplog.set_level(logging.DEBUG, logger="stallwatch")

    def run(*args: Any, **kwargs: Any) -> tuple[Layers, list[str]]:
        caplog.clear()
        layers = load(*args, **kwargs)
        assert all(record.levelno == logging.WARNING for record in caplog.records)
        assert all(record.name == "stallwatch" for record in caplog.records)
        return layers, caplog.messages[:]

    return run


class Files:
    """Writes policy files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, text: str | bytes) -> dict[str, str]:
        path = self._folder / "policy.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"STALLWATCH_POLICY_FILE": str(path)}


@pytest.fixture
def policy_file(tmp_path: Path) -> Files:
    return Files(tmp_path)
