"""The environment the plain program gets: the demo's own settings, and nothing of the user's that could bend them.

Proxies, API keys and telemetry settings of the surrounding shell are left out: the programs talk to loopback only, and
a user's real key must not travel. ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` are kept, because a real
collector may route by them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stallwatch.cli.demo.scenes import SETTINGS

__all__ = ["RUN_ATTRIBUTE", "bare_env", "guarded_env", "guarded_settings", "surroundings"]

RUN_ATTRIBUTE = "stallwatch.demo.scene"
"""Resource attribute that ties a span to its scene."""

_LEFT_OUT = ("OPENAI_", "AZURE_OPENAI_", "STALLWATCH_", "OTEL_")
_KEPT = ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES")


def surroundings() -> Mapping[str, str]:
    """Return the environment the demo was started in."""
    return os.environ


def bare_env(base_url: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a bare run."""
    around = surroundings() if environ is None else environ
    kept = {name: value for name, value in around.items() if not _bends(name) or name in _KEPT}
    return kept | {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": "demo",
        # The program's folder must not shadow modules, and its output must come at once and in UTF-8.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
    }


def guarded_env(
    base_url: str, *, scene: str, sink: str, policy_file: Path, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a guarded run: the same, with OTel's and stallwatch's settings."""
    env = bare_env(base_url, environ)
    given = env.get("OTEL_RESOURCE_ATTRIBUTES", "").strip(", ")
    env.setdefault("OTEL_SERVICE_NAME", "stallwatch-demo")
    env["OTEL_RESOURCE_ATTRIBUTES"] = ",".join(filter(None, [given, f"{RUN_ATTRIBUTE}={scene}"]))
    env |= guarded_settings(policy_file)
    return env | {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink,
    }


def guarded_settings(policy_file: Path) -> dict[str, str]:
    """Return stallwatch's settings of a guarded run."""
    return {**SETTINGS, "STALLWATCH_POLICY_FILE": str(policy_file)}


def _bends(name: str) -> bool:
    upper = name.upper()
    return upper.startswith(_LEFT_OUT) or upper.endswith("_PROXY")
