"""The dashboard "Pipeline health": does the telemetry itself arrive, and where does it get stuck or lost.

Half of it is about the collectors, in their own words; half about what Prometheus has of the jobs, whichever way it
came. Without a collector its half is empty, and that is no fault.
"""

from __future__ import annotations

from dashboards import collector as c
from dashboards import promql as q
from dashboards import uids
from dashboards.board import COLLECTOR, JOB, RATE, begin, finished
from dashboards.classic import models
from dashboards.grid import Grid
from dashboards.panels import NONE, Query, lines, number, rows, share
from dashboards.pipeline_alerts import MEMORY
from stallwatch.catalogue import MODEL_CAP, OTHER

CHOSEN = 'job=~"$collector"'
OURS = '{job=~"$job"}'
NO_COLLECTOR = "No collector"


def build() -> models.Dashboard:
    """Return the dashboard's model."""
    board = begin(
        "Pipeline health",
        uids.PIPELINE,
        "The way of the telemetry: collectors, queues, refusals, losses, and jobs that no longer report.",
        (COLLECTOR, JOB),
        since="now-6h",
    )
    grid = Grid(board)
    _add_now(grid)
    _add_arrival(grid)
    _add_collectors(grid)
    _add_sampler(grid)
    return finished(board)


def rate(metric: c.Foreign, window: str, *by: str) -> str:
    """Return what a collector's counter grew by a second, one series for each combination of ``by``."""
    return f"{q.sum_by(by)} (rate({metric.select(CHOSEN)}[{window}]))"


def _lost(window: str) -> str:
    lost = (c.SEND_FAILED_SPANS, c.SEND_FAILED_POINTS, c.ENQUEUE_FAILED_SPANS, c.ENQUEUE_FAILED_POINTS)
    return " + ".join(f"({rate(metric, window)} or vector(0))" for metric in lost)


def _add_now(grid: Grid) -> None:
    grid.row("Now")
    gone = f"count by (job) (present_over_time({q.ACTIVE}{OURS}[{MEMORY}])) unless count by (job) ({q.ACTIVE}{OURS})"
    refused = " + ".join(
        f"({rate(metric, RATE)} or vector(0))" for metric in (c.REFUSED_SPANS, c.REFUSED_POINTS)
    )
    grid.line(
        4,
        number(
            "Jobs that report",
            f"How many jobs tell about their streams now? ({q.ACTIVE})",
            Query(f"count(count by (job) ({q.ACTIVE}{OURS})) or vector(0)", "jobs"),
            "short",
        ),
        number(
            "Jobs gone silent",
            f"How many did within {MEMORY} and do no longer? ({q.ACTIVE})",
            Query(f"count({gone}) or vector(0)", "gone"),
            "short",
        ),
        number(
            "Collectors",
            f"How many collectors answer? ({c.QUEUE_CAPACITY.name})",
            Query(
                f"count(count by (job, instance) ({c.QUEUE_CAPACITY.select(CHOSEN)})) or vector(0)",
                "collectors",
            ),
            "short",
        ),
        share(
            "Fullest queue",
            f"How full is the fullest sending queue? When full, it drops. ({c.QUEUE_SIZE.name})",
            Query(f"max({_fullness()})", "full"),
            bad_from=0.8,
            empty=NO_COLLECTOR,
        ),
        number(
            "Refused",
            f"How many spans and points a second do collectors turn away? ({c.REFUSED_SPANS.name} and of points)",
            Query(refused, "refused"),
            "cps",
        ),
        number(
            "Lost",
            "How many spans and points a second are given up, after all retries or for want of room? "
            f"({c.SEND_FAILED_SPANS.name}, {c.ENQUEUE_FAILED_SPANS.name} and of points)",
            Query(_lost(RATE), "lost"),
            "cps",
        ),
    )


def _fullness() -> str:
    return f"{c.QUEUE_SIZE.select(CHOSEN)} / ({c.QUEUE_CAPACITY.select(CHOSEN)} > 0)"


def _add_arrival(grid: Grid) -> None:
    grid.row("What arrives")
    grid.line(
        8,
        lines(
            "Processes that report, by job",
            f"Did a job, or a part of it, stop telling? ({q.ACTIVE})",
            [Query(f"count by (job) (count by (job, instance) ({q.ACTIVE}{OURS}))", q.legend("job"))],
            "short",
        ),
        lines(
            "Series by job",
            f"Does the number of combinations of labels grow without end? ({q.ACTIVE}, {q.STREAMS})",
            [
                Query(f"count by (job) ({q.STREAMS}{OURS})", f"{q.legend('job')}, outcomes"),
                Query(f"count by (job) ({q.ACTIVE}{OURS})", f"{q.legend('job')}, models in use"),
            ],
            "short",
        ),
        lines(
            "Streams of models past the cap",
            f"How many streams are counted as {OTHER}, because their process has seen more than {MODEL_CAP} models? "
            f"({q.STREAMS})",
            [
                Query(
                    f'sum by (job) (rate({q.STREAMS}{{job=~"$job", {q.MODEL}="{OTHER}"}}[{RATE}]))',
                    q.legend("job"),
                )
            ],
            "cps",
            empty=NONE,
        ),
        rows(
            "Targets that Prometheus cannot scrape",
            f"Which of these jobs' processes, and which collectors, does it not reach? ({c.UP.name})",
            {"job": "Job", "instance": "Instance"},
            [
                (
                    Query(
                        f'sum by (job, instance) ({c.UP.name}{{job=~"$job|$collector"}} == bool 0) > 0',
                        "Down",
                    ),
                    "short",
                )
            ],
            sort="Job",
            empty=NONE,
        ),
    )


