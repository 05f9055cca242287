"""All surfaces, and which releases of the SDK lack which: the one place where they are counted and named."""

from __future__ import annotations

from typing import Any

import pytest

from support.drivers import DRIVERS
from surfaces.surfaces_of_chat import CHAT
from surfaces.surfaces_of_clients import CLIENTS
from surfaces.surfaces_of_others import OTHERS

__all__ = ["LACKING", "SURFACES", "cells"]

SURFACES = (*CHAT, *OTHERS, *CLIENTS)

_LATE = ("beta.responses.create, stream",)
LACKING: dict[str, tuple[str, ...]] = {
    "1.66.5": (
        "responses.retrieve, stream",
        "responses.retrieve, stream, starting_after",
        "responses.stream, response_id, starting_after",
        *_LATE,
        "images.generate, stream",
        "images.edit, stream",
        "audio.transcriptions.create, stream",
    ),
    "1.109.1": _LATE,
    "2.54.0": (),
    "3.57.0": (),
}
"""By release; of other releases nothing is claimed."""


def cells() -> list[Any]:
    """Return every surface with every driver, as parameters of a test."""
    return [
        pytest.param(surface, driver, id=f"{surface.name}-{driver.kind}")
        for surface in SURFACES
        for driver in DRIVERS
        if not (surface.sync_only and driver.is_async)
    ]
