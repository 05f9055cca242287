"""Who is governed: every client (``OpenAIInstrumentor``), or single ones (``guard``).

Both share one set of patches, installed while anybody needs them: ``uninstrument`` takes them away unless guarded
clients live, ``unguard`` of the last one does unless the process is instrumented.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

from opentelemetry.metrics import NoOpMeter, get_meter
from opentelemetry.trace import NoOpTracer, get_tracer

from stallwatch import settings
from stallwatch.catalogue import SCOPE
from stallwatch.foreign_errors import told_of
from stallwatch.logs import log
from stallwatch.policy import Policy
from stallwatch.resolution import Layers
from stallwatch.runtime import registry
from stallwatch.sdk.patches import Patches
from stallwatch.sdk.wiring import Wiring
from stallwatch.telemetry.metrics import MetricRecorder
from stallwatch.telemetry.recorder import Recorders
from stallwatch.telemetry.spans import SpanRecorder
from stallwatch.version import __version__

__all__ = [
    "govern_differently",
    "govern_everywhere",
    "guard",
    "in_force",
    "is_governed",
    "patched",
    "release_everywhere",
    "unguard",
]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
"""The newest released schema whose ``gen_ai`` names are the ones emitted here."""


Client = TypeVar("Client")

_patches = Patches()
_lock = threading.Lock()
_observing: list[MetricRecorder] = []
"""The recorder whose callbacks answer for the open streams, if any."""


def govern_everywhere(layers: Layers, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Govern the calls of every client."""
    with _lock:
        recorders = _recorders(tracer_provider, meter_provider)
        wiring = _patches.wiring or Wiring(layers, recorders, everywhere=True)
        wiring.layers, wiring.recorders, wiring.everywhere = layers, recorders, True
        _patches.install(wiring)


def govern_differently(layers: Layers) -> None:
    """Change the settings of an instrumented process; its telemetry goes where it went."""
    with _lock:
        if _patches.wiring is not None:
            _patches.wiring.layers = layers


def release_everywhere() -> None:
    """Stop governing clients that were not guarded one by one; live streams keep their guards and finish cleanly.

    What the instrumentor was told ends with it: guarded clients go on with the environment's settings.
    """
    with _lock:
        wiring = _patches.wiring
        if wiring is not None:
            wiring.everywhere = False
            _remove_if_unused(wiring)
        if _patches.wiring is not None:
            _patches.wiring.layers, _patches.wiring.recorders = settings.load(), _recorders(None, None)


def guard(client: Client, *, policy: Policy | None = None) -> Client:
    """Govern one client, with or without ``instrument()``, and return it.

    The policy counts for the client and for what ``with_options()`` and ``copy()`` make of it, until ``unguard``; it
    beats rules and environment, and is beaten by ``with stallwatch.policy(...)``. Raises ValueError when ``client`` is
    not an OpenAI client or ``policy`` not a Policy.
    """
    if policy is not None and not isinstance(policy, Policy):
        raise ValueError(f"policy={policy!r} is not allowed: give a Policy, e.g. Policy.of(idle=30)")
    http = getattr(client, "_client", None)
    if http is None or not hasattr(client, "_build_request"):
        raise ValueError(
            f"client={type(client).__name__} is not allowed: give an OpenAI client object, not its class"
        )
    with _lock:
        wiring = _patches.wiring or Wiring(settings.load(), _recorders(None, None), everywhere=False)
        wiring.clients[http] = Policy() if policy is None else policy
        _patches.install(wiring)
    return client


def is_governed(client: Any) -> bool:
    """Tell whether calls of ``client`` are governed."""
    wiring = _patches.wiring
    return wiring is not None and (wiring.everywhere or wiring.policy_of(client) is not None)


def unguard(client: Client) -> Client:
    """Take back ``guard``; a client that was not guarded is left as it is."""
    with _lock:
        wiring = _patches.wiring
        http = getattr(client, "_client", None)
        if wiring is not None and http is not None:
            wiring.clients.pop(http, None)
            _remove_if_unused(wiring)
    return client


def patched() -> list[tuple[type, str]]:
    """Return what is patched in the SDK now."""
    return _patches.installed


def in_force() -> Wiring | None:
    """Return what the patches consult; None while nobody is governed."""
    return _patches.wiring


def _remove_if_unused(wiring: Wiring) -> None:
    if not wiring.everywhere and not len(wiring.clients):
        _patches.remove()
        _patches.wiring = None


def _recorders(tracer_provider: Any, meter_provider: Any) -> Recorders:
    for old in _observing:
        # Callbacks cannot be taken back from a meter; these go quiet.
        old.active = False
    metrics = _metrics(meter_provider)
    _observing[:] = [metrics]
    return Recorders(_spans(tracer_provider), metrics)


def _spans(provider: Any) -> SpanRecorder:
    try:
        return SpanRecorder(get_tracer(SCOPE, __version__, provider, schema_url=SCHEMA_URL))
    except Exception as error:
        log.warning("no spans: the tracer provider failed: %s", told_of(error))
        return SpanRecorder(NoOpTracer())


def _metrics(provider: Any) -> MetricRecorder:
    try:
        return MetricRecorder(get_meter(SCOPE, __version__, provider, schema_url=SCHEMA_URL), registry.live)
    except Exception as error:
        log.warning("no metrics: the meter provider failed: %s", told_of(error))
        return MetricRecorder(NoOpMeter(SCOPE), registry.live)
