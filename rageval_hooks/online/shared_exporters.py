"""The exporters that pipelines with the same settings share, and which deliveries use them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from opentelemetry.trace import TracerProvider

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.base import AUTOMATIC, REGISTRY, Exporter
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.settings import Settings


class _SharedExporters:
    """Exporters by name or class. Pipelines with the same settings share them, so that creating handlers is cheap."""

    def __init__(self) -> None:
        # With the pipelines that use an exporter. Weak references: a handler that was dropped counts no more.
        self._made: dict[tuple[Any, ...], tuple[Exporter, weakref.WeakSet[Any]]] = {}
        self._lock = ForkSafeLock()

    def get(self, given: Any, settings: Settings, tracer_provider: TracerProvider | None) -> Exporter:
        """Return an exporter that is bound to the settings.

        That of a name or class and equal settings is always the same one.
        """

        def bound() -> Exporter:
            made = REGISTRY.create(given, others=[AUTOMATIC])
            try:
                made.bind(settings, tracer_provider)
            except OSError as error:
                raise ConfigurationError(f"exporter {made.name!r} cannot be used: {error}") from error
            return made

        # An instance belongs to the user: it is neither shared nor closed for others.
        if not isinstance(given, (str, type)):
            return bound()
        # Secrets mask themselves in JSON, and compare by their values here.
        key = given, settings.model_dump_json(), *settings.options.items(), tracer_provider and id(tracer_provider)
        with self._lock:
            if key not in self._made:
                self._made[key] = bound(), weakref.WeakSet()
            return self._made[key][0]

    def take(self, user: object, exporters: Sequence[Exporter]) -> None:
        """Note that the delivery of a pipeline uses exporters, for as long as it exists."""
        with self._lock:
            for made, users in self._made.values():
                if any(made is exporter for exporter in exporters):
                    users.add(user)

    def give_back(self, exporter: Exporter, user: object) -> bool:
        """Note that a delivery no longer uses an exporter. Returns True if the exporter must be shut down now."""
        with self._lock:
            for key, (made, users) in list(self._made.items()):
                if made is exporter:
                    users.discard(user)
                    if users:
                        return False
                    del self._made[key]
        return True


shared_exporters = _SharedExporters()
