"""TRACe: which sentences of the context are relevant, which were used, and which support the response.

One judge call. Source: RAGBench (arXiv 2407.11005); the formulas ``fixed20`` are those of the seeds 000 and 002.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from rageval_hooks.errors import ConfigurationError, JudgeAnswerError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import Field, JudgeMetric, PassageScope, ScoreDefinition
from rageval_hooks.metrics.judged.no_answer import NoAnswer, declined
from rageval_hooks.metrics.judged.trace_labels import (
    Formulas,
    SentenceSupport,
    TraceLabels,
    TraceValues,
    trace_values,
    with_known_keys,
)
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.metrics.support.unseen import unseen_support
from rageval_hooks.metrics.verdict import DECLINES, VALUES, judged_verdict
from rageval_hooks.score import VERDICT, Result, Score
from rageval_hooks.settings import Settings
from rageval_hooks.text.formatting import shorten
from rageval_hooks.text.keys import KeyedSentence

_KEY: Final = "trace.labels"
# The first four are the TRACe measures of RAGBench (arXiv 2407.11005); average, rmse and consistency are the seeds'.
_MEANINGS: Final = {
    "context_relevance": "share of the context's sentences that are relevant to the query",
    "context_utilization": "share of the context's sentences that went into the response",
    "completeness": "share of the relevant sentences that went into the response",
    "adherence": "1 if the passages support every sentence of the response, else 0",
    "supported_share": "share of the response's sentences that the passages support",
    "average": "mean of relevance, utilization, completeness and adherence",
    "rmse": "root mean square deviation of these four from their mean",
    "consistency": "1 - rmse",
}
_ABOUT_RESPONSE: Final = frozenset(
    f"trace.{name}" for name in ("completeness", "adherence", "supported_share", "average", "rmse", "consistency")
)
"""The scores that mean nothing for a response that declines to answer."""

_CONTRADICTION: Final = (
    "the judge contradicts itself: it says that every sentence is supported, but the answer as a whole is not"
)

_TASK = """\
Task: label the sentences.
1. Relevance: list the keys of all passage sentences that hold information which is useful for answering the question.
   A sentence that is needed to understand such a sentence counts too.
2. Support: go through the answer sentence by sentence, every one, in order. Say which passage sentences support it,
   and whether they support everything that it claims. A sentence that makes no claim (a greeting, an offer to help, a
   statement that the passages do not say) is fully supported, without keys. Do not list a key for what is merely
   plausible or common knowledge.
