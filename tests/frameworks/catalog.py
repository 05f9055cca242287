"""The surfaces of the frameworks that are installed here."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

from frameworks.installed import HERE
from frameworks.surface import Surface

__all__ = ["SURFACES", "patiently"]

# instructor's answers are objects; it has tests of its own.
IN_TEXT = [name for name in HERE if name != "instructor"]

if not IN_TEXT:
    pytest.skip("no framework that answers in text is installed here", allow_module_level=True)


def _surfaces() -> list[Surface]:
    found: list[Surface] = []
    with warnings.catch_warnings():
        # Theirs; every framework's import has some.
        warnings.simplefilter("ignore")
        for name in IN_TEXT:
            found += importlib.import_module(f"frameworks.{name}_surfaces").SURFACES
    return found


def patiently(surfaces: list[Surface]) -> list[Any]:
    """The surfaces as parameters of a test in which they try again; those that wait for seconds are marked."""
    return [
        pytest.param(each, marks=pytest.mark.slow if each.slow else (), id=str(each)) for each in surfaces
    ]


SURFACES = _surfaces()
