"""LlamaIndex and its workflows: a pure ``turn_from_events`` and two thin handlers of its instrumentation dispatcher.

The outermost span is the turn: a query, a chat's message, the run of an agent or a workflow, or a function of the
application's own. It ends with that span, or, where the answer is streamed, when its last word was read, its reader has
closed it, or nobody holds it any more. A synchronous call returns when the local scores are there. In an event loop
the dispatcher has nothing that could be awaited: there the turn is handed to a thread, and the call does not wait for
it; only the end of an asynchronous stream does.

Needs ``llama_index_instrumentation`` only, which llama-index-core brings along and which is light: nothing in here
imports llama-index-core itself, whose import takes seconds.
"""

try:
    import llama_index_instrumentation  # noqa: F401 - only to see whether it is there
except ImportError as error:
    from rageval_hooks.errors import MissingDependencyError

    raise MissingDependencyError("llama-index-core>=0.14", "llama-index", "the LlamaIndex integration") from error

from rageval_hooks.integrations.llama_index.events import turn_from_events
from rageval_hooks.integrations.llama_index.handler import attach, detach

__all__ = ["attach", "detach", "turn_from_events"]
