"""The rule of the verdict: from the scores of a turn to ``good``, ``doubtful`` or ``bad``, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from rageval_hooks.metrics.base import MODEL_DETAILS
from rageval_hooks.metrics.support.sentence_scores import SentenceScore, sentences_in
from rageval_hooks.metrics.support.turn_texts import TurnTexts
from rageval_hooks.score import Result, Score
from rageval_hooks.settings import LEXICAL
from rageval_hooks.text.formatting import shorten

VerdictLabel = Literal["good", "doubtful", "bad"]

VALUES: Final[Mapping[VerdictLabel, float]] = {"good": 1.0, "doubtful": 0.5, "bad": 0.0}
"""The value of each label, so that a mean over turns can be charted."""

_WITH_WRONG_FACT: Final = 0.6
_ONE: Final = (0.25, 0.45)
_SEVERAL: Final = (0.54, 0.62)
_SEVERAL_LEXICAL: Final = (0.5, 0.6)
"""The values of faithfulness below which an answer is bad, and below which it is doubtful. They were chosen on half of
RAGTruth QA test and on ExpertQA dev; docs/metrics.md has the figures."""

DECLINES: Final = "the response declines to answer"
"""The reason of the verdict ``declined``."""

_MAX_NAMED: Final = 5
"""Missing words that a reason names."""


def local_verdict(faithfulness: Score, facts: Result) -> tuple[VerdictLabel, str]:
    """Return the verdict of the formula, and the reason in one sentence.

    - An answer with a number, date or code that no passage has, or with a reversed negation, is bad below .6 of
      ``faithfulness``. Names are not among these facts: people who read the answers accept too many of them.
    - An answer of several sentences is bad below .54, and doubtful below .62; in the lexical tier .5 and .6.
    - An answer of one sentence is bad below .25, and doubtful below .45: the words of one sentence prove little.

    Args:
        faithfulness: the score, with its sentences.
        facts: the turn's result of ``unsupported_facts``.
    """
    sentences = sentences_in(faithfulness.metadata)
    missing = facts.metadata["missing"] if isinstance(facts, Score) else []
    wrong = [fact["text"] for fact in missing if fact["kind"] != "name"]
    several = _SEVERAL_LEXICAL if faithfulness.model == LEXICAL else _SEVERAL
    bad, doubtful = several if len(sentences) > 1 else _ONE
    # Of all sentences the one that costs most: a long one that is a little weak can cost more than a short one.
    weakest = min(sentences, key=lambda sentence: (sentence.score - 1) * sentence.weight)
    if wrong and faithfulness.value < _WITH_WRONG_FACT:
        stating = [sentence for sentence in sentences if any(fact in sentence.text for fact in wrong)]
        return "bad", _reason(min(stating, key=lambda sentence: sentence.score, default=weakest), wrong)
    if faithfulness.value < doubtful:
        return ("bad" if faithfulness.value < bad else "doubtful"), _reason(weakest, [])
    return "good", _why_good(weakest, sentences)


def grounded_verdict(groundedness: Score) -> tuple[VerdictLabel, str]:
    """Return the verdict of a grounding model, and the reason in one sentence.

    An answer below the model's own threshold is bad, one with a sentence below it is doubtful.
    """
    threshold = groundedness.metadata[MODEL_DETAILS]["threshold"]
    sentences = sentences_in(groundedness.metadata)
    weakest = min(sentences, key=lambda sentence: sentence.score)
    if weakest.score >= threshold:
        return "good", _why_good(weakest, sentences)
    return "bad" if groundedness.value < threshold else "doubtful", _reason(weakest, [])


def _quoted(sentence: SentenceScore) -> str:
    return f"“{shorten(sentence.text)}”"


def _why_good(weakest: SentenceScore, sentences: Sequence[SentenceScore]) -> str:
    # Not "supported": the formula compares words, and has only found nothing that is clearly unsupported.
    of = f"the weakest of {len(sentences)} sentences is" if len(sentences) > 1 else "the sentence is"
    return f"nothing is clearly unsupported; {of} {_quoted(weakest)}; the nearest is passage {weakest.passage_name}"


def _reason(sentence: SentenceScore, wrong: Sequence[str]) -> str:
    """Return what is wrong with a sentence, with the passage that is nearest to it."""
    quoted, passage = _quoted(sentence), f"passage {sentence.passage_name}"
    if sentence.notes:
        return f"{quoted} reverses {passage}; {sentence.notes[0]}"
    if sentence.unsupported:
        parts = ", ".join(f"“{shorten(part.text)}”" for part in sentence.unsupported[:_MAX_NAMED])
        return f"{passage} does not support {parts} in {quoted}"
    missing = [fact for fact in wrong if fact in sentence.text] or sentence.missing
    if missing:
        return f"{quoted}: no passage has {', '.join(missing[:_MAX_NAMED])}; the nearest is {passage}"
    return f"{quoted}: no passage has all of it in one place; the nearest is {passage}"


def judged_verdict(
    evidence: Sequence[Mapping[str, Any]], turn: TurnTexts, *, supported: bool
) -> tuple[VerdictLabel, str]:
    """Return the label that follows from a judge's evidence, and the reason in one sentence.

    Args:
        evidence: the sentences of the response as ``trace`` has them in its metadata.
        turn: the turn.
        supported: whether the judge calls the answer supported as a whole.
    """
    bad = next((item for item in evidence if not item["fully_supported"]), None)
    if bad is None:
        return "good", "the judge finds every sentence supported by the passages"
    names = dict.fromkeys(turn.passage_name(support["passage"]) for support in bad["support"])
    where = f"only partly supported by passage {', '.join(names)}" if names else "supported by no passage"
    reason = f"“{shorten(bad['text'])}” is {where}"
    # A judge may call an answer supported as a whole that is not in one detail.
    return "doubtful" if supported else "bad", f"{reason}: {bad['explanation']}" if bad["explanation"] else reason
