"""The surfaces of the frameworks that are installed here."""

from __future__ import annotations

import importlib
import warnings

import pytest

from frameworks.installed import HERE
from frameworks.surface import Surface

__all__ = ["SURFACES"]

if not HERE:
    pytest.skip("no framework is installed here; see requirements/framework-*.txt", allow_module_level=True)


def _surfaces() -> list[Surface]:
    found: list[Surface] = []
    with warnings.catch_warnings():
        # Theirs; every framework's import has some.
        warnings.simplefilter("ignore")
        for name in HERE:
            found += importlib.import_module(f"frameworks.{name}_surfaces").SURFACES
    return found


SURFACES = _surfaces()
