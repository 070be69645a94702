"""Scoring rows in memory: data frames, lists and files in, a data frame out."""

from rageval_hooks.offline.dataset.rows import turn_of
from rageval_hooks.offline.dataset.scoring import score_rows

__all__ = ["score_rows", "turn_of"]
