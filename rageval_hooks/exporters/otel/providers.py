"""Where an OpenTelemetry signal goes: the application's provider, or one of our own for an OTLP endpoint.

The SDK's batch processors discard the results of their exporters and ignore the timeout of ``force_flush``. Providers
of our own have a delivery queue instead, which counts every span and log event until its fate is known: flush and
shutdown tell the truth.
"""

from __future__ import annotations

import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

from rageval_hooks.exporters.delivery_queue import DeliveryQueue, Item, PostError, RejectedError, UnavailableError
from rageval_hooks.exporters.otlp_places import uses_grpc
from rageval_hooks.exporters.phoenix import phoenix_collector
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.time_limit import remaining, within
from rageval_hooks.score import Evaluation

_logger = logging.getLogger(__name__)

SCOPE = "rageval_hooks"
"""The instrumentation scope of everything that we write."""

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""The version of the GenAI conventions that our attribute names follow. They have a repository of their own, whose
manifest declares this URL; there is no stable release yet."""

_DEFAULT_QUEUE = 2048
_MAX_REQUEST = 768 * 2**10
"""Bytes of the items in a request, so that it is below the limits that are usual: 1 MiB in proxies, 4 MiB over gRPC."""

_BARE_ITEM = 300
_PER_TEXT = 4
"""About how many bytes a span or log event has without its texts, and how many each text adds to its own."""

_TOO_LARGE = 413
_GRPC_LOGGER = "opentelemetry.exporter.otlp.proto.grpc.exporter"
# For example "RESOURCE_EXHAUSTED, error details: Received message larger than max (5242880 vs. 4194304)". The same code
# without these words means that the collector is overloaded.
_TOO_LARGE_FOR_GRPC = re.compile(r"RESOURCE_EXHAUSTED.*(larger than max|exceeds maximum size)", re.DOTALL)

_COUNTERS = ("queued", "delivered", "rejected", "lost", "dropped", "dropped_by_size")
_TOGETHER, _ONE_BY_ONE = "together", "one by one"

Provider = TypeVar("Provider")
Writer = TypeVar("Writer")


class QueuedExporter:
    """An OTLP exporter of the SDK behind a delivery queue, which counts what becomes of each item.

    Processors and readers use it as their exporter, and the queue as its destination. A full queue refuses new items.
    The SDK's own would drop the oldest without telling, and their number would be unknown.

    Args:
        what: what the items are.
        name: the queue's name in metrics.
        capacity: items that may wait.

    Attributes:
        exporter: sends a batch.
        transport: "http" or "grpc".
        provider: our own provider, which uses this exporter. The worker's drain at exit shuts it down: a second exit
            handler, the SDK's, could take longer than allowed.
    """

    exporter: Any
    provider: Any
    transport: str = "http"

    def __init__(self, what: str, name: str, capacity: int) -> None:
        self.queue = DeliveryQueue(name, lambda: self, capacity=capacity, what=what, max_request=_MAX_REQUEST)
        self._status = self._rejected = 0

    def export(self, batch: Any, *_: Any, **__: Any) -> None:
        """Queue spans or log events, or the current values of all metrics, which are one item."""
        is_list = isinstance(batch, Sequence)
        for item in batch if is_list else [batch]:
            attributes: Mapping[str, Any] = getattr(getattr(item, "log_record", item), "attributes", None) or {}
            texts = [text for name, value in attributes.items() for text in (name, value) if isinstance(text, str)]
            size = _BARE_ITEM + sum(len(text.encode(errors="replace")) + _PER_TEXT for text in texts)
            name = getattr(item, "name", "")
            self.queue.put([Item(route=_TOGETHER if is_list else _ONE_BY_ONE, name=name, body=item, size=size)])

    def post(self, route: str, bodies: Sequence[Any]) -> list[PostError | None]:
        """Send queued items, and return the error of each.

        Raises:
            RejectedError: the request is too large; a part of it may be accepted.
        """
        if route == _TOGETHER:
            return self._send(bodies, len(bodies))
        errors = list[PostError | None]()
        for body in bodies:
            try:
                errors += self._send(body, 1)
            except RejectedError as error:
                errors.append(error)
        # The next export of metrics has the same counts, and newer ones: an old one is not sent again.
        return [PostError(str(error)) if isinstance(error, UnavailableError) else error for error in errors]

    def _send(self, batch: Any, amount: int) -> list[PostError | None]:
        self._status = self._rejected = 0
        if self.exporter.export(batch).name == "SUCCESS":
            rejected = min(self._rejected, amount)  # the collector does not say which
            return [RejectedError("rejects a part of what it gets")] * rejected + [None] * (amount - rejected)
        if self._status == _TOO_LARGE:
            raise RejectedError(f"answers {_TOO_LARGE}: it is too large")
        # A collector that refuses the data itself would refuse it again.
        if 400 <= self._status < 500 and self._status not in (408, 425, 429):
            return [RejectedError(f"answers {self._status}")] * amount
        # The SDK's exporter has tried again for some seconds: a server that is restarted takes longer. Over gRPC it may
        # be a refusal.
        may_be_refusal = self.transport == "grpc" or self._status >= 500
        return [UnavailableError("cannot be reached", by_server=may_be_refusal)] * amount

    def __repr__(self) -> str:
        return "the OTLP endpoint"

    def hand_over(self, route: str, bodies: Sequence[Any]) -> bool:
        """Return False: a collector has no queue for what it does not accept."""
        return False

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

    def read_log(self, record: logging.LogRecord) -> bool:
        """Keep the fact that a message was too large, which exporters over gRPC only log: a filter of their logger."""
        if _TOO_LARGE_FOR_GRPC.search(record.getMessage()):
            self._status = _TOO_LARGE
        return True

    def force_flush(self, *_: Any, **__: Any) -> bool:
        """Do nothing: the queue is flushed by itself."""
        return True

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Do nothing: the provider ends first, and then the queue."""

    def close(self) -> None:
        """Close the exporter, at the end of the queue."""
        logging.getLogger(_GRPC_LOGGER).removeFilter(self.read_log)
        self.exporter.shutdown()

    def stats(self) -> dict[str, int]:
        """Return the counts of items."""
        counts = self.queue.stats()
        return {name: counts[name] for name in _COUNTERS}


