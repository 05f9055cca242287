"""The OpenTelemetry instrumentor, under the entry point name ``stallwatch``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from stallwatch import settings
from stallwatch.governing import govern_differently, govern_everywhere, release_everywhere

__all__ = ["OpenAIInstrumentor"]


_OF_THE_BASE_CLASS = frozenset(
    {"skip_dep_check", "raise_exception_on_conflict", "tracer_provider", "meter_provider", "logger_provider"}
)


class OpenAIInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # untyped in its package
    """Governs and observes every OpenAI client of the process.

    ``instrument(policy=None, rules=(), policy_file=None, span_backstop=None, tracer_provider=None,
    meter_provider=None, **settings)``; flat settings (``idle=30``) are those of ``Policy.of``. Raises ValueError for a
    bad keyword; a bad environment variable or file is one logged warning and the default.
    """

    def instrument(self, **kwargs: Any) -> Any:
        """Instrument; in a process that is instrumented already, settings given here replace those in force.

        Under ``opentelemetry-instrument`` the process is instrumented before the program runs, and what a program
        sets in code must still beat the environment.
        """
        given = {name: value for name, value in kwargs.items() if name not in _OF_THE_BASE_CLASS}
        if self.is_instrumented_by_opentelemetry and given:
            govern_differently(settings.load(**given))
            return None
        return super().instrument(**kwargs)

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the SDK releases supported."""
        return ("openai >= 1.66, < 4",)

    def _instrument(self, **kwargs: Any) -> None:
        tracer_provider = kwargs.pop("tracer_provider", None)
        meter_provider = kwargs.pop("meter_provider", None)
        kwargs.pop("logger_provider", None)
        govern_everywhere(settings.load(**kwargs), tracer_provider, meter_provider)

    def _uninstrument(self, **kwargs: Any) -> None:
        release_everywhere()
