"""Budgets for a judge: calls, tokens and money per minute and per day, shared by processes of a host or a fleet."""

from rageval_hooks.budgets.errors import BudgetSpentError, BudgetUnavailableError
from rageval_hooks.budgets.judge import SharedBudgetJudge, with_budget
from rageval_hooks.budgets.limits import Limit, parse_limits

__all__ = [
    "BudgetSpentError",
    "BudgetUnavailableError",
    "Limit",
    "SharedBudgetJudge",
    "parse_limits",
    "with_budget",
]
