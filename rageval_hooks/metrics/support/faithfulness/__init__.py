"""The formula of ``faithfulness``: what speaks for and against support, and the fitted weights."""

from rageval_hooks.metrics.support.faithfulness.differences import Claim, Comparison, Differences
from rageval_hooks.metrics.support.faithfulness.formula import Evidence, Formula, faithfulness_formula, features

__all__ = ["Claim", "Comparison", "Differences", "Evidence", "Formula", "faithfulness_formula", "features"]
