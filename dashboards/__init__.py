"""The Grafana dashboards and the Prometheus rules, as code; see README.md in this folder."""
