"""What an embedder makes of a text: vectors of its windows and of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rageval_hooks.runtime.cached import cached_property
from rageval_hooks.text.words import words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.floating[Any]]
    IntArray = NDArray[np.int64]

__all__ = ["Embedding", "TokenVectors", "keep_words", "unit"]


@dataclass(frozen=True)
class TokenVectors:
    """Contextual token embeddings of a text: the model's last layer.

    Attributes:
        starts: where each token begins in the text, in characters, in order; shape (t,).
        ends: where it ends; shape (t,).
        vectors: rows of length 1, without special tokens; shape (t, d).
    """

    starts: IntArray
    ends: IntArray
    vectors: FloatArray


@dataclass(frozen=True)
class Embedding:
    """A text as its model sees it.

    Attributes:
        windows: the embedding of each window, rows of length 1; shape (w, d), w = 0 for a text without tokens.
        tokens: the tokens of all windows.
    """

    windows: FloatArray
    tokens: TokenVectors

    @classmethod
    def of(cls, windows: Sequence[tuple[FloatArray, TokenVectors]]) -> Embedding:
        """Put windows together."""
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
        """Return all windows of several texts, as if they were one; without its tokens."""
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
        """Whether the model read nothing in the text."""
        return not len(self.windows)

    @property
    def size(self) -> int:
        """Bytes."""
        tokens = self.tokens
        return self.windows.nbytes + tokens.starts.nbytes + tokens.ends.nbytes + tokens.vectors.nbytes

    def cosine(self, other: Embedding) -> float:
        """Return the cosine with another text, each as a whole, -1..1; 0 if one of them has no tokens."""
        return 0.0 if self.is_empty or other.is_empty else float(self.vector @ other.vector)

    def best_cosine(self, other: Embedding) -> float:
        """Return the best cosine of a window of this text with another text as a whole, -1..1; 0 likewise."""
        return 0.0 if self.is_empty or other.is_empty else float((self.windows @ other.vector).max())


def unit(vectors: FloatArray) -> FloatArray:
    """Return the vectors, brought to length 1."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.ascontiguousarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def keep_words(text: str, embedding: Embedding) -> Embedding:
    """Return the embedding without the tokens that are no words, the others in half precision: 0.8 kB a token.

    What is compared with a passage are words, so nothing is lost, and twice as many passages fit a cache.
    """
    import numpy as np

    tokens = embedding.tokens
    found = list(words(text))
    if not found:
        return Embedding.together([embedding])
    starts = np.asarray([word.start for word in found])
    ends = np.asarray([word.end for word in found])
    word = np.maximum(np.searchsorted(starts, tokens.ends, side="left") - 1, 0)
    kept = (starts[word] < tokens.ends) & (ends[word] > tokens.starts)
    vectors = TokenVectors(tokens.starts[kept], tokens.ends[kept], tokens.vectors[kept].astype(np.float16))
    return Embedding(embedding.windows, vectors)
