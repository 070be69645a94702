"""What the event handlers of all frameworks have in common: whether they capture, and what becomes of exceptions."""

from __future__ import annotations

from collections.abc import Hashable

from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.interrupts import is_interrupt
from rageval_hooks.runtime.suppression import is_suppressed


class EventSource:
    """Where the events of a framework come from.

    Attributes:
        pipeline: receives the turns; None if nothing is captured.
    """

    pipeline: Pipeline | None = None

    @property
    def ignores(self) -> bool:
        """True if nothing is captured: no pipeline takes turns, or our own code is running (a judge or a metric)."""
        pipeline = self.pipeline
        return pipeline is None or not pipeline.enabled or is_suppressed()

    def failed(self, run_id: Hashable, error: BaseException) -> None:
        """Count an exception that came while an event was recorded. An interrupt goes on to the application."""
        if not isinstance(error, Exception) or is_interrupt(error):
            shared_recorder().abandon(run_id)  # the framework reports no end of this run
            raise error
        if self.pipeline is not None:
            self.pipeline.failed("an event could not be recorded", error)

    def detach(self) -> None:
        """Capture no more, and drop the turns that have not ended."""
        pipeline, self.pipeline = self.pipeline, None
        if pipeline is not None:
            shared_recorder().forget(pipeline)
