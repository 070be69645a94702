"""LlamaIndex and its workflows: two handlers on its instrumentation dispatcher, and the pure ``turn_from_events``.

Read ``handler`` (spans and events become runs), then ``streams`` (when a turn is over), then ``turn_building`` (runs
become a turn) with ``passages`` (which passages) and ``model_calls`` (which call wrote the answer). ``values`` reads
single values by attribute names.

The outermost span is the turn: a query, a chat message, the run of an agent or a workflow, or a decorated function of
the application. The turn ends with that span. If the answer is streamed, it ends when the last piece is read, or when
the reader closes or drops the stream. A synchronous call returns when the local scores are computed. In an event loop
the dispatcher has nothing to await, so the turn goes to a thread and the call does not wait; only the end of an
asynchronous stream waits.

This package needs ``llama_index_instrumentation`` only, which is light and comes with llama-index-core. It does not
import llama-index-core, which takes seconds.
"""

try:
    import llama_index_instrumentation  # noqa: F401 - only to check that it is installed
except ImportError as error:
    from rageval_hooks.errors import MissingDependencyError

    raise MissingDependencyError("llama-index-core>=0.14", "llama-index", "the LlamaIndex integration") from error

from rageval_hooks.integrations.llama_index.handler import attach, detach
from rageval_hooks.integrations.llama_index.turn_building import turn_from_events

__all__ = ["attach", "detach", "turn_from_events"]
