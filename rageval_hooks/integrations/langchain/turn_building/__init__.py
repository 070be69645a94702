"""From recorded runs to a turn: question, answer, passages, model calls, steps and outcome. Pure functions."""

from rageval_hooks.integrations.langchain.turn_building.outcome import is_control_flow, is_waiting
from rageval_hooks.integrations.langchain.turn_building.passages import thread_of
from rageval_hooks.integrations.langchain.turn_building.turn import IDENTITY_KEYS, turn_from_runs, turn_of_conversation

__all__ = ["IDENTITY_KEYS", "is_control_flow", "is_waiting", "thread_of", "turn_from_runs", "turn_of_conversation"]
