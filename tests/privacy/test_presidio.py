"""Presidio's pattern recognisers, where it is installed; here, recognisers of the same form."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rageval_hooks.privacy.redactor import PatternRedactor, presidio_recognizers, redact_by_recognizers


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


class UsSsnRecognizer(Found):
    """Needs no arguments, as most recognisers of Presidio do."""

    def __init__(self) -> None:
        super().__init__("US_SSN", "536-90-4399", 0.85)


class UrlRecognizer(Found):
    """Finds what the built-in redactor leaves: addresses of pages."""

    def __init__(self) -> None:
        super().__init__("URL", "example.org", 0.85)


def test_patterns_of_presidio_are_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its recogniser of addresses, which downloads a list, and those that need arguments."""
    kinds = SimpleNamespace(Found=Found, UsSsnRecognizer=UsSsnRecognizer, UrlRecognizer=UrlRecognizer)
    package = SimpleNamespace(PatternRecognizer=Found, predefined_recognizers=kinds)
    monkeypatch.setitem(sys.modules, "presidio_analyzer", package)  # type: ignore[arg-type]
    presidio_recognizers.cache_clear()
    text = "jane@example.com, 536-90-4399, example.org"
    try:
        assert PatternRedactor()(text) == "<EMAIL_ADDRESS>, <US_SSN>, example.org"
        assert PatternRedactor(presidio=False)(text) == "<EMAIL_ADDRESS>, 536-90-4399, example.org"
    finally:
        presidio_recognizers.cache_clear()
