"""Weigh the words of a sentence: a coarse inverse document frequency."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from rageval_hooks.text.sentences import Span
from rageval_hooks.text.words.readings import FUNCTION_WEIGHT
from rageval_hooks.text.words.splitting import Words, words, words_by_sentence

__all__ = ["Line", "WeighedWord", "weighed_lines", "weighed_words"]


class WeighedWord(NamedTuple):
    """A word of the response with its weight in every mean."""

    start: int
    end: int
    key: str
    weight: float
    readable: bool
    """True for Latin script, which MiniLM's English vocabulary can represent."""

    @property
    def is_content(self) -> bool:
        """True if the word is not a function word."""
        return self.weight > FUNCTION_WEIGHT


def weighed_words(text: str) -> list[WeighedWord]:
    """Return the words of a text that is one sentence, or a part of one, with weights; see :func:`weighed_lines`."""
    return _weighed(text, (0, len(text)), words(text))


class Line(NamedTuple):
    """A sentence with its words."""

    span: Span
    words: Sequence[WeighedWord]


def weighed_lines(text: str, spans: Sequence[Span]) -> list[Line]:
    """Return the words of each sentence with weights.

    Names and numbers weigh 2, other words 1, function words 0.25 (stop words, and lower-case words of one or two
    letters). A capitalised word counts as a name unless it opens the sentence or follows a colon.

    Args:
        text: a text, with its marks blanked (:func:`blank_marks`).
        spans: its sentences.
    """
    found = words_by_sentence(text, spans)
    return [Line(span, _weighed(text, span, words)) for span, words in zip(spans, found, strict=True)]


def _weighed(text: str, span: Span, found: Words) -> list[WeighedWord]:
    weights = [reading.weight for reading in found.readings]
    for position in _openings(text, span, found):
        weights[position] = found.readings[position].opening_weight
    readable = [reading.is_latin for reading in found.readings]
    return [*map(WeighedWord, found.starts, found.ends, found.keys, weights, readable)]


def _openings(text: str, span: Span, found: Words) -> set[int]:
    """Return the positions of the words that open the sentence or follow a colon."""
    openings = {0}
    colon = text.find(":", *span)
    while colon >= 0:
        openings.add(bisect_right(found.starts, colon))
        colon = text.find(":", colon + 1, span[1])
    # After the last word no word can open.
    openings.discard(len(found))
    return openings
