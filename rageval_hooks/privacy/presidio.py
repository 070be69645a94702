"""The pattern recognisers of Presidio, if it is installed. Its language models are not used."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

# A pattern that needs words around it to be certain, such as any number of nine digits, scores less.
_LEAST_SCORE = 0.5
# These download the list of top-level domains, or are in the ready redactor with fewer false alarms.
_NOT_USED = frozenset(
    {"EmailRecognizer", "UrlRecognizer", "PhoneRecognizer", "DateRecognizer", "IpRecognizer", "CreditCardRecognizer"}
    | {"UuidRecognizer"}  # ids of runs, documents and sessions
)


class PresidioPatterns:
    """Replaces what Presidio's patterns recognise, such as ``<US_SSN>``.

    Args:
        recognizers: pattern recognisers of Presidio.
    """

    def __init__(self, recognizers: Sequence[Any]) -> None:
        self._recognizers = recognizers

    def __call__(self, text: str) -> str:
        """Return a text without what was recognised."""
        found: list[Any] = []
        for recognizer in self._recognizers:
            found += recognizer.analyze(text, recognizer.supported_entities, None) or ()
        # Of results that overlap, the most certain one is taken.
        certain = [result for result in found if result.score >= _LEAST_SCORE]
        certain.sort(key=lambda result: (-result.score, result.start))
        taken: list[Any] = []
        for result in certain:
            if not any(_overlap(result, other) for other in taken):
                taken.append(result)
        # From the end, so that the positions before it stay valid.
        for result in sorted(taken, key=lambda result: -result.start):
            text = f"{text[: result.start]}<{result.entity_type}>{text[result.end :]}"
        return text


def _overlap(one: Any, other: Any) -> bool:
    return bool(one.start < other.end and other.start < one.end)


@cache
def presidio_patterns() -> PresidioPatterns | None:
    """Return the recognisers that need no language model; None if Presidio is not installed."""
    try:
        from presidio_analyzer import PatternRecognizer, predefined_recognizers
    except ImportError:
        return None
    recognizers: list[Any] = []
    for _, kind in inspect.getmembers(predefined_recognizers, inspect.isclass):
        if issubclass(kind, PatternRecognizer) and kind.__name__ not in _NOT_USED:
            with suppress(Exception):  # an abstract class, or one that needs a service
                recognizers.append(kind())
    return PresidioPatterns(recognizers)
