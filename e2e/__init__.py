"""The end-to-end tests: a real program, the real collector, a real Prometheus and Alertmanager, all on loopback.

``make e2e`` (or ``python -m e2e``) runs them; plain ``pytest`` does not collect this folder. What they start they stop,
and all state is temporary.
"""