3. Use: list the keys of all passage sentences whose information went into the answer, whether relevant or not.
4. Say whether the answer as a whole is supported by the passages.
Use only keys that occur above."""


def _definition(name: str, description: str) -> ScoreDefinition:
    return ScoreDefinition(
        name=f"trace.{name}",
        description=description,
        direction="lower" if name == "rmse" else "higher",
        headline={"adherence": 4, "supported_share": 3}.get(name, 0),
        binary=name == "adherence",
    )


class Trace(JudgeMetric):
    """TRACe: four scores from one judge call, with the evidence sentence by sentence.

    The context is the passages of the prompt, as in RAGBench. If ``no_answer`` runs too and says that the system
    declined to answer, the scores of the response are skipped.

    Args:
        formulas: ``"ragbench"``, or ``"fixed20"`` for those of the seeds.

    Raises:
        ConfigurationError: the formulas are unknown.
    """

    name: ClassVar[str] = "trace"
    version: ClassVar[str] = "4"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = tuple(
        _definition(name, description) for name, description in _MEANINGS.items()
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages", "response")
    passages: ClassVar[PassageScope] = "prompt"
    family: ClassVar[str] = "judge"
    answerable_only: ClassVar[bool] = True
    source: ClassVar[str] = "RAGBench (arXiv 2407.11005); seeds 000 and 002"
    calls: ClassVar[str] = "1"
    default: ClassVar[bool] = True

    def __init__(self, formulas: Formulas = "ragbench") -> None:
        if formulas not in ("ragbench", "fixed20"):
            raise ConfigurationError(f"the formulas of trace must be 'ragbench' or 'fixed20', not {formulas!r}")
        self.formulas: Formulas = formulas

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Make the metric with the setting ``trace_formulas``."""
        return cls(settings.trace_formulas)

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return its one call."""
        return (PlannedCall(_KEY, "labels of the passages' and the response's sentences"),)

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the scores; those of the support are failed if the judge omits a sentence or contradicts itself."""
        # A passage without sentences has no keys, so the judge could not name anything in it.
        if not case.passages:
            return [self.skip("the passages have no sentences")]
        judgement = await self.labels(case)
        turn = _LabelledTurn.of(case, judgement, self.formulas)
        # The labels are asked for before it is known whether the answer declines: the scores of the context hold for a
        # refusal too.
        results = [*self._context_scores(turn), *self._support_scores(turn)]
        reason = await declined(case)
        if reason is not None:
            results = [
                self.skip(reason, result.name) if result.name in _ABOUT_RESPONSE else result for result in results
            ]
        return [*results, *self._verdict(turn, results, has_declined=reason is not None)]

    async def labels(self, case: JudgedTurn) -> Judgement[TraceLabels]:
        """Return the judge's labels of the turn; they are asked for once, however many metrics use them."""
        return await case.once(_KEY, lambda: case.ask(_TASK, TraceLabels, about_response=True))

    def _context_scores(self, turn: _LabelledTurn) -> list[Result]:
        relevant = [key for key in turn.context if key in turn.labels.all_relevant_sentence_keys]
        used = [key for key in turn.context if key in turn.labels.all_utilized_sentence_keys]
        # Named in the explanation: what a better answer would have said.
        unused = [key for key in relevant if key not in used]
        count = len(turn.context)
        why_relevant = f"{turn.labels.relevance_explanation} Relevant: {_list(relevant)} of {count} sentences."
        quoted = "; ".join(f"{key} “{shorten(turn.context[key].text)}”" for key in unused)
        return [
            self._scored(turn, "context_relevance", turn.values.context_relevance, why_relevant.strip()),
            self._scored(
                turn,
                "context_utilization",
                turn.values.context_utilization,
                f"Used: {_list(used)} of {count} sentences.",
            ),
            self._scored(
                turn,
                "completeness",
                turn.values.completeness,
                f"Relevant, but not used: {quoted}" if unused else "Everything relevant was used.",
            ),
        ]

    def _support_scores(self, turn: _LabelledTurn) -> list[Result]:
        values = turn.values
        numbers = {
            "adherence": values.adherence,
            "supported_share": values.supported_share,
            "average": values.average,
            "rmse": values.rmse,
            "consistency": values.consistency,
        }
        # A sentence without a verdict could be supported or not: any number would hide this.
        if values.unjudged:
            error = JudgeAnswerError(
                f"the judge said nothing about the sentences {_list(values.unjudged)}", **turn.judgement.details()
            )
            return [self.fail(error, f"trace.{name}") for name in numbers]
        if turn.contradictory:
            error = JudgeAnswerError(_CONTRADICTION, **turn.judgement.details())
            return [self.fail(error, f"trace.{name}") for name in numbers]
        evidence = turn.evidence()
        explanation = _explain(evidence)
        results: list[Result] = []
        for name, value in numbers.items():
            # The other three mix in relevance and use, which the evidence does not explain.
            about_support = name in ("adherence", "supported_share")
            # On one score only: spans repeat the metadata of each.
            more = {"sentences": evidence} if name == "adherence" else {}
            results.append(self._scored(turn, name, value or 0.0, explanation if about_support else None, more))
        return results

    def _verdict(self, turn: _LabelledTurn, results: Iterable[Result], *, has_declined: bool) -> Iterable[Result]:
        """Return the judge's verdict, which replaces the local one; nothing if the judge has not judged the support."""
        # Where the judge is asked whether the response declines, its word counts more than the rules.
        if has_declined or (turn.case.response_text.declines and not turn.case.runs(NoAnswer.name)):
            return [self.skip(DECLINES, VERDICT).model_copy(update={"label": "declined"})]
        if not any(isinstance(result, Score) and result.name == "trace.adherence" for result in results):
            return []
        label, reason = judged_verdict(turn.evidence(), turn.case.turn, supported=turn.labels.overall_supported)
        return [self.judged(VALUES[label], turn.judgement, name=VERDICT, label=label, explanation=reason)]

    def _scored(
        self,
        turn: _LabelledTurn,
        name: str,
        value: float,
        explanation: str | None,
        more: Mapping[str, Any] | None = None,
    ) -> Result:
        metadata = {"formulas": self.formulas, "dropped_keys": list(turn.values.dropped_keys), **(more or {})}
        return self.judged(value, turn.judgement, name=f"trace.{name}", explanation=explanation, metadata=metadata)


