"""The words of a text in their order, sentence by sentence: what small differences are found with."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from rageval_hooks.text.limits import scan
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import words

__all__ = ["NOT", "WordSequence", "negations", "word_sequence"]

NOT: Final = "not"

# "don't", "isn’t", and "do n't" in tokenized text: the words of a text do not include contractions.
_CONTRACTED_NOT: Final = re.compile(r"(?<=[a-z ])n['’]t(?![^\W_])", re.IGNORECASE)


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
    return [found.start() for found in scan(_CONTRACTED_NOT, text, start, end)]


def word_sequence(text: str) -> WordSequence:
    """Return the words of a text in order."""
    found = [(word.start, word.key, text[word.start].isupper()) for word in words(text)]
    found += [(position, NOT, False) for position in negations(text)]
    found.sort()
    starts = [start for start, _ in sentence_spans(text)]
    return WordSequence(
        keys=tuple(key for _, key, _ in found),
        sentences=tuple(bisect_right(starts, start) for start, _, _ in found),
        capitals=tuple(capital for _, _, capital in found),
    )
