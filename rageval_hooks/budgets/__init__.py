"""Budgets for a judge: calls, tokens and money per minute and per day, shared by processes of a host or a fleet."""

from rageval_hooks.budgets.judge import BudgetUsedUpError, SharedBudgetJudge, with_budget
from rageval_hooks.budgets.stores import BudgetUnavailableError, Limit, parse_limits

__all__ = [
    "BudgetUnavailableError",
    "BudgetUsedUpError",
    "Limit",
    "SharedBudgetJudge",
    "parse_limits",
    "with_budget",
]
