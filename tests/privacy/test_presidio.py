"""Presidio's pattern recognisers, where it is installed; here, recognisers of the same form."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rageval_hooks.privacy.redactor import redact_by_recognizers


class Found:
    """A recogniser with a fixed result for each word."""

    def __init__(self, kind: str, word: str, score: float) -> None:
        self.supported_entities = [kind]
        self._word, self._score = word, score

    def analyze(self, text: str, entities: list[str], nlp_artifacts: Any) -> list[Any]:
        start = text.find(self._word)
        end = start + len(self._word)
        return [SimpleNamespace(entity_type=entities[0], start=start, end=end, score=self._score)] if start >= 0 else []


def test_certain_results_are_replaced() -> None:
    """Of those that overlap, the most certain one; uncertain ones, such as any nine digits, stay."""
    found = [Found("US_SSN", "536-90-4399", 0.85), Found("PART", "90-4399", 0.6), Found("BANK", "12", 0.1)]

    assert redact_by_recognizers("12: 536-90-4399.", found) == "12: <US_SSN>."
