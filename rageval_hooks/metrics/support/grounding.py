"""The formula of ``groundedness``: how far passages support a response, sentence by sentence.

The reasons for this formula: benchmarks/RESULTS.md, "Agreement with people".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rageval_hooks.metrics.support.windows import Aligner, Windows
from rageval_hooks.models.embedding import TokenVectors
from rageval_hooks.text.fact_index import PassageIndex
from rageval_hooks.text.limits import Span
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import Line, WeighedWord, blank_marks, weighed_lines


@dataclass(frozen=True, slots=True)
class SentenceGrounding:
    """How well the passages support one sentence of the response.

    Attributes:
        span: the sentence, as (start, end).
        score: the sentence's score, 0..1.
        coverage: weighed share of its words that occur in any passage.
        alignment: weighed mean of the words' best rescaled cosine with any passage; None in the lexical tier.
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
    passages: Sequence[PassageIndex],
    response_vectors: TokenVectors | None = None,
    passage_vectors: Sequence[TokenVectors] | None = None,
    lines: Sequence[Line] | None = None,
    pause: Callable[[], None] = lambda: None,
) -> Grounding:
    """Return how far the passages support the response, 0..1.

    For each sentence with at least one content word, over its words w of weight g (:func:`weighed_lines`) and the
    windows v of all passages:

    - hit(w, v) is 1 if the word's key occurs in the window, else 0;
    - near(w, v) is the mean over the word's tokens of their best cosine with a token of the window, rescaled by
      (cos - 0.3) / 0.6 and clipped to 0..1; a word in another script than Latin has near = hit;
    - anywhere = the mean over w of (max_v hit + max_v near) / 2;
    - together = max over v of the mean over w of (hit + near) / 2;
    - the sentence's score = (anywhere + together) / 2.

    Means over w are weighed by g. Without vectors, in the lexical tier, near is in neither. The turn's value is
    the mean over sentences, weighed by the sum of g.

    Args:
        response: the answer.
        passages: one index per passage.
        response_vectors: token vectors of the whole response (neural tier).
        passage_vectors: token vectors, one per passage (neural tier).
        lines: the response's sentences with their words, if they are known.
        pause: called before each sentence; what it raises stops the work.
    """
    if lines is None:
        lines = weighed_lines(blank_marks(response), sentence_spans(response))
    # Sentences without a content word, such as "Yes, it is.", have no score.
    lines = [line for line in lines if any(word.is_content for word in line.words)]
    windows = Windows.of(passages, {word.key for _, words in lines for word in words})
    if not lines or not windows.owners:
        return Grounding(None)
    # Without vectors, only words are compared: the lexical tier.
    aligner = None
    if response_vectors is not None and passage_vectors is not None:
        aligner = Aligner(passages, response_vectors, passage_vectors)
    scored = []
    for span, words in lines:
        pause()
        scored.append(_score_sentence(response, span, words, windows, aligner))
    results = tuple(scored)
    whole = sum(result.weight for result in results)
    return Grounding(sum(result.score * result.weight for result in results) / whole, results)


def _score_sentence(
    response: str, span: Span, line: Sequence[WeighedWord], windows: Windows, aligner: Aligner | None
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
