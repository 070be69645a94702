"""Two files, question by question: how scores differ, what the second lacks, which turns changed most."""

from rageval_hooks.offline.report.comparison.changes import ChangedTurn, Comparison, Loss, OtherMakers, ScoreChange
from rageval_hooks.offline.report.comparison.compare import compare_files

__all__ = ["ChangedTurn", "Comparison", "Loss", "OtherMakers", "ScoreChange", "compare_files"]
