"""Chunks that belong together: those that share rare words and names, as candidates for questions about both."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import chain

from rageval_hooks.offline.testsets.chunks import Chunk
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import blank_marks, weighted_lines

# Cosine similarities. Below the first, two chunks share no more than a common word; above the second they say the same.
_LEAST, _MOST = 0.05, 0.85
# A word in more than this share of the chunks says nothing about which of them belong together.
_COMMON = 0.2
# In a small collection every word is in a large share of the chunks.
_ALWAYS_RARE = 5


class ChunkIndex:
    """Finds the chunks of a collection that are similar to a text, by the words that both have.

    Names and numbers count twice, and rare words more than frequent ones. No model is needed.

    Args:
        chunks: the whole collection, also the chunks that no question is asked about.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = list(chunks)
        self._positions = {chunk.id: position for position, chunk in enumerate(self._chunks)}
        counted = [_words(chunk.text) for chunk in self._chunks]
        self._frequencies = Counter(chain.from_iterable(counted))
        self._vectors = [self._vector(words) for words in counted]
        self._chunks_with: defaultdict[str, list[int]] = defaultdict(list)
        for position, vector in enumerate(self._vectors):
            for word in vector:
                self._chunks_with[word].append(position)

    @cached_property
    def digest(self) -> str:
        """A hash of all texts: it changes with the collection."""
        digest = blake2b(digest_size=8)
        for text in sorted(chunk.text for chunk in self._chunks):
            digest.update(blake2b(text.encode(), digest_size=16).digest())
        return digest.hexdigest()

    def nearest(self, text: str, most: int) -> list[Chunk]:
        """Return the chunks that are most similar to a text, the most similar first; none that share no rare word."""
        found = self._similarities(self._vector(_words(text)))
        return [self._chunks[position] for position in _best(found)[:most]]

    def linked(self, chunk: Chunk, most: int = 1) -> list[Chunk]:
        """Return the chunks that a question could connect with a chunk, the best first.

        Chunks of other documents come first. Copies of the chunk are not linked to it.
        """
        own = self._positions[chunk.id]
        found = self._similarities(self._vectors[own])
        usable = {other: value for other, value in found.items() if other != own and _LEAST <= value <= _MOST}
        best = [self._chunks[position] for position in _best(usable)]
        # A stable sort keeps the order by similarity within both groups.
        best.sort(key=lambda other: other.document == chunk.document)
        return best[:most]

    def _similarities(self, vector: Mapping[str, float]) -> dict[int, float]:
        found: defaultdict[int, float] = defaultdict(float)
        for word, weight in vector.items():
            for position in self._chunks_with.get(word, ()):
                found[position] += weight * self._vectors[position][word]
        return found

    def _vector(self, words: Mapping[str, float]) -> dict[str, float]:
        """Return the weights of the rare words, as a vector of length 1."""
        total = len(self._chunks)
        limit = max(_ALWAYS_RARE, _COMMON * total)
        weights = {
            word: weight * math.log(1 + total / self._frequencies[word])
            for word, weight in words.items()
            if 0 < self._frequencies[word] <= limit
        }
        length = math.sqrt(sum(weight * weight for weight in weights.values()))
        return {word: weight / length for word, weight in weights.items()}


def _words(text: str) -> dict[str, float]:
    """Return the content words of a text with their weights: 2 for names and numbers, 1 for others."""
    lines = weighted_lines(blank_marks(text), sentence_spans(text))
    found: dict[str, float] = {}
    for word in chain.from_iterable(line.words for line in lines):
        if word.is_content:
            found[word.key] = max(word.weight, found.get(word.key, 0.0))
    return found


def _best(similarities: Mapping[int, float]) -> list[int]:
    """Return positions by similarity; equal ones in the order of the collection."""
    return sorted(similarities, key=lambda position: (-similarities[position], position))