def _add_collectors(grid: Grid) -> None:
    grid.row("Collectors")
    queue = (c.EXPORTER, c.DATA_TYPE)
    passed = [
        ("spans received", c.ACCEPTED_SPANS),
        ("spans sent", c.SENT_SPANS),
        ("points received", c.ACCEPTED_POINTS),
        ("points sent", c.SENT_POINTS),
    ]
    turned_away = [
        ("spans refused", c.REFUSED_SPANS, c.RECEIVER),
        ("points refused", c.REFUSED_POINTS, c.RECEIVER),
        ("spans not sent", c.SEND_FAILED_SPANS, c.EXPORTER),
        ("points not sent", c.SEND_FAILED_POINTS, c.EXPORTER),
        ("spans not queued", c.ENQUEUE_FAILED_SPANS, c.EXPORTER),
        ("points not queued", c.ENQUEUE_FAILED_POINTS, c.EXPORTER),
    ]
    grid.line(
        8,
        lines(
            "Received and sent",
            "Does what comes in go out? Fewer spans go out where traces are sampled. "
            f"({c.ACCEPTED_SPANS.name}, {c.SENT_SPANS.name} and of points)",
            [Query(rate(metric, RATE), what) for what, metric in passed],
            "cps",
            empty=NO_COLLECTOR,
        ),
        lines(
            "Refused and lost",
            "Where is telemetry turned away, and where is it given up? Refused is kept by the sender for a while; not "
            f"sent and not queued is gone. ({c.REFUSED_SPANS.name}, {c.SEND_FAILED_SPANS.name}, "
            f"{c.ENQUEUE_FAILED_SPANS.name} and of points)",
            [
                Query(rate(metric, RATE, label), f"{what}, {q.legend(label)}")
                for what, metric, label in turned_away
            ],
            "cps",
            empty=NONE,
        ),
        lines(
            "Queues",
            f"Does a backend keep up? A queue that only grows tells of one that does not. ({c.QUEUE_SIZE.name})",
            [Query(f"max by ({', '.join(queue)}) ({_fullness()})", q.legend(*queue))],
            "percentunit",
            top=1,
            marks=[0.8],
            empty=NO_COLLECTOR,
        ),
        lines(
            "Memory",
            f"How close is a collector to its limit, and to refusing? ({c.MEMORY.name})",
            [Query(f"max by (job, instance) ({c.MEMORY.select(CHOSEN)})", q.legend("job", "instance"))],
            "bytes",
            empty=NO_COLLECTOR,
        ),
    )


def _add_sampler(grid: Grid) -> None:
    grid.row("Tail sampling")
    grid.line(
        8,
        lines(
            "Traces decided",
            f"How many traces are kept, and how many are not? ({c.TRACES_DECIDED.name})",
            [Query(rate(c.TRACES_DECIDED, RATE, c.DECISION), q.legend(c.DECISION))],
            "cps",
            stacked=True,
            empty=NO_COLLECTOR,
        ),
        lines(
            "Traces in memory",
            f"How many wait for their decision? ({c.TRACES_HELD.name})",
            [
                Query(
                    f"sum by (job, instance) ({c.TRACES_HELD.select(CHOSEN)})",
                    q.legend("job", "instance"),
                )
            ],
            "short",
            empty=NO_COLLECTOR,
        ),
        lines(
            "Traces forgotten undecided",
            f"Is there room for all that wait? Traces of stalls may be among those without. "
            f"({c.TRACES_DROPPED_EARLY.name})",
            [Query(rate(c.TRACES_DROPPED_EARLY, RATE, "job", "instance"), q.legend("job", "instance"))],
            "cps",
            empty=NONE,
        ),
        lines(
            "Restarts of collectors",
            f"Has one been restarted, and with it lost what it held? ({c.UPTIME.name})",
            [
                Query(
                    f"sum by (job, instance) (resets({c.UPTIME.select(CHOSEN)}[{RATE}]))",
                    q.legend("job", "instance"),
                )
            ],
            "short",
            empty=NO_COLLECTOR,
        ),
    )
