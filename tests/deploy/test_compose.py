"""The compose file: what it mounts exists, what it names is pinned, and it agrees with what the tests run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
MANIFEST: dict[str, Any] = yaml.safe_load(
    (DEPLOY / "collector" / "manifest.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_to_a_release(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists(name: str) -> None:
    for mount in SERVICES[name]["volumes"]:
        source = mount.partition(":")[0]
        if source.startswith("."):
            assert (DEPLOY / source).exists(), mount
        else:
            assert source in COMPOSE["volumes"], mount


def test_every_port_is_bound_to_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_collector_is_of_the_release_that_the_tests_build_and_run() -> None:
    assert SERVICES["collector"]["image"].rpartition(":")[2] == MANIFEST["dist"]["version"]
    mounted = [mount.split(":")[0] for mount in SERVICES["collector"]["volumes"]]
    assert "../collector-config.yaml" in mounted


def test_every_variable_of_the_collector_is_one_that_its_configuration_reads() -> None:
    config = (DEPLOY.parent / "collector-config.yaml").read_text(encoding="utf-8")
    for variable in SERVICES["collector"]["environment"]:
        assert variable == "GOMEMLIMIT" or f"${{env:{variable}:-" in config


@pytest.mark.parametrize("name", ["applications", "collectors", "alertmanagers"])
def test_prometheus_finds_its_targets_among_the_services(name: str) -> None:
    targets = yaml.safe_load((DEPLOY / "prometheus" / "targets" / f"{name}.yml").read_text(encoding="utf-8"))
    for address in (address for group in targets for address in group["targets"]):
        assert address.partition(":")[0] in SERVICES
    config = (DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    assert f"targets/{name}.yml" in config


def test_the_dashboards_data_sources_are_provisioned() -> None:
    provisioned = yaml.safe_load(
        (DEPLOY / "grafana" / "provisioning" / "datasources" / "stallwatch.yaml").read_text(encoding="utf-8")
    )["datasources"]
    prometheus = next(source for source in provisioned if source["type"] == "prometheus")
    stores = {source["uid"] for source in provisioned if source["type"] == "tempo"}
    links = prometheus["jsonData"]["exemplarTraceIdDestinations"]
    assert [(link["name"], link["datasourceUid"] in stores) for link in links] == [("trace_id", True)]


def test_all_modules_of_the_collector_are_of_one_release() -> None:
    release = MANIFEST["dist"]["version"]
    sections = ("extensions", "receivers", "processors", "exporters")
    modules = [module["gomod"] for section in sections for module in MANIFEST[section]]
    assert {module.partition(" v")[2] for module in modules} == {release}
    stable = {module["gomod"].partition(" v")[2] for module in MANIFEST["providers"]}
    assert len(stable) == 1
