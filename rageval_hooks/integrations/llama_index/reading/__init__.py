"""From recorded spans and events to a turn: answer, passages, model calls, steps and outcome. Pure functions."""

from rageval_hooks.integrations.llama_index.reading.earlier_tools import EarlierTools
from rageval_hooks.integrations.llama_index.reading.turn import turn_from_events

__all__ = ["EarlierTools", "turn_from_events"]
