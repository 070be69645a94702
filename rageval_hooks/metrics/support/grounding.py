"""The formula of ``groundedness``: how far passages support a response, sentence by sentence.

Why this one: benchmarks/RESULTS.md, "Agreement with people".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.models.embedding import TokenVectors
from rageval_hooks.runtime.executors import model_executor
from rageval_hooks.text.passages import PassageIndex
from rageval_hooks.text.sentences import Span, sentence_spans
from rageval_hooks.text.words import WeighedWord, blank_marks, weighed_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.floating[Any]]
    IntArray = NDArray[np.int64]

__all__ = ["Grounding", "SentenceGrounding", "groundedness"]

COSINE_UNRELATED: Final = 0.3
COSINE_SAME: Final = 0.9
"""The best cosine of a word in an unrelated passage, and in one that says the same: mapped to 0 and 1."""

MAX_ALIGNED_CELLS: Final = 100_000_000
"""Response tokens times passage tokens (about 1 s of matrix product). Beyond it, alignment looks only at the
``FEW_WINDOWS`` windows of each sentence that share most words with it."""

MAX_KEPT_CELLS: Final = 10_000_000
"""Response tokens times windows (40 MB). Beyond it likewise."""

FEW_WINDOWS: Final = 3


@dataclass(frozen=True, slots=True)
class SentenceGrounding:
    """How well the passages support one sentence of the response."""

    span: Span
    score: float
    coverage: float
    """Weighed share of the words that occur in any passage."""
    alignment: float | None
    """Weighed mean of the words' best rescaled cosine in any passage; None in the lexical tier."""
    weight: float
    passage: int
    """Position of the passage that holds the best window."""
    missing: tuple[str, ...]
    """The content words that no passage has."""


@dataclass(frozen=True, slots=True)
class Grounding:
    """The turn's score, None where it cannot be computed (no passage, or no content word), and its sentences."""

    value: float | None
    sentences: tuple[SentenceGrounding, ...] = ()


def groundedness(
    response: str,
    passages: Sequence[PassageIndex],
    response_vectors: TokenVectors | None = None,
    passage_vectors: Sequence[TokenVectors] | None = None,
    sentences: Sequence[Span] | None = None,
) -> Grounding:
    """How far the passages support the response, 0..1.

    For each sentence with at least one content word, over its words w of weight g (:func:`weighed_words`) and the
    windows v of all passages:

    - hit(w, v) is 1 when the word's key occurs in the window, else 0;
    - near(w, v) is the mean over the word's tokens of their best cosine with a token of the window, rescaled by
      (cos - 0.3) / 0.6 and clipped to 0..1; a word in another script than Latin has near = hit;
    - anywhere = the mean over w of (max_v hit + max_v near) / 2;
    - together = max over v of the mean over w of (hit + near) / 2;
    - the sentence's score = (anywhere + together) / 2.

    Means over w are weighed by g. In the lexical tier (no vectors) near is left out everywhere. The turn's value is the
    mean over sentences, weighed by the sum of g.

    Args:
        response: The answer.
        passages: One index per passage.
        response_vectors: Token vectors of the whole response (neural tier).
        passage_vectors: Token vectors, one per passage (neural tier).
        sentences: The response's sentences, when they are known.
    """
    spans = sentence_spans(response) if sentences is None else sentences
    blanked = blank_marks(response)
    weighed = [(span, weighed_words(blanked, span)) for span in spans]
    weighed = [(span, line) for span, line in weighed if any(word.is_content for word in line)]
    windows = _Windows.of(passages, {word.key for _, line in weighed for word in line})
    if not windows.owners:
        return Grounding(None)
    aligner = None
    if response_vectors is not None and passage_vectors is not None:
        aligner = _Aligner(passages, response_vectors, passage_vectors)
    results: list[SentenceGrounding] = []
    for span, line in weighed:
        weights = [word.weight for word in line]
        total = sum(weights)
        coverage = sum(word.weight for word in line if word.key in windows.postings) / total
        shares = windows.shares(line)
        alignment = None
        if aligner is not None:
            alignment, shares = aligner.align(line, windows, shares)
        best = max(range(len(shares)), key=shares.__getitem__)
        anywhere = coverage if alignment is None else (coverage + alignment) / 2
        missing = (response[w.start : w.end] for w in line if w.is_content and w.key not in windows.postings)
        results.append(
            SentenceGrounding(
                span=span,
                score=(anywhere + shares[best]) / 2,
                coverage=coverage,
                alignment=alignment,
                weight=total,
                passage=windows.owners[best],
                missing=tuple(dict.fromkeys(missing)),
            )
        )
    whole = sum(result.weight for result in results)
    value = sum(result.score * result.weight for result in results) / whole if whole else None
    return Grounding(value, tuple(results))


def _window_chunks(chunks: int) -> Iterator[tuple[int, int]]:
    """The windows of a passage as chunk ranges."""
    if chunks == 1:
        yield 0, 1
    for i in range(chunks - 1):
        yield i, i + 2


