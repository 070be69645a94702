"""The formula of ``groundedness``: how far passages support a response, sentence by sentence.

The reasons for this formula: benchmarks/RESULTS.md, "Agreement with people".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.models.embedder import TokenVectors, best_cosines
from rageval_hooks.text.fact_index import PassageIndex
from rageval_hooks.text.limits import Span
from rageval_hooks.text.words import Line, WeightedWord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.floating[Any]]
    IntArray = NDArray[np.int64]


COSINE_UNRELATED: Final = 0.3
COSINE_SAME: Final = 0.9
"""The best cosine of a word in an unrelated passage, and in one that says the same: mapped to 0 and 1."""

_CHUNKS_PER_PAUSE: Final = 32


@dataclass(frozen=True, slots=True)
class SentenceGrounding:
    """How well the passages support one sentence of the response.

    Attributes:
        span: the sentence, as (start, end).
        score: the sentence's score, 0..1.
        coverage: weighted share of its words that occur in any passage.
        alignment: weighted mean of the words' best rescaled cosine with any passage; None in the lexical tier.
        weight: its weight in the turn's score.
        passage: position of the passage with the best window.
        missing: its content words that no passage has.
    """

    span: Span
    score: float
    coverage: float
    alignment: float | None
    weight: float
    passage: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grounding:
    """The score of a turn and of its sentences.

    Attributes:
        value: the turn's score; None if there is no passage, or no content word in the response or the passages.
        sentences: the sentences that have content words.
    """

    value: float | None
    sentences: tuple[SentenceGrounding, ...] = ()


def groundedness(
    response: str,
    lines: Sequence[Line],
    passages: Sequence[PassageIndex],
    response_vectors: TokenVectors | None = None,
    passage_vectors: Sequence[TokenVectors] | None = None,
    pause: Callable[[], None] = lambda: None,
    supported: frozenset[str] = frozenset(),
) -> Grounding:
    """Return how far the passages support the response, 0..1.

    For each sentence with at least one content word, over its words w of weight g (:func:`weighted_lines`) and the
    windows v of all passages:

    - hit(w, v) is 1 if the word's key occurs in the window, else 0;
    - near(w, v) is the mean over the word's tokens of their best cosine with a token of the window, rescaled by
      (cos - 0.3) / 0.6 and clipped to 0..1; a word in another script than Latin has near = hit;
    - anywhere = the mean over w of (max_v hit + max_v near) / 2;
    - together = max over v of the mean over w of (hit + near) / 2;
    - the sentence's score = (anywhere + together) / 2.

    Means over w are weighted by g. Without vectors, in the lexical tier, near is in neither. The turn's value is
    the mean over sentences, weighted by the sum of g.

    Args:
        response: the answer.
        lines: its sentences with their words.
        passages: one index per passage.
        response_vectors: token vectors of the whole response (neural tier).
        passage_vectors: token vectors, one per passage (neural tier).
        pause: called before each sentence; what it raises stops the work.
        supported: keys of values that the passages have in another notation. They count as found in every window.
    """
    # Sentences without a content word, such as "Yes, it is.", have no score.
    lines = [line for line in lines if any(word.is_content for word in line.words)]
    windows = Windows.of(passages, frozenset(word.key for _, words in lines for word in words), supported)
    if not lines or not windows.owners:
        return Grounding(None)
    # Without vectors, only words are compared: the lexical tier.
    aligner = None
    if response_vectors is not None and passage_vectors is not None:
        aligner = Aligner(passages, response_vectors, passage_vectors, pause)
    scored = []
    for span, words in lines:
        pause()
        scored.append(_score_sentence(response, span, words, windows, aligner))
    results = tuple(scored)
    whole = sum(result.weight for result in results)
    return Grounding(sum(result.score * result.weight for result in results) / whole, results)


def _score_sentence(
    response: str, span: Span, line: Sequence[WeightedWord], windows: Windows, aligner: Aligner | None
) -> SentenceGrounding:
    # A sentence has at least one content word, so its weight is not 0.
    total = sum(word.weight for word in line)
    coverage = sum(word.weight for word in line if word.key in windows.postings) / total
    shares = windows.shares(line)
    alignment: float | None = None
    anywhere = coverage
    if aligner is not None:
        alignment, shares = aligner.align(line, windows, shares)
        anywhere = (coverage + alignment) / 2
    # max() returns the first of equals: the passage that ranks higher.
    best = max(range(len(shares)), key=shares.__getitem__)
    missing = (word for word in line if word.is_content and word.key not in windows.postings)
    return SentenceGrounding(
        span=span,
        score=(anywhere + shares[best]) / 2,
        coverage=coverage,
        alignment=alignment,
        weight=total,
        passage=windows.owners[best],
        missing=tuple(dict.fromkeys(response[word.start : word.end] for word in missing)),
    )


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of a turn.

    A window is two neighbouring chunks of a passage, so windows overlap by half.

    Attributes:
        owners: position of the passage of each window.
        postings: by word key, the windows that the word occurs in.
        supported: keys of values that occur in another notation only.
    """

    owners: list[int]
    postings: dict[str, list[int]]
    supported: frozenset[str]

    @classmethod
    def of(
        cls, passages: Sequence[PassageIndex], keys: frozenset[str], supported: frozenset[str] = frozenset()
    ) -> Windows:
        """Find the windows that some words occur in.

        Args:
            passages: the passages.
            keys: keys of the words that will be asked for.
            supported: keys of values that the passages have, perhaps in another notation.
        """
        owners: list[int] = []
        postings: dict[str, list[int]] = {}
        for position, passage in enumerate(passages):
            # Other words are never asked for, and their postings would take most of the memory.
            chunks = [chunk & keys for chunk in passage.chunks]
            for first, end in _chunk_ranges(len(chunks)):
                window = len(owners)
                owners.append(position)
                for key in frozenset().union(*chunks[first:end]):
                    postings.setdefault(key, []).append(window)
        supported -= postings.keys()
        return cls(owners, postings | {key: [*range(len(owners))] for key in supported}, supported)

    def shares(self, line: Sequence[WeightedWord]) -> list[float]:
        """Return, per window, the weighted share of a sentence's words that occur in it."""
        # A word that occurs twice in the sentence is looked up once.
        weights: dict[str, float] = {}
        for word in line:
            weights[word.key] = weights.get(word.key, 0.0) + word.weight
        sums = [0.0] * len(self.owners)
        for key, weight in weights.items():
            for window in self.postings.get(key, ()):
                sums[window] += weight
        total = sum(weights.values())
        return [value / total for value in sums]


