"""What the dashboards and rules ask for and stallwatch does not emit: the collector's own metrics, and Prometheus's.

The collector's names are those of the release that ``deploy/`` pins. It leaves out the suffixes of units and counters
unless told otherwise, and many setups tell it otherwise, so a query takes both spellings. That is safe in one metric's
selector only: two metrics in one ``rate`` would collide.
"""

from __future__ import annotations

from dataclasses import dataclass

TARGET = ("job", "instance")
EXPORTER, DATA_TYPE, RECEIVER, TRANSPORT, DECISION = (
    "exporter",
    "data_type",
    "receiver",
    "transport",
    "decision",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A series that somebody else emits, with the labels we may name."""

    name: str
    labels: tuple[str, ...] = ()
    counter: bool = False
    suffixes: tuple[str, ...] = ()
    """What the collector may append: its unit, then ``_total``."""

    def select(self, *matchers: str) -> str:
        """Return the selector of the series, however it is spelt."""
        if not self.suffixes:
            return self.name + (f"{{{', '.join(matchers)}}}" if matchers else "")
        spelt = self.name + "".join(f"({suffix})?" for suffix in self.suffixes)
        return "{" + ", ".join((f'__name__=~"{spelt}"', *matchers)) + "}"


def _counter(name: str, *labels: str) -> Foreign:
    return Foreign(name=f"otelcol_{name}", labels=labels, counter=True, suffixes=("_total",))


QUEUE_SIZE = Foreign(name="otelcol_exporter_queue_size", labels=(EXPORTER, DATA_TYPE))
QUEUE_CAPACITY = Foreign(name="otelcol_exporter_queue_capacity", labels=(EXPORTER, DATA_TYPE))
SENT_SPANS = _counter("exporter_sent_spans", EXPORTER)
SENT_POINTS = _counter("exporter_sent_metric_points", EXPORTER)
SEND_FAILED_SPANS = _counter("exporter_send_failed_spans", EXPORTER)
SEND_FAILED_POINTS = _counter("exporter_send_failed_metric_points", EXPORTER)
ENQUEUE_FAILED_SPANS = _counter("exporter_enqueue_failed_spans", EXPORTER)
ENQUEUE_FAILED_POINTS = _counter("exporter_enqueue_failed_metric_points", EXPORTER)
ACCEPTED_SPANS = _counter("receiver_accepted_spans", RECEIVER, TRANSPORT)
ACCEPTED_POINTS = _counter("receiver_accepted_metric_points", RECEIVER, TRANSPORT)
REFUSED_SPANS = _counter("receiver_refused_spans", RECEIVER, TRANSPORT)
REFUSED_POINTS = _counter("receiver_refused_metric_points", RECEIVER, TRANSPORT)
TRACES_DECIDED = _counter("processor_tail_sampling_global_count_traces_sampled", DECISION)
TRACES_DROPPED_EARLY = _counter("processor_tail_sampling_sampling_trace_dropped_too_early")
TRACES_HELD = Foreign(name="otelcol_processor_tail_sampling_sampling_traces_on_memory")
MEMORY = Foreign(name="otelcol_process_memory_rss", suffixes=("_bytes",))
UPTIME = Foreign(name="otelcol_process_uptime", counter=True, suffixes=("_seconds", "_total"))

UP = Foreign(name="up")
ALERTS = Foreign(name="ALERTS", labels=("alertname", "alertstate", "severity"))

FOREIGN: tuple[Foreign, ...] = tuple(value for value in vars().copy().values() if isinstance(value, Foreign))
"""The whole list; a query that names anything else is a mistake."""