_own: dict[str, QueuedExporter | None] = {}
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
        self._own: QueuedExporter | None = None
        self._final_stats: Mapping[str, int] = {}

    @abstractmethod
    def export(self, evaluation: Evaluation) -> bool:
        """Write what an evaluation says. Returns False if there is nowhere to write it."""

    @abstractmethod
    def _global_provider(self) -> Provider | None:
        """Return the application's global provider; None if it has set none."""

    @abstractmethod
    def _make_provider(self, sent: QueuedExporter) -> Any:
        """Return a provider of our own that sends through an exporter."""

    @abstractmethod
    def _make_writer(self, provider: Provider) -> Writer:
        """Return what writes to a provider that was not used before."""

    def use(self, given: Provider | None) -> None:
        """Write to another provider of the application from now on; None for the global one."""
        self._given = given

    def prepare(self) -> None:
        """Make our own provider now, unless the application has one: at exit it would be too late."""
        self.provider()

    def writer(self) -> Writer | None:
        """Return what writes to the provider; None if there is no provider."""
        provider = self.provider()
        # Applications set their provider late, and tests replace it.
        if provider is not None and provider is not self._provider:
            EXIT_DRAIN.run_before(provider)
            self._provider, self._writer = provider, self._make_writer(provider)
        return None if provider is None else self._writer

    def provider(self) -> Any:
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

    def _own_exporter(self, options: dict[str, Any]) -> QueuedExporter | None:
        if self.variable in _own:
            return _own[self.variable]
        try:
            capacity = max(1, int(os.environ.get(self.capacity, "")))
        except ValueError:
            capacity = _DEFAULT_QUEUE
        sent = QueuedExporter(self.what, self.queue, capacity)
        _own[self.variable] = None
        transport = sent.transport = "grpc" if uses_grpc(self.variable) else "http"
        try:
            if transport == "http":
                # Over gRPC, a refusal for another reason than the size cannot be told from a loss.
                import requests

                options["session"] = requests.Session()
                options["session"].hooks["response"].append(sent.read_response)
            else:
                # The first one: the SDK's own hides all but the first of several refusals in 20 seconds.
                logging.getLogger(_GRPC_LOGGER).filters.insert(0, sent.read_log)
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
        deadline = time.monotonic() + timeout
        in_time = self._flush(self._provider, timeout)
        return in_time if self._own is None else self._own.queue.flush(remaining(deadline)) and in_time

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
        deadline = time.monotonic() + timeout
        in_time = self._in_time(own.provider.shutdown, timeout)
        delivered = own.queue.close(remaining(deadline))
        self._final_stats = own.stats()
        return in_time and delivered

    def stats(self) -> Mapping[str, int]:
        """Return the counts of what our own provider sent; empty for a provider of the application."""
        return self._final_stats if self._own is None else self._own.stats()

    def _in_time(self, call: Callable[[], object], timeout: float) -> bool:
        """Return True if a call of the provider ended in time and did not return False."""
        try:
            return within(call, timeout) is not False
        except Exception as error:
            # It took too long, or one of the readers of a meter provider failed, and the SDK has logged why.
            _logger.debug("rageval-hooks: %s could not be flushed: %r", self.what, error)
            return False
