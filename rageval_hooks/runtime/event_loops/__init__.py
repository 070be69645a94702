"""Event loops: blocking calls on threads outside of them, and objects that belong to one loop."""

from rageval_hooks.runtime.event_loops.call_threads import CallThreads
from rageval_hooks.runtime.event_loops.per_loop import PerLoop

__all__ = ["CallThreads", "PerLoop"]
