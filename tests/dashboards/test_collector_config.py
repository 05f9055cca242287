"""The collector's configuration, as far as it can be checked without a collector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stallwatch.catalogue import ATTRIBUTES

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

CONFIG: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "collector-config.yaml").read_text(encoding="utf-8")
)
PIPELINES: dict[str, Any] = CONFIG["service"]["pipelines"]
SAMPLING = CONFIG["processors"]["tail_sampling"]

CURRENT = {
    "extensions": {"health_check", "file_storage"},
    "receivers": {"otlp"},
    "processors": {"memory_limiter", "redaction", "tail_sampling"},
    "exporters": {"otlp_grpc", "prometheus"},
}
"""Component types under their current names; no alias (``otlp`` for an exporter), and no ``batch``."""


@pytest.mark.parametrize("section", CURRENT)
def test_every_component_has_its_current_name(section: str) -> None:
    assert {name.partition("/")[0] for name in CONFIG[section]} <= CURRENT[section]


@pytest.mark.parametrize("section", CURRENT)
def test_what_is_defined_is_used_and_what_is_used_is_defined(section: str) -> None:
    if section == "extensions":
        used = set(CONFIG["service"]["extensions"])
    else:
        used = {name for pipeline in PIPELINES.values() for name in pipeline[section]}
    assert used == set(CONFIG[section])


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_memory_limiter_comes_first(pipeline: str) -> None:
    assert PIPELINES[pipeline]["processors"][0] == "memory_limiter"


def test_sending_waits_on_disk_and_never_gives_up() -> None:
    exporter = CONFIG["exporters"]["otlp_grpc/traces"]
    queue = exporter["sending_queue"]
    assert queue["storage"] in CONFIG["service"]["extensions"]
    assert queue["batch"]["min_size"] <= queue["queue_size"]
    assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"


def test_prometheus_gets_exemplars() -> None:
    assert CONFIG["exporters"]["prometheus"]["enable_open_metrics"] is True


def test_addresses_come_from_the_environment_and_default_to_this_machine() -> None:
    addresses = [
        CONFIG["extensions"]["health_check"]["endpoint"],
        *(protocol["endpoint"] for protocol in CONFIG["receivers"]["otlp"]["protocols"].values()),
        *(exporter["endpoint"] for exporter in CONFIG["exporters"].values()),
    ]
    for address in addresses:
        assert address.startswith("${env:COLLECTOR_")
        assert ":-127.0.0.1:" in address


def test_sampling_policies_look_at_attributes_that_are_recorded() -> None:
    kept = {policy["name"]: policy for policy in SAMPLING["policies"]}
    assert kept["stalled"]["boolean_attribute"] == {"key": "stallwatch.stalled", "value": True}
    assert kept["failed"]["status_code"] == {"status_codes": ["ERROR"]}
    assert kept["slow"]["latency"]["threshold_ms"] > 0
    for policy in kept.values():
        settings = policy[policy["type"]]
        assert settings.get("key", "stallwatch.stalled") in ATTRIBUTES


def test_a_decision_outwaits_the_longest_run() -> None:
    from stallwatch.resolution import BUILT_IN

    wait = SAMPLING["decision_wait"].partition(":-")[2].removesuffix("s}")
    assert float(wait) > float(BUILT_IN.deadlines.total)  # type: ignore[arg-type]
    assert min(SAMPLING["decision_cache"].values()) >= 10 * SAMPLING["num_traces"]
