"""The limits of a budget, such as ``calls_per_day``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from rageval_hooks.errors import UnknownNameError

__all__ = ["Limit", "Unit", "parse_limits"]

Unit = Literal["calls", "tokens", "usd"]

_PERIODS: Final[dict[str, int]] = {"minute": 60, "day": 86_400}
_KINDS: Final[dict[str, tuple[Unit, str]]] = {
    f"{unit}_per_{period}": (unit, period) for unit in ("calls", "tokens", "usd") for period in _PERIODS
}


class Limit(NamedTuple):
    """One limit of a budget.

    Attributes:
        name: ``calls_per_minute``, ``usd_per_day`` …
        unit: what is counted.
        seconds: the period. A period begins with a full minute, or at 00:00 UTC.
        amount: how much may be used in a period.
    """

    name: str
    unit: Unit
    seconds: int
    amount: float

    def __str__(self) -> str:
        """Return the limit in words: ``5 USD per day``."""
        unit = "USD" if self.unit == "usd" else self.unit
        return f"{self.amount:g} {unit} per {self.name.rpartition('_')[2]}"


def parse_limits(given: Mapping[str, float]) -> tuple[Limit, ...]:
    """Return the limits of a setting such as ``{"calls_per_day": 1000}``.

    Raises:
        UnknownNameError: a limit has another name; the message lists the valid ones.
    """
    limits = []
    for name, amount in given.items():
        if name not in _KINDS:
            raise UnknownNameError("limit in judge_budget", name, _KINDS)
        unit, period = _KINDS[name]
        limits.append(Limit(name, unit, _PERIODS[period], amount))
    return tuple(limits)
