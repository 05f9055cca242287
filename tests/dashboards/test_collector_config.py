"""The collectors' configurations, as far as they can be checked without a collector.

The end-to-end tests have the collector itself check and run them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stallwatch.catalogue import ATTRIBUTES

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).parents[2]


def _read(path: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    return config


SINGLE = _read("collector-config.yaml")
AGENT = _read("deploy/two-tier/agent.yaml")
GATEWAY = _read("deploy/two-tier/gateway.yaml")
CONFIGS = {"single": SINGLE, "agent": AGENT, "gateway": GATEWAY}
STORING = {"single": SINGLE, "gateway": GATEWAY}
STRIPPING = {"single": SINGLE, "agent": AGENT}

CURRENT = {
    "extensions": {"health_check", "file_storage"},
    "receivers": {"otlp"},
    "processors": {"memory_limiter", "redaction", "tail_sampling", "transform"},
    "exporters": {"otlp_grpc", "load_balancing", "prometheus"},
}
"""Component types under their current names; no alias (``otlp`` for an exporter), and no ``batch``."""

config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
section = pytest.mark.parametrize("section", CURRENT)


@config
@section
def test_every_component_has_its_current_name(config: dict[str, Any], section: str) -> None:
    assert {name.partition("/")[0] for name in config[section]} <= CURRENT[section]


@section
def test_the_collector_is_built_of_what_is_used(section: str) -> None:
    manifest = _read("deploy/collector/manifest.yaml")
    used = {name.partition("/")[0] for one in CONFIGS.values() for name in one[section]}
    modules = {module["gomod"].split()[0].rpartition("/")[2] for module in manifest[section]}
    # Modules are named by the old, unbroken names. The file exporter is the tests'.
    kind = section.removesuffix("s")
    built = {module.removesuffix(kind) for module in modules} - {"file"}
    assert built == {name.replace("otlp_grpc", "otlp").replace("_", "") for name in used}


@config
@section
def test_what_is_defined_is_used_and_what_is_used_is_defined(config: dict[str, Any], section: str) -> None:
    if section == "extensions":
        used = set(config["service"]["extensions"])
    else:
        used = {name for pipeline in config["service"]["pipelines"].values() for name in pipeline[section]}
    assert used == set(config[section])


@config
def test_the_memory_limiter_comes_first(config: dict[str, Any]) -> None:
    for pipeline in config["service"]["pipelines"].values():
        assert pipeline["processors"][0] == "memory_limiter"


@pytest.mark.parametrize("config", STRIPPING.values(), ids=STRIPPING)
def test_content_is_stripped_before_anything_is_kept_or_sent(config: dict[str, Any]) -> None:
    for pipeline in config["service"]["pipelines"].values():
        assert pipeline["processors"][1:3] == ["transform/strip", "redaction"]
    assert config["processors"]["transform/strip"]["error_mode"] == "propagate"


def test_nothing_of_our_own_is_stripped() -> None:
    statements = SINGLE["processors"]["transform/strip"]["trace_statements"]
    found = [
        re.fullmatch(r'delete_matching_keys\(\w+\.attributes, "(.*)"\)', statement)
        for statement in statements
    ]
    patterns = [re.compile(match[1].replace("\\\\", "\\")) for match in found if match is not None]
    assert len(patterns) == 5
    for pattern in patterns:
        assert [name for name in ATTRIBUTES if pattern.search(name)] == []
    assert any(pattern.search("gen_ai.input.messages") for pattern in patterns)


@pytest.mark.parametrize("config", [AGENT, GATEWAY], ids=["agent", "gateway"])
def test_what_the_configurations_share_is_the_same_in_all(config: dict[str, Any]) -> None:
    for name, settings in config["processors"].items():
        assert settings == SINGLE["processors"][name], name


@pytest.mark.parametrize("config", STORING.values(), ids=STORING)
def test_sending_waits_on_disk_and_never_gives_up(config: dict[str, Any]) -> None:
    exporter = config["exporters"]["otlp_grpc/traces"]
    queue = exporter["sending_queue"]
    assert queue["storage"] in config["service"]["extensions"]
    assert queue["batch"]["min_size"] <= queue["queue_size"]
    assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"


def test_the_agent_keeps_a_trace_together_and_each_gateway_has_its_own_queue() -> None:
    balancing = AGENT["exporters"]["load_balancing"]
    assert balancing["routing_key"] == "traceID"
    # Before all gateways there is none: one that is lost would hold up the others.
    assert "sending_queue" not in balancing
    own = balancing["protocol"]["otlp"]
    assert own["retry_on_failure"]["max_elapsed_time"] == "0s"
    # The exporter gives all of them one name, so on disk they would write over each other.
    assert "storage" not in own["sending_queue"]


@pytest.mark.parametrize("config", STRIPPING.values(), ids=STRIPPING)
def test_prometheus_gets_exemplars(config: dict[str, Any]) -> None:
    assert config["exporters"]["prometheus"]["enable_open_metrics"] is True


@config
def test_addresses_come_from_the_environment_and_default_to_this_machine(config: dict[str, Any]) -> None:
    addresses = [
        config["extensions"]["health_check"]["endpoint"],
        *(protocol["endpoint"] for protocol in config["receivers"]["otlp"]["protocols"].values()),
        *(exporter["endpoint"] for exporter in config["exporters"].values() if "endpoint" in exporter),
    ]
    for address in addresses:
        assert address.startswith("${env:COLLECTOR_")
        assert ":-127.0.0.1:" in address


def test_sampling_policies_look_at_attributes_that_are_recorded() -> None:
    kept = {policy["name"]: policy for policy in SINGLE["processors"]["tail_sampling"]["policies"]}
    assert kept["stalled"]["boolean_attribute"] == {"key": "stallwatch.stalled", "value": True}
    assert kept["failed"]["status_code"] == {"status_codes": ["ERROR"]}
    assert float(_default(kept["slow"]["latency"]["threshold_ms"])) > 0
    for policy in kept.values():
        settings = policy[policy["type"]]
        assert settings.get("key", "stallwatch.stalled") in ATTRIBUTES


def test_a_decision_outwaits_the_longest_run() -> None:
    from stallwatch.resolution import BUILT_IN

    sampling = SINGLE["processors"]["tail_sampling"]
    wait = _default(sampling["decision_wait"]).removesuffix("s")
    assert float(wait) > float(BUILT_IN.deadlines.total)  # type: ignore[arg-type]
    assert min(sampling["decision_cache"].values()) >= 10 * int(_default(sampling["num_traces"]))


def _default(setting: str) -> str:
    """Return what is taken where the environment says nothing."""
    return setting.partition(":-")[2].removesuffix("}")
