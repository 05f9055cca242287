.DEFAULT_GOAL := help
.PHONY: help env env-oldest test test-oldest matrix newest frameworks neighbours runtimes e2e fuzz races lint format types coverage bench bench-quick soak demo generate clean

# Given as `make PYTHON=/path/to/python env`; without it scripts/make-env looks for one.
export PYTHON
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

ARGS ?=
BIN := .venv/bin

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

env: ## Make .venv with the pinned dependencies and the package in it
	@scripts/make-env .venv requirements/dev.txt

env-oldest: ## Make .venv-oldest with the oldest supported SDK and OpenTelemetry
	@scripts/make-env .venv-oldest requirements/oldest.txt

test: env ## Run the tests (ARGS="-k name" is passed on)
	$(BIN)/python -m pytest $(ARGS)

test-oldest: env-oldest ## Run the tests on the oldest supported versions
	.venv-oldest/bin/python -m pytest --ignore=tests/dashboards --ignore=tests/deploy $(ARGS)

matrix: env ## Run the tests on every supported line (ARGS="openai-2 newest --jobs 2", ARGS=--list)
	@$(BIN)/python -m matrix $(ARGS)

newest: env ## Try the newest openai on PyPI: is every seam there, do streams, stalls and retries work
	@$(BIN)/nox -s newest

frameworks: env ## Run the tests of frameworks on the SDK, each in its environment (ARGS=langchain)
	@$(BIN)/nox -s frameworks -- $(ARGS)

neighbours: env ## Run the tests beside other instrumentors, each in its environment (ARGS=openinference)
	@$(BIN)/nox -s neighbours -- $(ARGS)

runtimes: env ## Run the tests on gevent and other runtimes
	@$(BIN)/nox -s runtimes -- $(ARGS)

e2e: env ## Run a real program against the real collector, Prometheus and Alertmanager
	$(BIN)/python -m e2e $(ARGS)

fuzz: env ## Random bytes and shapes, guided by coverage, for ten minutes (ARGS="--minutes 60 --only streams")
	@$(BIN)/nox -s fuzz -- $(ARGS)

races: env ## Let the ends of a stream meet in every order, for about ten minutes
	RACES_EVERY=1 RACES_SECONDS=150 $(BIN)/python -m pytest -s tests/races $(ARGS)

lint: env ## Check style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: env ## Put style and layout right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: env ## Check types with mypy and pyright
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

coverage: env ## Check that the tests of the core take every branch of it
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest tests/core $(ARGS)
	$(BIN)/coverage report

bench: env ## Measure against the bare SDK and other instrumentors, for ten minutes (ARGS=--write keeps the figures)
	$(BIN)/python -m benchmarks.run $(ARGS)

bench-quick: env ## Check that nothing became slower, in a minute (ARGS=--write makes what is measured the new bars)
	$(BIN)/python -m benchmarks.check $(ARGS)

soak: env ## Play mixed traffic for ten minutes and compare all books of it (ARGS=--minutes=1)
	$(BIN)/python -m soak $(ARGS)

demo: env ## Show bare and guarded streams side by side
	$(BIN)/stallwatch demo $(ARGS)

generate: env ## Write anew what is generated: README and docs tables, dashboards, alert rules
	$(BIN)/python scripts/fill-readme
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.doctor_example
	$(BIN)/python -m dashboards.generate

clean: ## Remove everything that was made
	rm -rf .venv .venv-oldest .venv-peers .nox build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
