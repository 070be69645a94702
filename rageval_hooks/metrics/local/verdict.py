"""``verdict``: is the answer good, doubtful or bad? One label per turn, made from the turn's other scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Final, Self

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import (
    ASKS_BACK,
    DECLINES,
    MODEL_DETAILS,
    NO_WORDS,
    VERDICT_VALUES,
    Cause,
    GroundingMetric,
    Metric,
    ScoreDefinition,
    VerdictLabel,
    cause_of,
)
from rageval_hooks.metrics.local.faithfulness import Faithfulness
from rageval_hooks.metrics.local.groundedness import Groundedness
from rageval_hooks.metrics.local.relevance import AnswersQuestion
from rageval_hooks.metrics.local.unsupported_facts import UnsupportedFacts
from rageval_hooks.metrics.running import MISSING, compute
from rageval_hooks.metrics.support.sentence_scores import SentenceScore, sentences_in
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models.grounding import GroundingModel
from rageval_hooks.score import VERDICT, Failed, Result, Score, Skipped
from rageval_hooks.settings import LEXICAL, Settings
from rageval_hooks.text.formatting import shorten

LIMITS: Final[Mapping[str, float]] = {
    "verdict.wrong_fact": 0.6,
    "verdict.one.bad": 0.31,
    "verdict.one.doubtful": 0.45,
    "verdict.several.bad": 0.54,
    "verdict.several.doubtful": 0.62,
    "verdict.answers": 0.2,
}
"""The values of faithfulness below which an answer is bad, and below which it is doubtful: with a wrong fact, of one
sentence, and of several. They were chosen on half of RAGTruth QA test and on ExpertQA dev. The last is the value of
``answers_question`` below which a supported answer is doubtful. docs/metrics.md has the figures."""

_LEXICAL_LIMITS: Final = {"verdict.one.bad": 0.3, "verdict.several.bad": 0.48, "verdict.several.doubtful": 0.6}

_SUPPORTED: Final = 0.75
"""The groundedness of a sentence at which the passages of the prompt support it well enough."""

_CAUSES: Final[Mapping[str, Cause]] = {
    "the turn has no passages": "no_passages",
    "no passage was in the prompt": "no_passages",
    "the passages have no text": "no_passages",
    "the response has no words": "no_claims",
    "the response claims nothing": "no_claims",
    NO_WORDS: "no_claims",
    "language ": "language",
}
"""The causes of turns that cannot be evaluated, by the beginning of the reason."""

_MAX_NAMED: Final = 5
"""Missing words that a reason names."""


class Verdict(GroundingMetric):
    """Good, doubtful or bad: the one result of a turn that is worth an alarm.

    It follows ``faithfulness``, or ``groundedness`` where a grounding model is installed. ``bad`` is chosen so that few
    supported answers get it; docs/metrics.md says how many. A turn whose answer declines, or that cannot be evaluated,
    has a skipped result with the label ``declined`` or ``not_evaluable``. When the judge's ``trace`` arrives, its
    verdict replaces this one.
    """

    name = VERDICT
    version = "3"
    scores = (
        ScoreDefinition(
            name=VERDICT,
            headline=7,
            description="do the passages support the response, and does it answer? 1 good, 0.5 doubtful, 0 bad",
            labels=tuple(VERDICT_VALUES),
        ),
    )
    about_claims = False
    models = ("grounding", "embedder")
    limits = LIMITS
    own_limits: Mapping[str, float] = {}  # of the setting ``thresholds``

    def bound(self, settings: Settings) -> Self:
        """Return the metric with the limits of the settings.

        Raises:
            ConfigurationError: an answer would be bad and not doubtful.
        """
        own = {name: bound for name, bound in settings.thresholds.items() if name in LIMITS and bound is not None}
        if not own:
            return self
        for kind in ("verdict.one", "verdict.several"):
            bad, doubtful = (limits_with(own, LEXICAL)[f"{kind}.{label}"] for label in ("bad", "doubtful"))
            if bad > doubtful:
                raise ConfigurationError(f"{kind}.bad is {bad:g}, above {kind}.doubtful, which is {doubtful:g}")
        made = copy(self)
        made.own_limits = own
        return made

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the verdict; skipped if the response declines or cannot be evaluated."""
        if reason := analysis.turn.missing.get("query"):  # the answer may be one to another question
            return self.skip(f"{MISSING['query']}: {reason}")
        if analysis.response.asks_back:
            return self.skip(ASKS_BACK).model_copy(update={"label": "declined", "cause": "asks_back"})
        if analysis.response.declines and analysis.claims_nothing:
            return self.skip(DECLINES).model_copy(
                update={"label": "declined", "cause": _cause(analysis, declines=True)}
            )
        found, facts, label, reason = self._support(analysis), _result_of(UnsupportedFacts(), analysis), None, ""
        if isinstance(found, Skipped):
            return self.skip(found.reason).model_copy(update={"missing_model": found.missing_model})
        if isinstance(found, Failed):
            # Its message may quote the turn, and a reason must not.
            return self.skip(f"{found.name} failed: {found.error_type}")
        if found.name == Faithfulness.name:
            label, reason = _local_verdict(found, facts, self.own_limits)
        else:
            label, reason = _grounded_verdict(found)
        cause: Cause | None = None
        computed = computed_facts(facts)
        if label != "good":
            # Such an answer is a reader's to check, but not wrong: the figures follow from a passage.
            label = "doubtful" if computed else label
            cause = _cause(analysis, elsewhere=_is_elsewhere(analysis, facts), computed=bool(computed))
        elif computed:
            label, cause, reason = "doubtful", _cause(analysis, computed=True), computed
        else:
            answers = _result_of(AnswersQuestion(), analysis)
            least = limits_with(self.own_limits, found.model)["verdict.answers"]
            if isinstance(answers, Score) and answers.value < least:
                label, cause = "doubtful", _cause(analysis, supported=True)
                reason = ": ".join(filter(None, ("it may not answer the question", answers.explanation)))
        value = VERDICT_VALUES[label]
        score = self.score(value, label=label, explanation=reason, model=found.model)
        details = {"limits": dict(self.own_limits)} if self.own_limits else {}
        return score.model_copy(update={"cause": cause, "metadata": details})

    def _support(self, analysis: TurnAnalysis) -> Result:
        """Return the score that the verdict follows."""
        if isinstance(analysis.models.grounding(wait=analysis.wait), GroundingModel):
            grounded = _result_of(Groundedness(), analysis)
            # A grounding model cannot read every turn. The formula can.
            if isinstance(grounded, Score):
                return grounded
        return _result_of(Faithfulness(), analysis)

    def skip(self, reason: str, name: str | None = None) -> Skipped:
        """Return the verdict of a turn that cannot be evaluated."""
        cause = next((cause for beginning, cause in _CAUSES.items() if reason.startswith(beginning)), None)
        return super().skip(reason, name).model_copy(update={"label": "not_evaluable", "cause": cause})


