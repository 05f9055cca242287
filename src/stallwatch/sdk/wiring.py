"""What the patches consult: the process-wide policy layers, the recorders, and which clients are governed."""

from __future__ import annotations

import weakref
from typing import Any

from stallwatch.policy import Policy
from stallwatch.resolution import Layers, Resolver
from stallwatch.telemetry.recorder import Recorders

__all__ = ["Wiring"]


class Wiring:
    """One per process; the instrumentor and ``guard`` set it, the patches read it."""

    __slots__ = ("clients", "everywhere", "recorders", "resolver")

    def __init__(self, layers: Layers, recorders: Recorders, *, everywhere: bool) -> None:
        self.resolver = Resolver(layers)
        self.recorders = recorders
        self.everywhere = everywhere
        # Keyed by the HTTP client, which with_options() and copy() share with the client they were called on.
        self.clients: weakref.WeakKeyDictionary[Any, Policy] = weakref.WeakKeyDictionary()

    @property
    def layers(self) -> Layers:
        """The process-wide layers."""
        return self.resolver.layers

    @layers.setter
    def layers(self, layers: Layers) -> None:
        self.resolver = Resolver(layers)

    def policy_of(self, client: Any) -> Policy | None:
        """Return the policy ``guard`` gave a client, or None."""
        if not self.clients:
            return None
        http = getattr(client, "_client", None)
        return None if http is None else self.clients.get(http)
