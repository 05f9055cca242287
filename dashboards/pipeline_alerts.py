"""Alerts on the way of the numbers: without them every other alert here is silent for the wrong reason.

Two paths are looked at. A process that Prometheus scrapes itself has ``up`` under its own job and instance. Behind a
collector ``up`` is the collector's, and a process that has stopped reporting shows only in its own series: they were
there within six hours, and are not there now. What was never there is not missed, so that loading the rules before
the first call wakes nobody.

The collector's counters of loss are born with the first loss, which ``increase`` cannot see; so a counter that is new
and not nought counts as well.
"""

from __future__ import annotations

from dashboards import collector as c
from dashboards import promql as q
from dashboards import uids
from dashboards.alerting import COUNT, SHARE, Alert, label

MEMORY = "6h"
"""How long a series is missed for."""

_JOB = label("job")
_WHERE = f"Collector {label('instance')} (job {_JOB})"
_OF_COLLECTOR = {"collector": "job"}


def alerts() -> list[Alert]:
    """Return the alerting rules."""
    return [_absent(), _scrape(), _down(), _losing(), _refusing(), _queue(), _sampler()]


def _absent() -> Alert:
    return Alert(
        name="LLMTelemetryAbsent",
        severity="ticket",
        wait="15m",
        expr=(
            f"count by (job) (present_over_time({q.ACTIVE}[{MEMORY}])) > 0\n"
            f"unless on (job) count by (job) ({q.ACTIVE})"
        ),
        summary=f"Job {_JOB} no longer reports on its streams.",
        description=f"It had {COUNT} series within the last six hours and has none now. No alert can speak for it.",
        board=uids.PIPELINE,
        variables={"job": "job"},
    )


def _scrape() -> Alert:
    return Alert(
        name="LLMScrapeFailing",
        severity="ticket",
        wait="5m",
        expr=f"{c.UP.name} == 0\nand on (job, instance) present_over_time({q.ACTIVE}[{MEMORY}])",
        summary=f"Prometheus cannot scrape {label('instance')} of job {_JOB}.",
        description="It reported on its streams within the last six hours. What its streams do now is not known.",
        board=uids.PIPELINE,
        variables={"job": "job"},
    )


def _down() -> Alert:
    return Alert(
        name="LLMCollectorDown",
        severity="page",
        wait="5m",
        expr=(
            f"{c.UP.name} == 0\nand on (job, instance) present_over_time({c.QUEUE_CAPACITY.name}[{MEMORY}])"
        ),
        summary=f"{_WHERE} does not answer.",
        description="What reports through it is not seen, and alerts on it cannot fire.",
        board=uids.PIPELINE,
        variables=_OF_COLLECTOR,
    )


def _losing() -> Alert:
    by = ("job", "instance", c.EXPORTER)
    lost = (c.SEND_FAILED_SPANS, c.SEND_FAILED_POINTS, c.ENQUEUE_FAILED_SPANS, c.ENQUEUE_FAILED_POINTS)
    return Alert(
        name="LLMCollectorLosingData",
        severity="ticket",
        wait="5m",
        expr="\nor\n".join(_grown(metric, by) for metric in lost),
        summary=f"{_WHERE} loses telemetry.",
        description=f"Exporter {label(c.EXPORTER)} gave up about {COUNT} spans or points within a quarter of an hour.",
        board=uids.PIPELINE,
        variables=_OF_COLLECTOR,
    )


def _refusing() -> Alert:
    by = ("job", "instance", c.RECEIVER)
    return Alert(
        name="LLMCollectorRefusing",
        severity="ticket",
        wait="10m",
        expr="\nor\n".join(
            f"{q.sum_by(by)} (rate({metric.select()}[5m])) > 0"
            for metric in (c.REFUSED_SPANS, c.REFUSED_POINTS)
        ),
        summary=f"{_WHERE} refuses telemetry.",
        description=(
            f'Receiver {label(c.RECEIVER)} turns away {{{{ $value | printf "%.1f" }}}} spans or points a second. '
            "Senders keep them for a while, and then drop them."
        ),
        board=uids.PIPELINE,
        variables=_OF_COLLECTOR,
    )


def _queue() -> Alert:
    by = ("job", "instance", c.EXPORTER, c.DATA_TYPE)
    return Alert(
        name="LLMCollectorQueueFilling",
        severity="ticket",
        wait="10m",
        expr=(f"max by ({', '.join(by)}) ({c.QUEUE_SIZE.name} / ({c.QUEUE_CAPACITY.name} > 0)) > 0.8"),
        summary=f"{_WHERE} has a queue that fills up.",
        description=f"The queue of {label(c.EXPORTER)} for {label(c.DATA_TYPE)} is at {SHARE}. When full, it drops.",
        board=uids.PIPELINE,
        variables=_OF_COLLECTOR,
    )


def _sampler() -> Alert:
    return Alert(
        name="LLMSamplerOverflow",
        severity="ticket",
        wait="5m",
        expr=_grown(c.TRACES_DROPPED_EARLY, ("job", "instance")),
        summary=f"{_WHERE} forgets traces before it has decided on them.",
        description=f"About {COUNT} traces within a quarter of an hour; traces of stalls may be among them.",
        board=uids.PIPELINE,
        variables=_OF_COLLECTOR,
    )


def _grown(metric: c.Foreign, by: tuple[str, ...]) -> str:
    head, counter = q.sum_by(by), metric.select()
    return f"{head} (increase({counter}[15m])) > 0\nor\n{head} ({counter} unless {counter} offset 15m) > 0"
