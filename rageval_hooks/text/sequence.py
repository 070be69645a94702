"""The words of a text in their order, sentence by sentence: what small differences are found with."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rageval_hooks.text.limits import scan
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import words_of

__all__ = ["NOT", "WordSequence", "negations", "word_sequence"]

NOT: Final = "not"

# "don't", "isn’t", and "do n't" in tokenized text: the words of a text do not include contractions.
_CONTRACTED_NOT: Final = re.compile(r"(?<=[a-z ])n['’]t(?![^\W_])", re.IGNORECASE)
# The apostrophe of "n't" with its "t".
_APOSTROPHE_T: Final = re.compile(r"['’][tT]")


@dataclass(frozen=True, slots=True)
class WordSequence:
    """The keys of a text's words in order. It depends on the text only, so it can be cached.

    Attributes:
        keys: the keys; a contracted "not" is a separate word.
        sentences: per word, the number of its sentence.
        capitals: per word, True if it begins with a capital.
    """

    keys: tuple[str, ...]
    sentences: tuple[int, ...]
    capitals: tuple[bool, ...]

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        # Keys of known words are shared with the cache of stems.
        return 500 + 40 * len(self.keys)


def negations(text: str, start: int = 0, end: int | None = None) -> list[int]:
    """Return the positions of "n't" in ``text[start:end]``."""
    # Most texts have none, and this test takes a tenth of the time of the search.
    if _APOSTROPHE_T.search(text, start, len(text) if end is None else end) is None:
        return []
    return [found.start() for found in scan(_CONTRACTED_NOT, text, start, end)]


def word_sequence(text: str) -> WordSequence:
    """Return the words of a text in order."""
    words = words_of(text)
    starts, keys, capitals = list(words.starts), list(words.keys), list(words.capitals)
    for position in negations(text):
        place = bisect_right(starts, position)
        starts.insert(place, position)
        keys.insert(place, NOT)
        capitals.insert(place, False)
    return WordSequence(
        keys=tuple(keys),
        sentences=tuple(_sentence_numbers(starts, [start for start, _ in sentence_spans(text)])),
        capitals=tuple(capitals),
    )


def _sentence_numbers(words: Sequence[int], sentences: Sequence[int]) -> list[int]:
    """Return the number of the sentence of each word, counted from 1, given the starts of words and sentences."""
    numbers: list[int] = []
    for number, start in enumerate(sentences):
        # The words before this sentence that are in no earlier one are in the one before it.
        before = bisect_left(words, start)
        numbers += [number] * (before - len(numbers))
    return numbers + [len(sentences)] * (len(words) - len(numbers))
