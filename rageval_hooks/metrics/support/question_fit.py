"""How near an answer and its passages come to the question, by words and by the embedder's vectors.

``answers_question`` and the cause of a verdict follow from it. docs/metrics.md says how good they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rageval_hooks.models.embedder import Embedding, TokenVectors
from rageval_hooks.text.limits import Span
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import Line, words_by_sentence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.floating[Any]]

# "It was founded in 1911", "His wife"
_REFERRING: Final = re.compile(r"\W{0,9}(?:it|he|she|they|this|these|that|such|its|his|her|their)\b", re.IGNORECASE)

_MAX_COMPARED: Final = 100
"""Sentences of a response whose evidence is looked for: the first of a long text say what it is about."""


_MIN_WORD_SHARE: Final = 1 / 3
_FAR_COSINE: Final = 0.45
_FAR_COSINE_OF_ONE: Final = 0.3
"""Below this, such an answer is far. One passage may be about the question in other words; of several, hardly all."""
_FAR: Final = 0.1
"""The highest probability of an answer with fewer than a third of the question's words that no passage is about."""


_MIN_STEM: Final = 5
"""Characters that two words need in common if one is the beginning of the other."""


class PassageSentence(NamedTuple):
    """A sentence of a passage.

    Attributes:
        span: where it is in the passage.
        keys: its content words.
        about: these, with those of the sentence before if it begins with "it", "his" and the like.
    """

    span: Span
    keys: frozenset[str]
    about: frozenset[str]


def read_sentences(text: str) -> list[PassageSentence]:
    """Return the sentences of a passage with their words. They depend on the text only, so they can be cached."""
    spans, found, about = sentence_spans(text), [], frozenset[str]()
    for span, words in zip(spans, words_by_sentence(text, spans), strict=True):
        keys = frozenset(words.content_keys)
        about = keys | about if _REFERRING.match(text, *span) else keys
        found.append(PassageSentence(span, keys, about))
    return found


@dataclass(frozen=True, slots=True)
class Fit:
    """How near some text comes to the question.

    Attributes:
        words: share of the question's content words that it has, 0..1.
        cosine: best cosine of the question with it or one of its sentences, -1..1; None in the lexical tier.
    """

    words: float = 0.0
    cosine: float | None = None

    @property
    def is_about_question(self) -> bool:
        """True if a passage is about the question: chosen on clapnq_dev, and on passages of other documents."""
        return self.words >= 0.5 if self.cosine is None else 8 * self.cosine + 4 * self.words >= 5.5


class FitPassage(NamedTuple):
    """A passage as it is compared with the question; ``tokens`` is None in the lexical tier."""

    sentences: Sequence[PassageSentence]
    tokens: TokenVectors | None


class QuestionFit:
    """Compares texts with a question.

    Args:
        words: the content words of the question as they are written, by key; not empty.
        vector: the embedding of the question; None in the lexical tier.
    """

    def __init__(self, words: Mapping[str, str], vector: FloatArray | None) -> None:
        self._words = words
        self._vector = vector

    @property
    def is_too_short(self) -> bool:
        """True if only words can be compared, and the question has one: its synonym would count as nothing."""
        return self._vector is None and len(self._words) == 1

    def of_passage(self, passage: FitPassage) -> Fit:
        """Return how near a passage comes to the question: all its words, and its best sentence."""
        keys = frozenset[str]().union(*(sentence.keys for sentence in passage.sentences))
        if self._vector is None:
            return Fit(self._share(keys))
        spans = [sentence.span for sentence in passage.sentences]
        return Fit(self._share(keys), max(self._cosines(passage.tokens, spans), default=0.0))

    def of_response(
        self,
        said: Collection[str],
        lines: Sequence[Line],
        whole: Embedding | None,
        passages: Sequence[FitPassage],
        pause: Callable[[], None] = lambda: None,
    ) -> tuple[Fit, list[str]]:
        """Return how near a response comes to the question, with the passages' sentences that support it.

        The evidence makes short answers comparable: "Marta Oldag" has no word of "Who founded the museum?", and "It was
        founded in 1911 by Marta Oldag" has one, and another in the sentence before.

        Args:
            said: the content words of the response.
            lines: the sentences of the response that claim something.
            whole: the embedding of the response, with its tokens; None in the lexical tier.
            passages: the passages of the prompt.
            pause: called before each sentence; what it raises stops the work.

        Returns:
            The fit, and the words of the question that neither the response nor its evidence has.
        """
        evidence = _evidence(lines, passages, pause)
        keys = frozenset(said).union(*(passages[at].sentences[number].about for at, number in evidence))
        found = self._found(keys)
        words, lacking = len(found) / len(self._words), [word for key, word in self._words.items() if key not in found]
        if self._vector is None or whole is None:
            return Fit(words), lacking
        cosines = [float(whole.vector @ self._vector)] if len(whole.windows) else [0.0]
        cosines += self._cosines(whole.tokens, [line.span for line in lines[:_MAX_COMPARED]])
        for at in {at for at, _ in evidence}:
            numbers = [number for place, number in evidence if place == at]
            spans = [passages[at].sentences[number].span for number in numbers]
            cosines += self._cosines(passages[at].tokens, spans)
        return Fit(words, max(cosines)), lacking

    def _share(self, keys: frozenset[str]) -> float:
        return len(self._found(keys)) / len(self._words)

    def _found(self, keys: frozenset[str]) -> set[str]:
        """Return the question's words that are among some words, or begin like one: "members" for "membership"."""
        found = self._words.keys() & keys
        # Two words of a question may begin alike: "polymers" and "polymerisation".
        missing: dict[str, list[str]] = {}
        for word in self._words.keys() - found:
            if len(word) >= _MIN_STEM:
                missing.setdefault(word[:_MIN_STEM], []).append(word)
        for key in keys if missing else ():
            for word in missing.get(key[:_MIN_STEM], ()):
                if word.startswith(key) or key.startswith(word):
                    found.add(word)
        return found

    def _cosines(self, tokens: TokenVectors | None, spans: Sequence[Span]) -> list[float]:
        """Return the cosine of the question with the mean of the tokens of each sentence that has any."""
        if self._vector is None or tokens is None or not len(tokens.starts):
            return []
        import numpy as np

        firsts = np.searchsorted(tokens.ends, [start for start, _ in spans], side="right")
        lasts = np.searchsorted(tokens.starts, [end for _, end in spans], side="left")
        real = lasts > firsts
        means = [
            tokens.vectors[first:last].sum(axis=0, dtype=np.float32)
            for first, last in zip(firsts[real].tolist(), lasts[real].tolist(), strict=True)
        ]
        return [float(mean @ self._vector) / math.sqrt(float(mean @ mean)) for mean in means]


