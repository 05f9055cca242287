"""What the commands need beyond the package's own dependencies."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["CannotRun", "importable", "need"]

_DISTRIBUTIONS = {
    "rich": "rich",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.distro": "opentelemetry-distro",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
}


class CannotRun(Exception):
    """A command cannot run here; the text says what to do."""


def need(*modules: str) -> None:
    """Raise CannotRun, in one sentence, if any of these modules cannot be imported."""
    missing = [_DISTRIBUTIONS.get(module, module) for module in modules if not importable(module)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        # By name, and not as an extra: whoever installed from a checkout finds no stallwatch on an index.
        raise CannotRun(f"{', '.join(missing)} {verb} not installed: pip install {' '.join(missing)}")


def importable(module: str) -> bool:
    """Tell whether a module is there, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # A parent package is missing.
        return False
