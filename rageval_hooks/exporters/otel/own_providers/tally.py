"""What became of the spans and log events that our own providers send.

The SDK's batch processors discard the results of their exporters and ignore the timeout of ``force_flush``. Here every
item is counted until its fate is known, so that flush and shutdown can tell the truth.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS

if TYPE_CHECKING:
    import requests

__all__ = ["Fate", "LastResponse", "Tally"]

Fate = Literal["delivered", "rejected", "lost"]

_COUNTED = ("delivered", "rejected", "lost", "dropped", "dropped_by_size")

_MAX_BYTES = 128 * 2**20


class LastResponse:
    """The collector's answer to the latest request over HTTP.

    The SDK's exporters reduce an answer to success or failure. A hook on their session keeps the two details that tell
    a rejected item from a lost one.

    Attributes:
        status: the HTTP status; None if there was no answer.
        rejected: items that the collector rejected in a partial success.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.rejected = 0

    def clear(self) -> None:
        """Forget the answer before the next request."""
        self.status, self.rejected = None, 0

    def read(self, response: requests.Response, *_: Any, **__: Any) -> None:
        """Read an answer; the signature is that of a ``requests`` response hook."""
        self.status = response.status_code
        self.rejected = _rejected_items(response.content) if response.ok else 0

    @property
    def refused(self) -> bool:
        """True if the collector refused the data itself: sending it again would not help."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in (408, 425, 429)


def _rejected_items(content: bytes) -> int:
    if not content:
        return 0
    # The answers for logs and for metrics have the same fields with the same numbers.
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        answer = ExportTraceServiceResponse.FromString(content)
    except Exception:  # some collectors answer with JSON or a page
        return 0
    return int(answer.partial_success.rejected_spans)


class Tally:
    """Counts items from the moment they are queued until their fate is known.

    A full queue refuses new items. The SDK would drop the oldest without telling, and their number would be unknown.

    Args:
        name: what is counted.
        capacity: items that may wait.
        max_bytes: their size. One item is always taken, whatever its size.
    """

    def __init__(self, name: str, capacity: int, max_bytes: int = _MAX_BYTES) -> None:
        self.name = name
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.reset_after_fork()
        reset_in_child(self)
        PROCESS_TOTALS.watch(self)

    def reset_after_fork(self) -> None:
        """Start from zero: what the parent had queued is still the parent's."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._queued = 0
        self._queued_bytes = 0.0

    @property
    def pending(self) -> int:
        """How many items wait."""
        return self._queued

    def accept(self, size: int = 0) -> bool:
        """Count an item as queued. Returns False, and counts it as dropped, if the queue is full.

        Args:
            size: about how many bytes it takes in memory.
        """
        with self._lock:
            is_too_large = self._queued > 0 and self._queued_bytes + size > self.max_bytes
            if self._queued < self.capacity and not is_too_large:
                self._queued += 1
                self._queued_bytes += size
                return True
            self._counts["dropped"] += 1
            self._counts["dropped_by_size"] += self._queued < self.capacity
        PROCESS_TOTALS.add_dropped(self.name)
        return False

    def report(self, amount: int, success: bool, response: LastResponse | None) -> None:
        """Count what an exporter did with a batch.

        Args:
            amount: items in the batch.
            success: True if the exporter said so.
            response: what the collector answered; None if that is unknown, as over gRPC.
        """
        if success:
            rejected = min(response.rejected, amount) if response is not None else 0
            self.settle("rejected", rejected)
            self.settle("delivered", amount - rejected)
        elif response is not None and response.refused:
            self.settle("rejected", amount)
        else:
            self.settle("lost", amount)

    def settle(self, fate: Fate, amount: int) -> None:
        """Count what became of queued items."""
        with self._lock:
            # After `give_up` an answer may still come for items that were counted as lost.
            amount = min(amount, self._queued)
            # The sizes of single items are not kept: those that leave count with the mean.
            self._queued_bytes -= self._queued_bytes * amount / max(1, self._queued)
            self._queued -= amount
            self._counts[fate] += amount

    def give_up(self) -> int:
        """Count everything that still waits as lost; returns how much that was."""
        with self._lock:
            lost, self._queued, self._queued_bytes = self._queued, 0, 0.0
            self._counts["lost"] += lost
        return lost

    def stats(self) -> dict[str, int]:
        """Return the counts."""
        with self._lock:
            return {"queued": self._queued, **{name: self._counts[name] for name in _COUNTED}}