def _evidence(
    lines: Sequence[Line], passages: Sequence[FitPassage], pause: Callable[[], None]
) -> list[tuple[int, int]]:
    """Return the passages' sentences that have most of the words of a sentence of the response: (passage, sentence).

    Where several have as many, all of them count.
    """
    # The same sentence, thousands of times in a passage or in a response, is compared once.
    said = {frozenset(words): words for words in map(_weights, lines)}
    needed = frozenset(chain.from_iterable(said))
    stated: dict[frozenset[str], tuple[int, int]] = {}
    for at, passage in enumerate(passages):
        for number, sentence in enumerate(passage.sentences):
            if not needed.isdisjoint(sentence.keys):
                stated.setdefault(sentence.keys, (at, number))
    places: dict[str, list[tuple[int, int]]] = {}
    for keys, place in stated.items():
        for key in keys & needed:
            places.setdefault(key, []).append(place)
    found: dict[tuple[int, int], None] = {}
    for words in islice(said.values(), _MAX_COMPARED):
        pause()
        sums: dict[tuple[int, int], float] = {}
        for key, weight in words.items():
            for place in places.get(key, ()):
                sums[place] = sums.get(place, 0.0) + weight
        best = max(sums.values(), default=0.0)
        found.update(dict.fromkeys(place for place, value in sums.items() if value == best))
    return list(found)


def _weights(line: Line) -> dict[str, float]:
    return {word.key: word.weight for word in line.words if word.is_content}


def answer_probability(response: Fit, passages: Sequence[Fit]) -> float:
    """Return the probability that a response answers the question, 0..1.

    A logistic regression on twenty kinds of answers and of off-topic answers, with rounded weights: an answer that is
    far from the question is suspicious, above all if a passage is near to it.

    Args:
        response: of the response with its evidence.
        passages: of the passages of the prompt.
    """
    words = max((fit.words for fit in passages), default=0.0)
    if response.cosine is None:
        logit = 8 * response.words - 1.5 * words - 1.4
    else:
        cosine = max((fit.cosine or 0.0 for fit in passages), default=0.0)
        logit = 8 * response.cosine - 4 * cosine + 6 * response.words - 3 * words - 2.3
    probability = (1 + math.tanh(logit / 2)) / 2
    # Where no passage is about the question, an answer with few of its words answers another one. Words alone say too
    # little for this: they cost 17% of the sentences that people selected as answers.
    is_far = (
        response.cosine is not None
        and response.cosine < (_FAR_COSINE if len(passages) > 1 else _FAR_COSINE_OF_ONE)
        and response.words < _MIN_WORD_SHARE
        and not any(fit.is_about_question for fit in passages)
    )
    return min(probability, _FAR) if is_far else probability
