"""``--max-errors N|P%``: how many failed questions are acceptable."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rageval_hooks.errors import ConfigurationError

# "3" is a number, "5%" and "2.5%" are shares.
_FORM = re.compile(r"(\d+)|(\d{1,2}(?:\.\d+)?|100) ?%")


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
        found = _FORM.fullmatch((text or "0").strip())
        if found is None:
            raise ConfigurationError(
                f"--max-errors {text!r} should be a whole number such as 3, or a percentage such as 5%"
            )
        count, percent = found.groups()
        return cls(int(count)) if count else cls(None, float(percent) / 100)

    def allows(self, errors: int, total: int) -> bool:
        """Return True if so many of all questions may fail."""
        return errors <= (self.share * total if self.count is None else self.count)

    def __str__(self) -> str:
        """Return the number as the option has it."""
        return f"{self.share * 100:g}%" if self.count is None else str(self.count)
