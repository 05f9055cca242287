"""One call through one surface of the SDK: who makes it, of which scenario, and what is noted."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stallwatch.testing import FaultGateway
from support.stage import Stage
from surfaces.observed import Observed

__all__ = ["Scene", "Surface", "observe"]


@dataclass(frozen=True)
class Scene:
    """Where a surface is used: the SDK in one of its kinds, a client, a model that stands for a scenario."""

    stage: Stage
    client: Any
    gateway: FaultGateway
    model: str
    told: Observed

    async def each(self, stream: Any) -> None:
        """Note each item of a stream, to its end."""
        async for item in self.stage.over(stream):
            self.told.note(item)

    async def whole(self, made: Any) -> Any:
        """Note a whole answer."""
        answer = await self.stage.of(made)
        self.told.note(answer)
        return answer


@dataclass(frozen=True)
class Surface:
    """One way in which the SDK gives an answer.

    ``guards`` says what the unit of waiting is: an event, a piece of the body, or the whole answer. ``offered`` tells
    whether the release has it.
    """

    name: str
    api: str
    guards: str
    use: Callable[[Scene], Awaitable[None]]
    offered: Callable[[Any], object] = lambda client: True
    made: Callable[[Stage, FaultGateway], Any] = lambda stage, gateway: stage.client(gateway.base_url)
    sync_only: bool = False
    stepwise: bool = True
    """Whether what has come before an error is noted."""


async def observe(
    surface: Surface,
    stage: Stage,
    client: Any,
    gateway: FaultGateway,
    model: str,
    wanted: int | None = None,
) -> Observed:
    """Use the surface once, up to as many items as are wanted, and return what could be seen."""
    told = Observed(model, wanted=wanted)
    try:
        with warnings.catch_warnings():
            # The SDK's own, of what OpenAI is about to retire.
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            await surface.use(Scene(stage, client, gateway, model, told))
    except Exception as error:
        told.fail(error)
    told.ledger(gateway)
    return told