@dataclass(frozen=True)
class _LabelledTurn:
    """A turn with the judge's labels.

    Attributes:
        case: the turn.
        judgement: the judge's answer.
        labels: the same with the keys in our notation.
        context: the sentences of the passages by key.
        values: the labels as numbers.
    """

    case: JudgedTurn
    judgement: Judgement[TraceLabels]
    labels: TraceLabels
    context: Mapping[str, KeyedSentence]
    values: TraceValues

    @classmethod
    def of(cls, case: JudgedTurn, judgement: Judgement[TraceLabels], formulas: Formulas) -> _LabelledTurn:
        """Read the judge's labels."""
        context = {sentence.key: sentence for sentence in case.passages}
        # Judges write keys in their own notation, for example "[0A]" or "0a:".
        response = [sentence.key for sentence in case.response]
        labels = with_known_keys(judgement.value, context, response)
        values = trace_values(labels, list(context), response, formulas)
        return cls(case, judgement, labels, context, values)

    @property
    def contradictory(self) -> bool:
        """True if every sentence is said to be supported, but not the answer as a whole.

        The opposite is no contradiction for the scores: they follow the sentences, which are the stricter verdict.
        """
        return bool(self.case.response) and self.values.adherence == 1 and not self.labels.overall_supported

    def evidence(self) -> list[dict[str, Any]]:
        """Return which sentences of the passages support which sentence of the response; each must be judged."""
        # A judge may give a sentence twice. All its entries count, and the strictest decides.
        said: dict[str, list[SentenceSupport]] = {}
        for item in self.labels.sentence_support_information:
            said.setdefault(item.response_sentence_key, []).append(item)
        unseen = unseen_support(self.case.turn, self.case.response_text)
        return [self._evidence(sentence, said[sentence.key], unseen) for sentence in self.case.response]

    def _evidence(
        self, sentence: KeyedSentence, items: Sequence[SentenceSupport], unseen: Mapping[tuple[int, int], Sequence[str]]
    ) -> dict[str, Any]:
        keys = dict.fromkeys(key for item in items for key in item.supporting_sentence_keys)
        supported = all(item.fully_supported for item in items)
        found = {
            "key": sentence.key,
            "text": sentence.text,
            "fully_supported": supported,
            "explanation": " ".join(item.explanation.strip() for item in items),
            "support": [
                {"key": key, "passage": self.context[key].passage, "text": self.context[key].text}
                for key in keys
                if key in self.context
            ],
        }
        # The retriever found the support, but the prompt did not have it: this is a fault of the prompt.
        if not supported and sentence.span in unseen:
            found["unseen"] = list(unseen[sentence.span])
        return found


def _explain(evidence: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(map(_line, evidence)) or "the response has no sentences"


def _line(item: Mapping[str, Any]) -> str:
    keys = ", ".join(support["key"] for support in item["support"]) or "no sentence"
    mark = "supported" if item["fully_supported"] else "NOT SUPPORTED"
    line = f"{item['key']} {mark} by {keys}: “{shorten(item['text'])}”"
    if not item["fully_supported"] and item["explanation"]:
        line += f" – {item['explanation']}"
    if item.get("unseen"):
        line += f" – in a passage that was not in the prompt, by its words: {', '.join(item['unseen'])}"
    return line


def _list(keys: Iterable[str]) -> str:
    return ", ".join(keys) or "none"
