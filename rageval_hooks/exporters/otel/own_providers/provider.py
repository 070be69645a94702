"""A provider of our own, for applications that set an OTLP endpoint in the environment but no provider."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Generic, TypeVar

from rageval_hooks.exporters.otel.own_providers.tally import Tally

__all__ = ["OwnProvider", "queue_size"]

Provider = TypeVar("Provider")

_DEFAULT_QUEUE = 2048


class OwnProvider(Generic[Provider]):
    """A provider of our own and what became of what it sent.

    Args:
        provider: writes spans, log events or metrics.
        tally: counts them.
    """

    def __init__(self, provider: Provider, tally: Tally) -> None:
        self.provider = provider
        self._tally = tally

    def give_up(self) -> int:
        """Count the items that still wait as lost; returns how many there are."""
        return self._tally.give_up()

    def stats(self) -> Mapping[str, int]:
        """Return the counts of items: queued, delivered, rejected, lost and dropped."""
        return self._tally.stats()


def queue_size(variable: str) -> int:
    """Return the size of a batch processor's queue: what a standard variable says, or the standard's default."""
    try:
        return max(1, int(os.environ.get(variable, "")))
    except ValueError:
        return _DEFAULT_QUEUE
