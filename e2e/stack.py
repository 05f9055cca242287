"""Everything at once: gateway, collector, trace store, Prometheus, Alertmanager and its webhook."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.alerting import Alertmanager, Webhook
from e2e.collectors import Collector, Store
from e2e.processes import Processes
from e2e.prometheus import RULES, Prometheus
from e2e.traffic import CASES
from stallwatch.testing import FaultGateway

__all__ = ["Stack", "gateway", "stack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What runs."""

    folder: Path
    processes: Processes
    gateway: FaultGateway
    store: Store
    collector: Collector
    prometheus: Prometheus
    alertmanager: Alertmanager
    webhook: Webhook


@contextmanager
def gateway() -> Generator[FaultGateway]:
    """Run the fault gateway with the scripts of the traffic."""
    with FaultGateway() as running:
        for case in CASES:
            if case.script:
                # By the header, because several calls go on at once and each has attempts of its own.
                running.script(case.name, *case.script, by_header=not case.in_turn)
        yield running


@contextmanager
def stack(folder: Path, *, applications: Sequence[str] = (), rules: Path = RULES) -> Generator[Stack]:
    """Run it all with the single collector; everything is stopped on leaving, in the opposite order.

    ``applications`` are scraped beside the collector, from when they are there.
    """
    with ExitStack() as entered:
        running = entered.enter_context(gateway())
        webhook = entered.enter_context(Webhook())
        processes = entered.enter_context(Processes(folder))
        store = Store(processes, folder)
        collector = Collector(processes, folder, settings={"COLLECTOR_TRACES_ENDPOINT": store.address})
        alertmanager = Alertmanager(processes, folder, webhook)
        prometheus = Prometheus(
            processes,
            folder,
            applications=[f"127.0.0.1:{collector.ports['metrics']}", *applications],
            collectors=[f"127.0.0.1:{collector.ports['self']}"],
            alertmanagers=[alertmanager.address],
            rules=rules,
        )
        for part in (store, collector, alertmanager):
            part.start()
        prometheus.start(until_scraped=not applications)
        yield Stack(
            folder=folder,
            processes=processes,
            gateway=running,
            store=store,
            collector=collector,
            prometheus=prometheus,
            alertmanager=alertmanager,
            webhook=webhook,
        )
