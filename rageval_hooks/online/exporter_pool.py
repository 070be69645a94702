"""Exporters by name or class: pipelines with the same settings share them, and the last one closes them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from opentelemetry.trace import TracerProvider

from rageval_hooks.exporters.base import AUTOMATIC, REGISTRY, Exporter
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.settings import Settings

__all__ = ["SharedExporters", "shared_exporters"]


class User(Protocol):
    """An object that uses exporters: a pipeline."""

    @property
    def exporters(self) -> Sequence[Exporter]:
        """The exporters that it uses."""


class SharedExporters:
    """Exporters by name or class, shared by pipelines with the same settings, so that creating handlers is cheap."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Exporter] = {}
        self._users: dict[int, weakref.WeakSet[Any]] = {}
        self._lock = ForkSafeLock()

    def get(self, given: Any, settings: Settings, tracer_provider: TracerProvider | None) -> Exporter:
        """Return the exporter of a name or class and settings, always the same one; return an instance unchanged."""

        def make(kind: type[Exporter]) -> Exporter:
            return kind.from_settings(settings, tracer_provider)

        # An instance belongs to the user: it is neither shared nor closed for others.
        if not isinstance(given, (str, type)):
            return REGISTRY.create(given, make)
        key = (
            given,
            settings.model_dump_json(),
            settings.phoenix_endpoint,
            None if tracer_provider is None else id(tracer_provider),
        )
        with self._lock:
            exporter = self._made.get(key)
            if exporter is None:
                exporter = self._made[key] = REGISTRY.create(given, make, others=[AUTOMATIC])
            return exporter

    def take(self, pipeline: User) -> None:
        """Note that a pipeline uses its exporters, for as long as the pipeline exists."""
        with self._lock:
            for exporter in self._made.values():
                if any(exporter is used for used in pipeline.exporters):
                    self._users.setdefault(id(exporter), weakref.WeakSet()).add(pipeline)

    def give_back(self, exporter: Exporter, pipeline: User) -> bool:
        """Note that a pipeline no longer uses an exporter. Returns True if the exporter must be shut down now."""
        with self._lock:
            if not any(exporter is made for made in self._made.values()):
                return True
            # The last user closes an exporter. Users are weak references: a handler that was dropped counts no more.
            users = self._users.get(id(exporter), weakref.WeakSet())
            users.discard(pipeline)
            if users:
                return False
            self._users.pop(id(exporter), None)
            self._made = {key: made for key, made in self._made.items() if made is not exporter}
            return True


shared_exporters = SharedExporters()
