"""Where the counts of a budget are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from rageval_hooks.budgets.limits import Limit, Unit

__all__ = ["Amounts", "BudgetStore", "Refusal", "Reserved"]

Amounts = Mapping[Unit, float]
"""How much of each unit a call uses."""


class Refusal(NamedTuple):
    """A call does not fit.

    Attributes:
        limit: the limit that it would exceed.
        resets_in: seconds until the next period begins.
    """

    limit: Limit
    resets_in: float


class Reserved(NamedTuple):
    """A call was counted in advance.

    Attributes:
        windows: the number of the period in which it was counted, for each limit.
        used: what is used up now, for each limit.
    """

    windows: tuple[int, ...]
    used: tuple[float, ...]


class BudgetStore(Protocol):
    """Counts what is used in the periods of limits, for several processes. Safe to use from any thread.

    A period has a number: the time since the epoch divided by its length. If the clock goes back, what was counted
    before stays counted.
    """

    def reserve(self, limits: Sequence[Limit], amounts: Amounts) -> Reserved | Refusal:
        """Count a call in advance, if it fits into all limits. An amount of 0 fits unless the limit is used up.

        Raises:
            BudgetUnavailableError: the counts cannot be changed now.
        """

    def correct(self, limits: Sequence[Limit], windows: Sequence[int], changes: Amounts) -> tuple[float, ...]:
        """Replace what was counted in advance by what was used.

        Args:
            limits: the limits.
            windows: the periods in which the call was counted. If one is over, only an increase is counted.
            changes: what to add.

        Returns:
            What is used up now, for each limit.

        Raises:
            BudgetUnavailableError: the counts cannot be changed now.
        """
