"""Why a judge is not asked."""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.judges.client.admission import GateClosedError

__all__ = ["BudgetSpentError", "BudgetUnavailableError"]


class BudgetSpentError(GateClosedError):
    """The budget is used up."""

    kind: ClassVar[str] = "budget_spent"


class BudgetUnavailableError(GateClosedError):
    """The counts of the budget cannot be read or written now."""

    kind: ClassVar[str] = "budget_unavailable"
