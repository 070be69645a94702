"""Statements that the response negates and the passages do not, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rageval_hooks.metrics.support.faithfulness.line import Token
from rageval_hooks.text.sentences import Span
from rageval_hooks.text.sequence import NOT
from rageval_hooks.text.words import STOP_WORDS, stem

__all__ = ["negated_span", "negated_words", "plain_words"]

_NEGATING: Final = frozenset((NOT, "no", "never", "cannot", "without", "neither", "nor", stem("none")))
# "not only", "not just", "no longer", "no doubt": nothing of the passages is denied.
_HARMLESS: Final = frozenset(stem(word) for word in "only just merely necessarily doubt least matter".split())
_REACH: Final = 3
"""Words after a negation in which the word is that it negates."""

# "I do not, but it opened": what follows is not negated.
_BOUNDARIES: Final = frozenset("and but or that because if which who when while so".split())

_FUNCTION_KEYS: Final = frozenset(stem(word) for word in STOP_WORDS)


def negated_words(keys: Sequence[str]) -> set[str]:
    """Return the content words of a sentence that have a negation shortly before them."""
    return {keys[position] for position in _negated_positions(keys)}


def plain_words(keys: Sequence[str]) -> set[str]:
    """Return the content words of a sentence that no negation is about."""
    negated = set(_negated_positions(keys))
    return {key for position, key in enumerate(keys) if position not in negated and _is_content(key)}


def _negated_positions(keys: Sequence[str]) -> Iterator[int]:
    # Most sentences have no negation.
    if _NEGATING.isdisjoint(keys):
        return
    for position, key in enumerate(keys):
        # "No, it opened in 1869" answers a question.
        is_answer = key == "no" and position == 0
        if key in _NEGATING and not is_answer:
            yield from _negated_by(keys, position)


def _negated_by(keys: Sequence[str], position: int) -> Iterator[int]:
    """Yield the position of the word that a negation is about, if it is about one."""
    following = keys[position + 1 : position + 1 + _REACH]
    if following and following[0] in _HARMLESS:
        return
    for offset, key in enumerate(following, position + 1):
        if key in _BOUNDARIES:
            return
        if _is_content(key):
            yield offset
            return


def negated_span(line: Sequence[Token], key: str) -> Span:
    """Return where a word is in a sentence of the response, with the negation shortly before it if it has one."""
    position = next(number for number, token in enumerate(line) if token.key == key)
    before = line[max(0, position - _REACH) : position]
    start = next((token.start for token in before if token.key in _NEGATING), line[position].start)
    return start, line[position].end


def _is_content(key: str) -> bool:
    return len(key) > 2 and key not in _FUNCTION_KEYS and key not in _NEGATING
