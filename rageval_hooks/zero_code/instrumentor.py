"""The instrumentor that OpenTelemetry's tools find by its entry point ``rageval_hooks``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rageval_hooks.errors import requires
from rageval_hooks.instrumentation import shutdown_current
from rageval_hooks.zero_code import instrument_when_needed

with requires("opentelemetry-instrumentation", "distro", "RagevalInstrumentor"):
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]


_OTHER_SIGNALS = ("meter_provider", "logger_provider")
"""Arguments that callers pass to every instrumentor."""


class RagevalInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # their module is not typed
    """Evaluates the answers of the frameworks that the application imports.

    ``opentelemetry-instrument`` calls it without arguments, so that the settings come from the environment. Name
    ``rageval_hooks`` in ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` to switch it off.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return nothing: frameworks that are not installed are ignored."""
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        instrument_when_needed(**{name: value for name, value in kwargs.items() if name not in _OTHER_SIGNALS})

    def _uninstrument(self, **kwargs: Any) -> None:
        shutdown_current()
