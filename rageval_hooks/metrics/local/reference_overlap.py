"""``reference_overlap``: how many words the response shares with the turn's reference answer. No judge, no model.

The same facts in other words count as different: ``reference`` asks a judge about the meaning.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.metrics.base import LocalMetric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.privacy import REDACTED
from rageval_hooks.score import Result, Score
from rageval_hooks.text.wording import listed
from rageval_hooks.text.words import words
from rageval_hooks.turn import Turn

RECALL: Final = "reference_overlap.recall"

LACKS_REFERENCE: Final = 0.5
"""A response with a smaller share of the reference's words lacks the reference answer: the label ``fail``."""

# As in the evaluation of SQuAD (Rajpurkar et al. 2016).
_ARTICLES: Final = frozenset({"a", "an", "the"})

_MAX_LISTED: Final = 10

# The longest common subsequence takes time and memory in the product of the two lengths: about a second here.
_MAX_WORD_PAIRS: Final = 4_000_000


class ReferenceOverlap(LocalMetric):
    """Word F1, recall, exact match and ROUGE-L of the response against the reference answer.

    Words are compared without case, punctuation, English articles and the endings of English words. ROUGE-L is that of
    rouge-score (``pip install "rageval-hooks[offline]"``): all words of the letters a to z, with articles and endings.
    """

    name = "reference_overlap"
    scores = (
        ScoreDefinition(
            name="reference_overlap.f1", description="harmonic mean of precision and recall of the reference's words"
        ),
        ScoreDefinition(
            name=RECALL, description="share of the reference's words that the response has", labels=("pass", "fail")
        ),
        ScoreDefinition(
            name="reference_overlap.exact_match",
            description="1 if the response has the same words in the same order as the reference",
            binary=True,
        ),
        ScoreDefinition(
            name="reference_overlap.rouge_l",
            description="ROUGE-L: F measure of the longest common subsequence of words",
        ),
    )
    requires = ("response", "reference")
    family = "reference"
    source = "Rajpurkar et al. 2016 (SQuAD); Lin 2004 (ROUGE)"
    version = "2"

    def evaluate(self, analysis: TurnAnalysis) -> list[Result]:
        """Return the four scores."""
        scores = overlap_scores(analysis.turn)
        if not scores:
            return [*self.skip_all("the reference answer has no words, or it is redacted")]
        is_exact = _words(analysis.turn.response) == _words(analysis.turn.reference or "")
        return [*scores, self.score(float(is_exact), "reference_overlap.exact_match"), self._rouge(analysis.turn)]

    def _rouge(self, turn: Turn) -> Result:
        name = "reference_overlap.rouge_l"
        try:
            from rouge_score import rouge_scorer, tokenizers  # type: ignore[import-untyped]
        except ImportError:
            return self.skip(str(MissingDependencyError("rouge-score", "offline", name)), name)
        tokenizer = tokenizers.DefaultTokenizer()
        response, reference = tokenizer.tokenize(turn.response), tokenizer.tokenize(turn.reference or "")
        if not (response and reference):
            return self.skip("ROUGE-L compares words of the letters a to z, and a text has none", name)
        if len(response) * len(reference) > _MAX_WORD_PAIRS:
            return self.skip("the texts are too long for ROUGE-L", name)
        found = rouge_scorer.RougeScorer(["rougeL"], tokenizer=tokenizer).score(turn.reference, turn.response)
        return self.score(found["rougeL"].fmeasure, name)


def overlap_scores(turn: Turn) -> tuple[Score, ...]:
    """Return F1 and recall of a turn; nothing for a failed turn, or without a reference that has words.

    Reports compute these for files with reference answers that were scored without the metric.
    """
    if turn.status != "ok" or not turn.reference or REDACTED in (turn.response, turn.reference):
        return ()
    response, reference = _words(turn.response), _words(turn.reference)
    if not reference:
        return ()
    missing = Counter(reference) - Counter(response)
    shared = len(reference) - missing.total()
    recall = shared / len(reference)
    lacks = recall < LACKS_REFERENCE
    texts = dict.fromkeys(
        turn.reference[word.start : word.end] for word in words(turn.reference) if word.key in missing
    )
    explanation = f"the response lacks: {listed(list(texts), _MAX_LISTED)}" if texts else None
    metric = ReferenceOverlap()
    return (
        metric.score(2 * shared / (len(response) + len(reference)), "reference_overlap.f1"),
        metric.score(recall, RECALL, label="fail" if lacks else "pass", explanation=explanation),
    )


def _words(text: str) -> list[str]:
    return [word.key for word in words(text) if word.key not in _ARTICLES]
