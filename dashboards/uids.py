"""The dashboards' stable addresses: alerts, links and bookmarks lead to them, so they never change."""

STREAMS = "stallwatch-llm-streams"
SLO = "stallwatch-idle-timeout-slo"
PIPELINE = "stallwatch-pipeline-health"