@dataclass(frozen=True, slots=True)
class _Windows:
    """All windows of a turn: whose they are, and in which of them a key occurs."""

    owners: list[int]
    postings: dict[str, list[int]]

    @classmethod
    def of(cls, passages: Sequence[PassageIndex], keys: set[str]) -> _Windows:
        owners: list[int] = []
        postings: dict[str, list[int]] = {}
        for position, passage in enumerate(passages):
            inside = [chunk & keys for chunk in passage.chunks]
            for a, b in _window_chunks(len(inside)):
                for key in inside[a].union(*inside[a + 1 : b]):
                    postings.setdefault(key, []).append(len(owners))
                owners.append(position)
        return cls(owners, postings)

    def shares(self, line: Sequence[WeighedWord]) -> list[float]:
        """Per window, the weighed share of the sentence's words that occur in it."""
        weights: dict[str, float] = {}
        for word in line:
            weights[word.key] = weights.get(word.key, 0.0) + word.weight
        sums = [0.0] * len(self.owners)
        for key, weight in weights.items():
            for window in self.postings.get(key, ()):
                sums[window] += weight
        total = sum(weights.values())
        return [value / total for value in sums]


class _Aligner:
    """Best cosines of the response's words per window."""

    def __init__(
        self, passages: Sequence[PassageIndex], response: TokenVectors, passage_vectors: Sequence[TokenVectors]
    ) -> None:
        import numpy as np

        self._response = response
        self._chunks: list[FloatArray] = []  # the token vectors of every chunk, in the order of the passages
        ranges: list[tuple[int, int]] = []
        for passage, there in zip(passages, passage_vectors, strict=True):
            if not passage.chunks:
                continue
            ranges += [
                (len(self._chunks) + a, len(self._chunks) + b - 1) for a, b in _window_chunks(len(passage.chunks))
            ]
            cuts = [0, *_search(there.starts, passage.chunk_starts[1:]), len(there.starts)]
            self._chunks += [there.vectors[a:b] for a, b in pairwise(cuts)]
        self._first, self._last = np.asarray(ranges, dtype=np.int64).T  # per window, its first and its last chunk
        tokens = sum(map(len, self._chunks))
        self._whole: FloatArray | None = None
        if len(response.starts) * tokens <= MAX_ALIGNED_CELLS and len(response.starts) * len(ranges) <= MAX_KEPT_CELLS:
            self._whole = self._cosines(slice(None), range(len(self._chunks)))

    def align(
        self, line: Sequence[WeighedWord], windows: _Windows, shares: Sequence[float]
    ) -> tuple[float, list[float]]:
        """The sentence's alignment anywhere, and per window the mean of hit and near."""
        import numpy as np

        hits = np.asarray(shares)
        first = int(np.searchsorted(self._response.ends, line[0].start, side="right"))
        last = int(np.searchsorted(self._response.starts, line[-1].end, side="left"))
        here = slice(first, max(first, last))
        if self._whole is not None:
            chosen = np.arange(len(hits))
            cosines = self._whole[here]
            first_chunk, last_chunk = self._first, self._last
        else:
            chosen = np.argsort(-hits, kind="stable")[:FEW_WINDOWS]
            few, places = np.unique([self._first[chosen], self._last[chosen]], return_inverse=True)
            cosines = self._cosines(here, few.tolist())
            first_chunk, last_chunk = places.reshape(2, -1)
        cosines = np.maximum(cosines[:, first_chunk], cosines[:, last_chunk])
        cosines = np.clip((cosines - COSINE_UNRELATED) / (COSINE_SAME - COSINE_UNRELATED), 0.0, 1.0)
        starts, ends = self._response.starts[here], self._response.ends[here]
        anywhere, total = 0.0, sum(word.weight for word in line)
        near = np.zeros(len(hits))
        begins = np.searchsorted(ends, [word.start for word in line], side="right").tolist()
        stops = np.searchsorted(starts, [word.end for word in line], side="left").tolist()
        aligned = []
        for word, a, b in zip(line, begins, stops, strict=True):
            if word.readable and a < b:
                aligned.append((word.weight, a, b))
            elif word.key in windows.postings:
                near[windows.postings[word.key]] += word.weight
                anywhere += word.weight
        if aligned:
            weights, firsts, lasts = (np.asarray(column) for column in zip(*aligned, strict=True))
            closest = _means(cosines, firsts, lasts)
            near[chosen] += (weights[:, None] * closest).sum(axis=0)
            anywhere += float((weights * closest.max(axis=1)).sum())
        return min(1.0, anywhere / total), np.minimum(1.0, (hits + near / total) / 2).tolist()

    def _cosines(self, here: slice, chunks: Sequence[int]) -> FloatArray:
        """The best cosine of some response tokens with a token of each of some chunks; shape (tokens, chunks).

        By torch on the models' thread: numpy's products take every core and spin while they wait for each other, which
        beside a busy application takes hundreds of times as long.
        """
        return model_executor().submit(self._products, here, chunks).result()

    def _products(self, here: slice, chunks: Sequence[int]) -> FloatArray:
        import numpy as np
        import torch

        tokens = torch.from_numpy(self._response.vectors[here]).float()
        best = np.full((len(tokens), len(chunks)), COSINE_UNRELATED, np.float32)
        for column, chunk in enumerate(chunks):
            there = torch.from_numpy(self._chunks[chunk]).float().T
            for row in range(0, len(tokens), 1024) if there.numel() else ():
                best[row : row + 1024, column] = (tokens[row : row + 1024] @ there).amax(dim=1).numpy()
        return best


def _means(rows: FloatArray, firsts: IntArray, lasts: IntArray) -> FloatArray:
    """Return the mean of some rows each: from a first one up to, and without, a last one."""
    import numpy as np

    sums = np.zeros((len(rows) + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=sums[1:])
    means: FloatArray = (sums[lasts] - sums[firsts]) / (lasts - firsts)[:, None]
    return means


def _search(sorted_offsets: IntArray, positions: Sequence[int]) -> list[int]:
    import numpy as np

    return [int(i) for i in np.searchsorted(sorted_offsets, np.asarray(positions, dtype=np.int64))]
