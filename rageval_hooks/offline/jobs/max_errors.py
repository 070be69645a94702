"""``--max-errors N|P%``: how many failed questions are acceptable."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rageval_hooks.errors import ConfigurationError


@dataclass(frozen=True)
class MaxErrors:
    """A number of failed questions that is still acceptable: none by default.

    Attributes:
        count: the number; None if a share is given.
        share: share of all questions, from 0 to 1.
    """

    count: int | None = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str | None) -> MaxErrors:
        """Return what an option such as ``"3"`` or ``"5%"`` allows.

        Raises:
            ConfigurationError: it is neither a whole number nor a percentage.
        """
        if text is None:
            return cls()
        # "5%" is a share, "5" a number.
        number, is_share = text.strip().removesuffix("%"), text.strip().endswith("%")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        # NaN, which other text became above, fails every comparison.
        if is_share and 0 <= value <= 100:
            return cls(count=None, share=value / 100)
        if not is_share and value >= 0 and value.is_integer():
            return cls(count=int(value))
        raise ConfigurationError(
            f"--max-errors {text!r} should be a whole number such as 3, or a percentage such as 5%"
        )

    def allows(self, errors: int, total: int) -> bool:
        """Return True if so many of all questions may fail."""
        return errors <= (self.share * total if self.count is None else self.count)

    def __str__(self) -> str:
        """Return the number as the option has it."""
        return f"{self.share * 100:g}%" if self.count is None else str(self.count)
