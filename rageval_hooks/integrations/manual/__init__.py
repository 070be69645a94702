"""Turns that the application's own code marks with ``start_turn`` or ``rag_turn``, also around calls to a framework.

``open_turn`` is what applications see, and imports nothing heavy. ``block`` records a turn.
"""

from rageval_hooks.integrations.manual.open_turn import OpenTurn, attach, detach, start_turn
from rageval_hooks.integrations.manual.rag_turn import rag_turn

__all__ = ["OpenTurn", "attach", "detach", "rag_turn", "start_turn"]
