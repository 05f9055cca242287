"""The Grafana dashboard and the Prometheus rules, as code; see README.md in this folder."""
