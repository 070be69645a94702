"""How much a score file says about each score: its explanation and its evidence, or the number alone."""

from __future__ import annotations

from typing import Literal

from rageval_hooks.score import Result, Score

__all__ = ["Details", "with_details"]

Details = Literal["none", "failed", "all"]
"""Which scores keep their explanation and metadata: none, those with the label ``fail``, or all."""


def with_details(result: Result, details: Details) -> Result:
    """Return a result with as much detail as is wanted. Skipped and failed results always keep their reason."""
    if details == "all" or not isinstance(result, Score):
        return result
    if details == "failed" and result.label == "fail":
        return result
    return result.model_copy(update={"explanation": None, "metadata": {}})
