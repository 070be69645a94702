"""From recorded runs to a turn: question, answer, passages, model calls, steps and outcome. Pure functions."""

from rageval_hooks.integrations.langchain.turn_building.passages import EarlierSearches
from rageval_hooks.integrations.langchain.turn_building.question import query_of
from rageval_hooks.integrations.langchain.turn_building.status import is_control_flow, is_waiting
from rageval_hooks.integrations.langchain.turn_building.turn import IDENTITY_KEYS, turn_from_runs

__all__ = ["IDENTITY_KEYS", "EarlierSearches", "is_control_flow", "is_waiting", "query_of", "turn_from_runs"]
