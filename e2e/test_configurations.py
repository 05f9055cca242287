"""Everything in ``deploy`` and the collector's configuration, checked by the programs that are to read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.alerting import Alertmanager, Webhook
from e2e.collectors import SINGLE, validate
from e2e.needs import ROOT
from e2e.processes import Processes
from e2e.prometheus import Prometheus
from e2e.ran import Collected

CONFIGURATIONS = {
    "single": SINGLE,
    "agent": ROOT / "deploy" / "two-tier" / "agent.yaml",
    "gateway": ROOT / "deploy" / "two-tier" / "gateway.yaml",
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_collector_accepts_its_configuration(name: str) -> None:
    validate(CONFIGURATIONS[name], {"COLLECTOR_GATEWAYS": "[127.0.0.1:14317, 127.0.0.1:24317]"})


def test_a_misspelt_option_is_found(folder: Path) -> None:
    """Otherwise the check above would mean nothing."""
    broken = folder / "broken.yaml"
    broken.write_text(
        SINGLE.read_text(encoding="utf-8").replace("spike_limit_percentage", "spike_percentage")
    )
    with pytest.raises(AssertionError, match="spike_percentage"):
        validate(broken)


def test_the_collector_has_nothing_to_warn_of(collected: Collected) -> None:
    """No deprecated alias, no option on its way out, and no error in the whole run."""
    log = collected.stack.processes.logs()["collector"]
    assert re.findall(r"^.*\t(?:warn|error)\t.*$", log, re.MULTILINE) == []


def test_prometheus_accepts_its_configuration_and_the_rules(folder: Path) -> None:
    with Processes(folder) as processes:
        Prometheus(processes, folder, applications=["127.0.0.1:1"]).check()


@pytest.mark.parametrize(("severity", "receiver"), [("page", "pages"), ("ticket", "tickets")])
def test_alerts_go_to_the_receiver_of_their_severity(folder: Path, severity: str, receiver: str) -> None:
    with Webhook() as webhook, Processes(folder) as processes:
        alertmanager = Alertmanager(processes, folder, webhook)
        alertmanager.check()
        assert (
            alertmanager.receiver_of(alertname="LLMStreamStuckBeyondWatchdog", severity=severity) == receiver
        )


def test_an_alert_reaches_the_webhook(collected: Collected) -> None:
    collected.stack.alertmanager.post(alertname="Rehearsal", severity="page")
    told = collected.stack.webhook.wait_for("Rehearsal", status="firing", seconds=15)
    assert told.receiver == "pages"
