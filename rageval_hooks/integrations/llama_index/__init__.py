"""LlamaIndex and its workflows: a pure ``turn_from_events`` and two thin handlers of its instrumentation dispatcher.

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
