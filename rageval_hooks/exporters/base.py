"""What an exporter is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from rageval_hooks.plugins import Registry
from rageval_hooks.score import Evaluation

if TYPE_CHECKING:
    from typing import Self

    from opentelemetry.trace import TracerProvider

    from rageval_hooks.settings import Settings

__all__ = ["REGISTRY", "Exporter"]


class Exporter(ABC):
    """Takes evaluations somewhere.

    :meth:`export` is called on the background thread, one call at a time, and must not wait for a network: buffer, and
    send from a thread or task of its own. What the methods raise is logged and counted, and goes no further.

    Attributes:
        name: as users name it.
        traces: whether it writes to an OpenTelemetry tracer provider.
    """

    name: ClassVar[str]
    traces: ClassVar[bool] = False

    @classmethod
    def from_settings(cls, settings: Settings, tracer_provider: TracerProvider | None) -> Self:
        """Make the exporter that a user has named; one without settings of its own need not define this."""
        return cls()

    @abstractmethod
    def export(self, evaluation: Evaluation) -> None:
        """Take one stage's results for one turn.

        The evaluation of stage ``inline`` comes exactly once per turn and first; those of stage ``background``, with
        further results for the same turn, come later or never.
        """

    def flush(self, timeout: float) -> bool:
        """Deliver what is buffered; returns False if that takes longer than ``timeout`` seconds."""
        return True

    def stats(self) -> dict[str, int]:
        """Return what it counted, for ``Instrumentation.stats()``; nothing if it counts nothing."""
        return {}

    def shutdown(self) -> None:  # noqa: B027 - optional: many exporters hold nothing
        """Deliver what is buffered and let go of resources. Nothing is exported afterwards."""


REGISTRY: Registry[Exporter] = Registry("exporter", Exporter, "rageval_hooks.exporters", "rageval_hooks.exporters")  # type: ignore[type-abstract]