def _result_of(metric: Metric, analysis: TurnAnalysis) -> Result:
    """Return the turn's result of a metric: the one that is known, else a new one."""
    return (analysis.results.get(metric.name) or compute(metric, analysis))[0]


def _cause(
    analysis: TurnAnalysis,
    *,
    elsewhere: bool = False,
    declines: bool = False,
    computed: bool = False,
    supported: bool = False,
) -> Cause:
    """Return the cause of a verdict that is not good."""
    about = [fit.is_about_question for fit in analysis.passage_fits]
    return cause_of(
        # A question without words, such as "And then?", says nothing about its passages.
        shown=not about or any(about[position] for position in analysis.prompt_positions),
        unseen=bool(about) and any(about[position] for position in analysis.unseen_positions),
        elsewhere=elsewhere,
        declines=declines,
        computed=computed,
        supported=supported,
    )


def computed_facts(facts: Result) -> str:
    """Return which figures were computed, if no other number, date or code is missing; else an empty text."""
    if not isinstance(facts, Score) or any(fact["kind"] != "name" for fact in facts.metadata["missing"]):
        return ""
    found = facts.metadata["computed"][:_MAX_NAMED]
    return "; ".join(f"“{one['text']}” is computed: the {one['step']} of {' and '.join(one['from'])}" for one in found)


def _is_elsewhere(analysis: TurnAnalysis, facts: Result) -> bool:
    """Return True if a passage that was not in the prompt has what those of the prompt do not have."""
    found = analysis.unseen_support
    return bool(isinstance(facts, Score) and facts.metadata["unseen"]) or any(
        sentence.span in found and sentence.score < _SUPPORTED for sentence in analysis.grounding.sentences
    )


