"""One OpenTelemetry signal: where it goes, and how it is delivered in time."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from rageval_hooks.exporters.otel.own_provider import OtlpSignal, OwnProvider, forget_own_provider, own_provider
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.time_limit import remaining, within
from rageval_hooks.score import Evaluation

_logger = logging.getLogger(__name__)

SCOPE = "rageval_hooks"
"""The instrumentation scope of everything that we write."""

Provider = TypeVar("Provider")


class OtelSignal(ABC, Generic[Provider]):
    """Spans, log events or metrics.

    They go to the provider of the application, which may be set later, or else to one of our own for the OTLP endpoint
    of the standard variables. A global provider is never set.

    Args:
        given: the application's provider; None for the global one.

    Attributes:
        otlp: the variables that name an endpoint.
    """

    otlp: ClassVar[OtlpSignal]

    def __init__(self, given: Provider | None = None) -> None:
        self._given = given
        self._provider: Provider | None = None
        self._own: OwnProvider | None = None
        self._undelivered = 0
        self._final_stats: Mapping[str, int] = {}
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget a call that hangs in the parent."""
        self._idle = threading.Event()
        self._idle.set()

    @abstractmethod
    def export(self, evaluation: Evaluation) -> bool:
        """Write what an evaluation says. Returns False if there is nowhere to write it."""

    @abstractmethod
    def _use(self, provider: Provider) -> None:
        """Make what is needed to write to a provider that was not used before."""

    def prepare(self) -> None:
        """Make our own provider now, unless the application has one: at exit it would be too late."""
        self._find_provider()

    def connected(self) -> bool:
        """Return True if there is a provider, which is ready to be used then."""
        provider = self._find_provider()
        if provider is None:
            return False
        # Applications set their provider late, and tests replace it.
        if provider is not self._provider:
            self._provider = provider
            EXIT_DRAIN.run_before(provider)
            self._use(provider)
        return True

    def _find_provider(self) -> Any:
        """Return the application's provider, or else our own; None without either."""
        provider = self._given or self.otlp.global_provider()
        if provider is not None:
            self._own = None
            return provider
        if self._own is None and self.otlp.configured:
            self._own = own_provider(self.otlp)
        return None if self._own is None else self._own.provider

    def flush(self, timeout: float) -> bool:
        """Flush the provider.

        Returns:
            With our own provider, True if everything since the last flush was delivered. For a provider of the
            application only the deadline is known: it does not say what became of what it took.
        """
        in_time = self._flush(self._provider, timeout)
        return in_time and (self._own is None or self._delivered_everything(self._own))

    def _flush(self, provider: object, timeout: float) -> bool:
        """Flush any provider; returns False if it did not finish in time."""
        flush = getattr(provider, "force_flush", None)
        # The SDK's batch processors ignore the timeout, so the deadline is kept here.
        return flush is None or self._in_time(lambda: flush(max(1, int(timeout * 1000))), timeout)

    def shutdown(self, timeout: float) -> bool:
        """Shut our own provider down. A provider of the application is flushed and stays open: its owner closes it.

        Returns:
            False if something was lost or rejected since the last flush.
        """
        # Taken first: a second call then has nothing to do.
        own, self._own = self._own, None
        if own is None:
            # Score APIs that are shut down next can only refer to spans that have arrived.
            return self.flush(timeout)
        self._provider = None
        forget_own_provider(self.otlp)
        in_time = self._in_time(own.provider.shutdown, timeout)
        lost = own.sent.give_up()
        self._final_stats = own.sent.stats()
        if lost:
            _logger.warning(
                "rageval-hooks: %d %s could not be delivered in time and are lost [RAGEVAL-606]", lost, self.otlp.what
            )
        return in_time and self._delivered_everything(own)

    def stats(self) -> Mapping[str, int]:
        """Return the counts of what our own provider sent; empty for a provider of the application."""
        return self._final_stats if self._own is None else self._own.sent.stats()

    def _delivered_everything(self, own: OwnProvider) -> bool:
        """Return True if nothing waits and nothing was lost since this was asked last."""
        stats = own.sent.stats()
        undelivered = stats["rejected"] + stats["lost"] + stats["dropped"]
        new, self._undelivered = undelivered - self._undelivered, undelivered
        return stats["queued"] == 0 and new == 0

    def _in_time(self, call: Callable[[], object], timeout: float) -> bool:
        """Return True if a call of the provider ended in time and did not return False."""
        deadline = time.monotonic() + timeout
        # A call that hangs stays on its thread: each further one would add a thread.
        if not self._idle.wait(timeout):
            return False
        idle = self._idle
        idle.clear()

        def run() -> object:
            try:
                return call()
            finally:
                idle.set()

        try:
            return within(run, remaining(deadline)) is not False
        except TimeoutError:
            return False
        except Exception as error:
            # The SDK's meter provider raises if one of its readers fails. The SDK has logged why.
            _logger.debug("rageval-hooks: %s could not be flushed: %r", self.otlp.what, error)
            return False