def _chunk_ranges(chunks: int) -> Iterator[tuple[int, int]]:
    """Yield the windows of a passage as ranges of its chunks."""
    # A short passage has a single chunk, which is its only window.
    if chunks == 1:
        yield 0, 1
    for first in range(chunks - 1):
        yield first, first + 2


class Aligner:
    """Finds how near the words of a response come to the windows, by token vectors.

    Args:
        passages: the passages.
        response: token vectors of the whole response.
        passage_vectors: token vectors of the passages, one per passage.
        pause: called now and then; what it raises stops the work.
    """

    def __init__(
        self,
        passages: Sequence[PassageIndex],
        response: TokenVectors,
        passage_vectors: Sequence[TokenVectors],
        pause: Callable[[], None],
    ) -> None:
        import numpy as np

        self._response = response
        chunks: list[FloatArray] = []  # token vectors of every chunk, in the order of the passages
        ranges: list[tuple[int, int]] = []
        for passage, tokens in zip(passages, passage_vectors, strict=True):
            if passage.chunks:
                ranges += [
                    (len(chunks) + first, len(chunks) + end - 1) for first, end in _chunk_ranges(len(passage.chunks))
                ]
                chunks += _cut_at(tokens, passage.chunk_starts[1:])
        # The best cosine of each token of the response with a token of each chunk, then of each window.
        best = np.full((len(response.vectors), len(chunks)), COSINE_UNRELATED, np.float32)
        for column, chunk in enumerate(chunks):
            if column % _CHUNKS_PER_PAUSE == 0:
                pause()
            if len(chunk):
                best[:, column] = best_cosines(response.vectors, chunk)
        first_chunk, last_chunk = np.asarray(ranges, dtype=np.int64).T
        nearness: FloatArray = np.maximum(best[:, first_chunk], best[:, last_chunk])
        nearness -= COSINE_UNRELATED
        nearness /= COSINE_SAME - COSINE_UNRELATED
        self._nearness = np.clip(nearness, 0.0, 1.0, out=nearness)

    def align(
        self, line: Sequence[WeightedWord], windows: Windows, shares: Sequence[float]
    ) -> tuple[float, list[float]]:
        """Align one sentence.

        Args:
            line: its words.
            windows: the windows.
            shares: per window, the share of its words that occur there.

        Returns:
            The sentence's alignment with any window, and per window the mean of the share and the alignment.
        """
        import numpy as np

        hits = np.asarray(shares)
        near = np.zeros(len(hits))
        anywhere = 0.0
        aligned = []
        begins = np.searchsorted(self._response.ends, [word.start for word in line], side="right").tolist()
        stops = np.searchsorted(self._response.starts, [word.end for word in line], side="left").tolist()
        for word, begin, stop in zip(line, begins, stops, strict=True):
            if word.readable and begin < stop and word.key not in windows.supported:
                aligned.append((word.weight, begin, stop))
            elif word.key in windows.postings:
                # The model cannot represent the word, such as one in Cyrillic, or the notation of a value: it counts by
                # its occurrence.
                near[windows.postings[word.key]] += word.weight
                anywhere += word.weight
        if aligned:
            weights, firsts, lasts = (np.asarray(column) for column in zip(*aligned, strict=True))
            start = begins[0]
            nearness = _means(self._nearness[start : stops[-1]], firsts - start, lasts - start)
            near += (weights[:, None] * nearness).sum(axis=0)
            anywhere += float((weights * nearness.max(axis=1)).sum())
        total = sum(word.weight for word in line)
        together = np.minimum(1.0, (hits + near / total) / 2).tolist()
        return min(1.0, anywhere / total), together


def _cut_at(tokens: TokenVectors, positions: Sequence[int]) -> list[FloatArray]:
    """Return the token vectors of a text in pieces that begin at some characters."""
    import numpy as np

    found = np.searchsorted(tokens.starts, np.asarray(positions, dtype=np.int64))
    cuts = [0, *(int(place) for place in found), len(tokens.starts)]
    return [tokens.vectors[start:end] for start, end in pairwise(cuts)]


def _means(rows: FloatArray, firsts: IntArray, lasts: IntArray) -> FloatArray:
    """Return the means of groups of rows; each group is given by its first row and the row behind its last."""
    import numpy as np

    sums = np.zeros((len(rows) + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=sums[1:])
    means: FloatArray = (sums[lasts] - sums[firsts]) / (lasts - firsts)[:, None]
    return means