def limits_with(own: Mapping[str, float], model: str | None) -> Mapping[str, float]:
    """Return the limits for a model of ``faithfulness``, with those of the user instead of the shipped ones."""
    return {**LIMITS, **(_LEXICAL_LIMITS if model == LEXICAL else {}), **own}


def wrong_facts(facts: Result) -> list[str]:
    """Return the numbers, dates, codes and negations of an answer that no passage has."""
    missing = facts.metadata["missing"] if isinstance(facts, Score) else []
    return [fact["text"] for fact in missing if fact["kind"] != "name"]


def _local_verdict(faithfulness: Score, facts: Result, own: Mapping[str, float]) -> tuple[VerdictLabel, str]:
    """Return the verdict of the formula, and the reason in one sentence.

    By the shipped limits:

    - An answer with a number, date or code that no passage has, or with a negation more or less, is bad below .6 of
      ``faithfulness``. Names are not among these facts: people who read the answers accept too many of them.
    - An answer of several sentences is bad below .54, and doubtful below .62; in the lexical tier .48 and .6.
    - An answer of one sentence is bad below .31, and doubtful below .45; in the lexical tier .3 and .45. The words of
      one sentence prove little.

    Args:
        faithfulness: the score, with its sentences.
        facts: the turn's result of ``unsupported_facts``.
        own: the limits of the user.
    """
    sentences, wrong = sentences_in(faithfulness.metadata), wrong_facts(facts)
    limits, kind = limits_with(own, faithfulness.model), "several" if len(sentences) > 1 else "one"
    bad, doubtful = limits[f"verdict.{kind}.bad"], limits[f"verdict.{kind}.doubtful"]
    # Of all sentences the one that costs most: a long one that is a little weak can cost more than a short one.
    weakest = min(sentences, key=lambda sentence: (sentence.score - 1) * sentence.weight)
    if wrong and faithfulness.value < limits["verdict.wrong_fact"]:
        stating = [sentence for sentence in sentences if any(fact in sentence.text for fact in wrong)]
        return "bad", _reason(min(stating, key=lambda sentence: sentence.score, default=weakest), wrong)
    if faithfulness.value < doubtful:
        return ("bad" if faithfulness.value < bad else "doubtful"), _reason(weakest, [])
    return "good", _why_good(sentences)


def _grounded_verdict(groundedness: Score) -> tuple[VerdictLabel, str]:
    """Return the verdict of a grounding model, and the reason in one sentence.

    An answer below the model's own threshold is bad, one with a sentence below it is doubtful.
    """
    threshold = groundedness.metadata[MODEL_DETAILS]["threshold"]
    sentences = sentences_in(groundedness.metadata)
    weakest = min(sentences, key=lambda sentence: sentence.score)
    if weakest.score >= threshold:
        return "good", _why_good(sentences)
    return "bad" if groundedness.value < threshold else "doubtful", _reason(weakest, [])


def _quoted(sentence: SentenceScore) -> str:
    return f"“{shorten(sentence.text)}”"


def _why_good(sentences: Sequence[SentenceScore]) -> str:
    weakest = min(sentences, key=lambda sentence: sentence.score)
    # Not "supported": the formula compares words, and has only found nothing that is clearly unsupported.
    of = f"the weakest of {len(sentences)} sentences is" if len(sentences) > 1 else "the sentence is"
    return f"nothing is clearly unsupported; {of} {_quoted(weakest)}; the nearest is passage {weakest.passage_name}"


def _reason(sentence: SentenceScore, wrong: Sequence[str]) -> str:
    """Return what is wrong with a sentence, with the passage that is nearest to it."""
    quoted, passage = _quoted(sentence), f"passage {sentence.passage_name}"
    if sentence.contradicts:
        return f"{quoted}: the passages say “{shorten(sentence.contradicts)}”"
    if sentence.unsupported:
        parts = ", ".join(f"“{shorten(part.text)}”" for part in sentence.unsupported[:_MAX_NAMED])
        return f"{passage} does not support {parts} in {quoted}"
    missing = [fact for fact in wrong if fact in sentence.text] or sentence.missing
    if missing:
        return f"{quoted}: no passage has {', '.join(missing[:_MAX_NAMED])}; the nearest is {passage}"
    return f"{quoted}: no passage has all of it in one place; the nearest is {passage}"
