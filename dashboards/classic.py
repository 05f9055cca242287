"""The SDK's builders of classic dashboards, without the warning that its newer format is to be preferred.

Classic it stays: it is what file provisioning and import take in every supported Grafana, and what newer ones migrate
on loading.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import (
        common,
        dashboard,
        heatmap,
        prometheus,
        stat,
        table,
        tempo,
        timeseries,
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models import common as looks
    from grafana_foundation_sdk.models import dashboard as models
    from grafana_foundation_sdk.models import heatmap as heatmap_models
    from grafana_foundation_sdk.models import prometheus as prometheus_models
    from grafana_foundation_sdk.models import tempo as tempo_models

__all__ = [
    "JSONEncoder",
    "common",
    "dashboard",
    "heatmap",
    "heatmap_models",
    "looks",
    "models",
    "prometheus",
    "prometheus_models",
    "register_default_plugins",
    "stat",
    "table",
    "tempo",
    "tempo_models",
    "timeseries",
]
