"""What every dashboard of ours has: its frame, its variables, its annotations, and the links to the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards import collector, uids
from dashboards import promql as q
from dashboards.classic import dashboard, models
from dashboards.panels import DATASOURCE, Link

SCHEMA_VERSION = 39
"""Of the classic format; what Grafana 10.4 reads as it stands, newer ones migrate it on loading."""

TAG = "stallwatch"


RATE = "$__rate_interval"
"""The window of what changes over the chosen time; ``$__range`` is that of one value for all of it."""

_KEPT = "var-datasource=${datasource}&${__url_time_range}"
ONE_MODEL = Link(
    "Only this model",
    f"/d/{uids.STREAMS}?${{job:queryparam}}&${{provider:queryparam}}&var-model=${{__field.labels.{q.MODEL}}}&{_KEPT}",
)
MODEL_ROW = Link(
    "Only this model",
    f"/d/{uids.STREAMS}?${{job:queryparam}}&var-provider=${{__data.fields.Provider}}&var-model=${{__value.raw}}&{_KEPT}",
)
BUDGET_ROW = Link(
    "Its budget",
    f"/d/{uids.SLO}?${{job:queryparam}}&var-provider=${{__data.fields.Provider}}"
    "&var-model=${__data.fields.Model}&var-datasource=${datasource}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A choice among the values that a label has; ``everything`` is what "All" asks for."""

    name: str
    title: str
    query: str
    everything: str = ".+"


JOB = Variable(name="job", title="Job", query=f"label_values({q.ACTIVE}, job)")
PROVIDER = Variable(
    name="provider", title="Provider", query=f'label_values({q.ACTIVE}{{job=~"$job"}}, {q.PROVIDER})'
)
MODEL = Variable(
    name="model",
    title="Model",
    query=f'label_values({q.ACTIVE}{{job=~"$job", {q.PROVIDER}=~"$provider"}}, {q.MODEL})',
    # Not .+, because a call that names no model has no such label.
    everything=".*",
)
COLLECTOR = Variable(
    name="collector",
    title="Collector",
    query=f"label_values({collector.QUEUE_CAPACITY.name}, job)",
)
STREAM_VARIABLES = (JOB, PROVIDER, MODEL)


def begin(title: str, uid: str, description: str, variables: Sequence[Variable], *, since: str) -> Any:
    """Return the builder of an empty dashboard that shows ``since`` (as ``now-1h``) until now at first."""
    board = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG, "llm", "opentelemetry"])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time(since, "now")
        .refresh("30s")
        .timezone("browser")
        .link(
            dashboard.DashboardLink("stallwatch")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    board.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for variable in variables:
        board.with_variable(_queried(variable))
    return board.annotation(_alerts("Pages", "page", "red")).annotation(
        _alerts("Tickets", "ticket", "orange")
    )


def finished(board: Any) -> models.Dashboard:
    """Return the model, without those of the SDK's defaults that hide things in a menu."""
    model: models.Dashboard = board.build()
    model.schema_version = SCHEMA_VERSION
    shown: Any
    for shown in [*(model.annotations.list_val or []), *(model.links or [])]:
        shown.placement = None
    return model


def add_trace_store(board: Any) -> None:
    """Add the choice of a Tempo; without one its panels stay closed, and the others do not mind."""
    board.with_variable(dashboard.DatasourceVariable("traces").label("Trace store").type("tempo"))


def _queried(variable: Variable) -> Any:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.title)
        .query(variable.query)
        .definition(variable.query)
        .datasource(DATASOURCE)
        .multi(True)
        .include_all(True)
        .all_value(variable.everything)
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _alerts(name: str, severity: str, colour: str) -> Any:
    firing = collector.ALERTS.select('alertname=~"LLM.+"', 'alertstate="firing"', f'severity="{severity}"')
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(colour)
        .expr(firing)
        .title_format("{{alertname}}")
        .text_format(q.legend("job", q.PROVIDER, q.MODEL))
    )
