"""The base class of exporters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from opentelemetry.trace import TracerProvider

from rageval_hooks.exporters.content import ContentPolicy, hide
from rageval_hooks.plugins import EXPORTERS, Configurable, Registry
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings

__all__ = ["AUTOMATIC", "REGISTRY", "ContentPolicy", "Exporter", "automatic_exporters", "hide"]

AUTOMATIC: Final = "auto"
"""Stands among the names of exporters for every exporter that finds out by itself whether its backend is in use."""


class Exporter(Configurable, ABC):
    """Takes evaluations somewhere.

    What it gets has no text that may not leave: texts that the settings hide or redact are replaced before.

    :meth:`export` runs on the background thread, one call at a time, and must not wait for a network: it buffers, and
    a thread or task of the exporter sends. Exceptions from any method are logged and counted; they never reach the
    application.

    Attributes:
        name: as users name it.
        traces: True if it writes to an OpenTelemetry tracer provider.
        buffers: True if results are sent some time after :meth:`export`, together: each flush costs a request.
        automatic: True if the name ``auto`` stands for it, too: it is on by default, and does nothing where its backend
            is not in use.
        content: the texts that this exporter may get, of those that the settings of the pipeline show.
    """

    name: ClassVar[str]
    traces: ClassVar[bool] = False
    buffers: ClassVar[bool] = False
    automatic: ClassVar[bool] = False
    content: ContentPolicy = ContentPolicy()

    def bind(self, settings: Settings, tracer_provider: TracerProvider | None) -> None:
        """Take what the constructor was not given from the settings of a pipeline, before its first turn.

        Args:
            settings: the settings; ``metrics`` has the names of the metrics that the user chose, or is None.
            tracer_provider: where the pipeline's spans go; None for the application's global provider.
        """
        self.take_options(settings.options)

    @abstractmethod
    def export(self, evaluation: Evaluation) -> None:
        """Take the results of one stage for one turn.

        The evaluation with the stage ``inline`` comes first and exactly once per turn. Evaluations with the stage
        ``background`` carry further results for the same turn; they come later or never.
        """

    def annotate(self, evaluation: Evaluation) -> None:
        """Add the scores of the stage ``inline`` to what is still open: the turn's span of another tracer.

        Runs before :meth:`export`, while the application's call waits, so it must only set values. Most exporters have
        nothing to do here.
        """

    def flush(self, timeout: float) -> bool:
        """Deliver what is buffered. Returns within the timeout, whatever the other end does.

        Args:
            timeout: seconds.

        Returns:
            True if everything since the last flush was delivered; False if the deadline passed, or if something was
            rejected or lost.
        """
        return True

    def shutdown(self, timeout: float) -> bool:
        """Deliver what is buffered and release resources. Nothing is exported afterwards.

        Returns within the timeout, whatever the other end does. A second call does nothing.

        Args:
            timeout: seconds.

        Returns:
            False if something could not be delivered.
        """
        return True

    def stores(self, evaluation: Evaluation) -> bool | None:
        """Ask the backend whether it has the results of an evaluation; ``rageval-hooks doctor`` does.

        May wait for the network. Override this where the backend can be asked.

        Returns:
            None if the backend cannot be asked.
        """
        return None

    def stats(self) -> Mapping[str, int]:
        """Return the exporter's counters, for ``Instrumentation.stats()``; empty if it counts nothing."""
        return {}


REGISTRY: Registry[Exporter] = Registry("exporter", Exporter, EXPORTERS, "rageval_hooks.exporters")  # type: ignore[type-abstract]


def automatic_exporters(named: Iterable[Exporter]) -> list[type[Exporter]]:
    """Return the exporters that the name ``auto`` stands for.

    Args:
        named: the exporters that the user has named. What one of these does is not done twice: with ``langfuse``,
            ``langfuse-auto`` is omitted.
    """
    kinds = [kind for kind in REGISTRY.builtin().values() if kind.automatic]
    # An automatic exporter derives from the one that users name.
    taken = tuple(type(exporter) for exporter in named)
    return [kind for kind in kinds if not any(issubclass(kind, other) for other in taken)]
