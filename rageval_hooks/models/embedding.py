"""The embedding of a text: vectors of its windows and of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.words import words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.floating[Any]]
    IntArray = NDArray[np.int64]


_ROWS = 16
"""Tokens that are compared with those of another text in one product of matrices."""


@dataclass(frozen=True)
class TokenVectors:
    """Contextual token embeddings of a text: the model's last layer.

    Attributes:
        starts: the first character of each token, in order; shape (t,).
        ends: the character after each token; shape (t,).
        vectors: rows of length 1, without special tokens; shape (t, d).
    """

    starts: IntArray
    ends: IntArray
    vectors: FloatArray


@dataclass(frozen=True)
class Embedding:
    """The embedding of a text.

    Attributes:
        windows: the embedding of each window, rows of length 1; shape (w, d), w = 0 for a text without tokens.
        tokens: the tokens of all windows.
    """

    windows: FloatArray
    tokens: TokenVectors

    @classmethod
    def of(cls, windows: Sequence[tuple[FloatArray, TokenVectors]]) -> Embedding:
        """Combine the windows of one text."""
        import numpy as np

        if not windows:
            none = np.empty(0, np.int64)
            empty = np.empty((0, 0), np.float32)
            return cls(empty, TokenVectors(none, none, empty))
        return cls(
            np.stack([vector for vector, _ in windows]),
            TokenVectors(
                np.concatenate([tokens.starts for _, tokens in windows]),
                np.concatenate([tokens.ends for _, tokens in windows]),
                np.concatenate([tokens.vectors for _, tokens in windows]),
            ),
        )

    @staticmethod
    def together(embeddings: Sequence[Embedding]) -> Embedding:
        """Return the windows of several texts as one embedding, without tokens."""
        import numpy as np

        parts = [embedding.windows for embedding in embeddings if len(embedding.windows)]
        none = np.empty(0, np.int64)
        windows = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
        return Embedding(windows, TokenVectors(none, none, np.empty((0, 0), np.float32)))

    @cached_property
    def vector(self) -> FloatArray:
        """The mean of the windows, of length 1; shape (d,)."""
        return unit(self.windows.mean(axis=0)) if len(self.windows) > 1 else self.windows[0]

    @property
    def is_empty(self) -> bool:
        """True if the text has no tokens."""
        return not len(self.windows)

    @property
    def size(self) -> int:
        """Memory in bytes."""
        tokens = self.tokens
        return self.windows.nbytes + tokens.starts.nbytes + tokens.ends.nbytes + tokens.vectors.nbytes

    def cosine(self, other: Embedding) -> float:
        """Return the cosine of the two whole texts, -1..1; 0 if one of them has no tokens."""
        return 0.0 if self.is_empty or other.is_empty else float(self.vector @ other.vector)

    def best_cosine(self, other: Embedding) -> float:
        """Return the best cosine of a window with the other whole text, -1..1; 0 if one of them has no tokens."""
        return 0.0 if self.is_empty or other.is_empty else float((self.windows @ other.vector).max())


def unit(vectors: FloatArray) -> FloatArray:
    """Return the vectors, scaled to length 1."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.ascontiguousarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def best_cosines(tokens: FloatArray, others: FloatArray) -> FloatArray:
    """Return the best cosine of each token with any token of another text.

    Args:
        tokens: rows of length 1; shape (t, d).
        others: rows of length 1; shape (u, d), u > 0.

    Returns:
        Shape (t,).
    """
    import numpy as np

    best = np.full(len(tokens), -1.0, np.float32)
    # BLAS computes products of at most 2 ** 18 multiplications on the calling thread. For larger ones it wakes threads
    # that wait actively for one another on all cores, which takes far longer in a busy application.
    columns = max(1, min(len(others), 2**18 // (_ROWS * tokens.shape[1])))
    for left in range(0, len(tokens), _ROWS):
        part = tokens[left : left + _ROWS].astype(np.float32, copy=False)
        for right in range(0, len(others), columns):
            products = part @ others[right : right + columns].astype(np.float32, copy=False).T
            np.maximum(best[left : left + _ROWS], products.max(axis=1), out=best[left : left + _ROWS])
    return best


def keep_words(text: str, embedding: Embedding) -> Embedding:
    """Return the embedding with the tokens of words only, in half precision: 0.8 kB per token.

    Only words are compared with a passage, so no score changes, and the cache holds twice as many passages.
    """
    import numpy as np

    tokens = embedding.tokens
    found = list(words(text))
    if not found:
        return Embedding.together([embedding])
    # For each token, the last word that begins before the token's end; it is kept if the two overlap.
    starts = np.asarray([word.start for word in found])
    ends = np.asarray([word.end for word in found])
    word = np.maximum(np.searchsorted(starts, tokens.ends, side="left") - 1, 0)
    kept = (starts[word] < tokens.ends) & (ends[word] > tokens.starts)
    vectors = TokenVectors(tokens.starts[kept], tokens.ends[kept], tokens.vectors[kept].astype(np.float16))
    return Embedding(embedding.windows, vectors)
