"""Where an OpenTelemetry signal goes: the application's provider, or one of our own for an OTLP endpoint.

The SDK's batch processors discard the results of their exporters and ignore the timeout of ``force_flush``. With
providers of our own, every span and log event is counted until its fate is known: flush and shutdown tell the truth.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

from rageval_hooks.exporters.otlp_places import uses_grpc
from rageval_hooks.exporters.phoenix import phoenix_collector
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.time_limit import within
from rageval_hooks.runtime.worker import BoundedQueue
from rageval_hooks.score import Evaluation

_logger = logging.getLogger(__name__)

SCOPE = "rageval_hooks"
"""The instrumentation scope of everything that we write."""

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""The version of the GenAI conventions that our attribute names follow. They have a repository of their own, whose
manifest declares this URL; there is no stable release yet."""

_DEFAULT_QUEUE = 2048
_MAX_BYTES = 128 * 2**20

Provider = TypeVar("Provider")
Writer = TypeVar("Writer")


class CountedExporter:
    """An exporter of the SDK, with a count of what became of each item. Processors and readers use it as the exporter.

    A full queue refuses new items. The SDK would drop the oldest without telling, and their number would be unknown.

    Args:
        name: what is counted.
        capacity: items that may wait.

    Attributes:
        exporter: sends a batch.
        provider: our own provider, which uses this exporter. The worker's drain at exit shuts it down: a second exit
            handler, the SDK's, could take longer than allowed.
    """

    exporter: Any
    provider: Any

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start from zero: what the parent had queued is still the parent's."""
        self._lock = threading.Lock()
        self._queue = BoundedQueue(self.name, self.capacity, _MAX_BYTES)
        PROCESS_TOTALS.watch(self._queue)
        self._counts: Counter[str] = Counter()
        self._status = self._rejected = 0

    def accept(self, attributes: Mapping[str, Any] | None) -> bool:
        """Count an item with these attributes as queued. Returns False, and counts a drop, if there is no room."""
        size = sum(len(value) for value in (attributes or {}).values() if isinstance(value, str))
        with self._lock:
            is_taken = self._queue.add(size)
        if not is_taken:
            PROCESS_TOTALS.add_dropped(self.name)
        return is_taken

    def export(self, batch: Any, *_: Any, **__: Any) -> Any:
        """Send a batch, count what became of it, and return the exporter's own result."""
        if isinstance(batch, Sequence):
            amount = len(batch)
        else:
            # The current value of every metric: exports are counted, not measurements.
            amount = 1
            self.accept(None)
        self._status = self._rejected = 0
        # Counted even if the exporter raises: items of unknown fate would never leave the count.
        success = False
        try:
            result = self.exporter.export(batch)
            success = result.name == "SUCCESS"
        finally:
            # A collector that refuses the data itself would refuse it again.
            is_refused = 400 <= self._status < 500 and self._status not in (408, 425, 429)
            rejected = min(self._rejected, amount) if success else amount if is_refused else 0
            self._settle("rejected", rejected)
            self._settle("delivered" if success else "lost", amount - rejected)
        return result

    def read_response(self, response: Any, *_: Any, **__: Any) -> None:
        """Keep the two details of the collector's answer that the SDK's exporters hide: a hook of ``requests``."""
        self._status = response.status_code
        if response.ok and response.content:
            # The answers for logs and for metrics have the same fields with the same numbers.
            from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

            try:
                answer = ExportTraceServiceResponse.FromString(response.content)
            except Exception:  # some collectors answer with JSON or a page
                return
            self._rejected = int(answer.partial_success.rejected_spans)

    def force_flush(self, *_: Any, **__: Any) -> bool:
        """Do nothing: the exporter keeps nothing back."""
        return True

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Close the exporter."""
        self.exporter.shutdown()

    def give_up(self) -> int:
        """Count everything that still waits as lost; returns how much that was."""
        lost = self._queue.pending
        self._settle("lost", lost)
        return lost

    def stats(self) -> dict[str, int]:
        """Return the counts of items: queued, delivered, rejected, lost and dropped."""
        with self._lock:
            queue = self._queue
            fates = {name: self._counts[name] for name in ("delivered", "rejected", "lost")}
            dropped = {"dropped": queue.dropped, "dropped_by_size": queue.dropped_by_size}
            return {"queued": queue.pending, **fates, **dropped}

    def _settle(self, fate: str, amount: int) -> None:
        with self._lock:
            # After `give_up` an answer may still come for items that were counted as lost.
            amount = min(amount, self._queue.pending)
            self._counts[fate] += amount
            for _ in range(amount):
                # The sizes of single items are not kept: those that leave count with the mean.
                self._queue.remove(self._queue.pending_bytes // self._queue.pending)


_own: dict[str, CountedExporter | None] = {}
"""The exporters of our own providers by signal, for all exporters; None if the OTLP exporter is not installed."""


class OtelSignal(ABC, Generic[Provider, Writer]):
    """Spans, log events or metrics.

    They go to the provider of the application, which may be set later, or else to one of our own for the OTLP endpoint
    of the standard variables. A global provider is never set.

    Args:
        given: the application's provider; None for the global one.

    Attributes:
        what: what the signal consists of, for log lines.
        variable: the signal's name in variables, as in ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``.
        otlp_exporter: module and class of its exporter, below ``opentelemetry.exporter.otlp.proto.http`` or ``.grpc``.
        queue: the name of its queue in metrics.
        capacity: the variable with the number of items that may wait.
    """

    what: ClassVar[str]
    variable: ClassVar[str]
    otlp_exporter: ClassVar[tuple[str, str]]
    queue: ClassVar[str]
    capacity: ClassVar[str] = ""

    def __init__(self, given: Provider | None = None) -> None:
        self._given = given
        self._provider: Provider | None = None
        self._writer: Writer | None = None
        self._own: CountedExporter | None = None
        self._undelivered = 0
        self._final_stats: Mapping[str, int] = {}

    @abstractmethod
    def export(self, evaluation: Evaluation) -> bool:
        """Write what an evaluation says. Returns False if there is nowhere to write it."""

    @abstractmethod
    def _global_provider(self) -> Provider | None:
        """Return the application's global provider; None if it has set none."""

    @abstractmethod
    def _make_provider(self, sent: CountedExporter) -> Any:
        """Return a provider of our own that sends through an exporter."""

    @abstractmethod
    def _make_writer(self, provider: Provider) -> Writer:
        """Return what writes to a provider that was not used before."""

    def prepare(self) -> None:
        """Make our own provider now, unless the application has one: at exit it would be too late."""
        self._find_provider()

    def writer(self) -> Writer | None:
        """Return what writes to the provider; None if there is no provider."""
        provider = self._find_provider()
        # Applications set their provider late, and tests replace it.
        if provider is not None and provider is not self._provider:
            EXIT_DRAIN.run_before(provider)
            self._provider, self._writer = provider, self._make_writer(provider)
        return None if provider is None else self._writer

    def _find_provider(self) -> Any:
        """Return the application's provider, or else our own; None without either."""
        provider = self._given or self._global_provider()
        if provider is not None:
            self._own = None
            return provider
        if self._own is None:
            # The variable for all signals counts for traces only: what listens there is often a Phoenix or a Jaeger,
            # which would refuse everything else.
            is_traces = self.variable == "TRACES"
            names = ["OTEL_EXPORTER_OTLP_ENDPOINT"] if is_traces else []
            has_endpoint = any(map(os.environ.get, [f"OTEL_EXPORTER_OTLP_{self.variable}_ENDPOINT", *names]))
            place = phoenix_collector() if is_traces and not has_endpoint else None
            if has_endpoint or place is not None:
                options = {} if place is None else {"endpoint": place.url, "headers": dict(place.headers)}
                self._own = self._own_exporter(options)
        return None if self._own is None else self._own.provider

    def _own_exporter(self, options: dict[str, Any]) -> CountedExporter | None:
        if self.variable in _own:
            return _own[self.variable]
        try:
            capacity = max(1, int(os.environ.get(self.capacity, "")))
        except ValueError:
            capacity = _DEFAULT_QUEUE
        sent = CountedExporter(self.queue, capacity)
        _own[self.variable] = None
        transport = "grpc" if uses_grpc(self.variable) else "http"
        try:
            if transport == "http":
                # Over gRPC a refusal cannot be told from a loss.
                import requests

                options["session"] = requests.Session()
                options["session"].hooks["response"].append(sent.read_response)
            module, name = self.otlp_exporter
            exporters = import_module(f"opentelemetry.exporter.otlp.proto.{transport}.{module}")
            sent.exporter = getattr(exporters, name)(**options)
        except ImportError as error:
            _logger.warning(
                "rageval-hooks: an OTLP endpoint is set, but its exporter is not installed (%s): "
                'pip install "rageval-hooks[otlp]" [RAGEVAL-102]',
                error,
            )
        else:
            sent.provider = self._make_provider(sent)
            _own[self.variable] = sent
        return _own[self.variable]

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
        _own.pop(self.variable, None)
        in_time = self._in_time(own.provider.shutdown, timeout)
        lost = own.give_up()
        self._final_stats = own.stats()
        if lost:
            _logger.warning(
                "rageval-hooks: %d %s could not be delivered in time and are lost [RAGEVAL-606]", lost, self.what
            )
        return in_time and self._delivered_everything(own)

    def stats(self) -> Mapping[str, int]:
        """Return the counts of what our own provider sent; empty for a provider of the application."""
        return self._final_stats if self._own is None else self._own.stats()

    def _delivered_everything(self, own: CountedExporter) -> bool:
        """Return True if nothing waits and nothing was lost since this was asked last."""
        stats = own.stats()
        undelivered = stats["rejected"] + stats["lost"] + stats["dropped"]
        new, self._undelivered = undelivered - self._undelivered, undelivered
        return stats["queued"] == 0 and new == 0

    def _in_time(self, call: Callable[[], object], timeout: float) -> bool:
        """Return True if a call of the provider ended in time and did not return False."""
        try:
            return within(call, timeout) is not False
        except Exception as error:
            # It took too long, or one of the readers of a meter provider failed, and the SDK has logged why.
            _logger.debug("rageval-hooks: %s could not be flushed: %r", self.what, error)
            return False
