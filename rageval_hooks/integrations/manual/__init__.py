"""Turns that the application's own code marks with ``start_turn``: without a framework, or around calls to one.

``open_turn`` is what applications see, and imports nothing heavy. ``block`` records a turn.
"""

from rageval_hooks.integrations.manual.open_turn import OpenTurn, attach, detach, start_turn

__all__ = ["OpenTurn", "attach", "detach", "start_turn"]
