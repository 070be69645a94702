"""TRACe: which sentences of the context are relevant, which were used, and which support the response.

One judge call. Source: RAGBench (arXiv 2407.11005); the formulas ``fixed20`` are those of RAG Capstone Project.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel
from pydantic import Field as Described

from rageval_hooks.errors import ConfigurationError, JudgeAnswerError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import (
    DECLINES,
    VERDICT_VALUES,
    Cause,
    JudgeMetric,
    ScoreDefinition,
    VerdictLabel,
    cause_of,
)
from rageval_hooks.metrics.judged.no_answer import NoAnswer, declined
from rageval_hooks.metrics.support.judged_turn import JudgedTurn, SentenceKey
from rageval_hooks.plugins import Option
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.score import VERDICT, Result, Score
from rageval_hooks.text.formatting import shorten
from rageval_hooks.text.keys import KeyedSentence

# The first four are the TRACe measures of RAGBench (arXiv 2407.11005), the others those of RAG Capstone Project.
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
_OF_CONTEXT: Final = ("trace.context_relevance", "trace.context_utilization")
"""The scores that mean something for a response that declines to answer, too."""

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


class SentenceSupport(BaseModel):
    """What the judge says about one sentence of the response."""

    response_sentence_key: SentenceKey = Described(description="key of the answer's sentence")
    explanation: str = Described(description="why it is, or is not, fully supported")
    supporting_sentence_keys: list[SentenceKey] = Described(
        description="keys of the passages' sentences that support it"
    )
    fully_supported: bool = Described(description="whether the passages support all of it")


class TraceLabels(BaseModel):
    """The judge's answer; the names are RAGBench's."""

    relevance_explanation: str = Described(description="which passages help to answer the question, and how")
    all_relevant_sentence_keys: list[SentenceKey] = Described(
        description="keys of the passages' sentences that are relevant"
    )
    sentence_support_information: list[SentenceSupport] = Described(description="one entry per sentence of the answer")
    all_utilized_sentence_keys: list[SentenceKey] = Described(
        description="keys of the passages' sentences that were used"
    )
    overall_supported: bool = Described(description="whether the answer as a whole is supported")


Formulas = Literal["ragbench", "fixed20"]
_DEFAULT: Final[Formulas] = "ragbench"

_FIXED_SENTENCES: Final = 20
"""The divisor of ``fixed20``."""


@dataclass(frozen=True, kw_only=True)
class SupportValues:
    """The numbers that need an answer about every sentence of the response; see :data:`_MEANINGS`."""

    adherence: float
    supported_share: float
    average: float
    rmse: float
    consistency: float


@dataclass(frozen=True, kw_only=True)
class TraceValues:
    """The labels as numbers.

    Attributes:
        context_relevance: see :data:`_MEANINGS`.
        context_utilization: see :data:`_MEANINGS`.
        completeness: see :data:`_MEANINGS`.
        support: about the response; None if the judge said nothing about one of its sentences.
        unjudged: keys of response sentences that the judge said nothing about.
        dropped_keys: keys in the labels that do not exist.
    """

    context_relevance: float
    context_utilization: float
    completeness: float
    support: SupportValues | None
    unjudged: tuple[str, ...]
    dropped_keys: tuple[str, ...]


def trace_values(
    labels: TraceLabels,
    context_keys: Sequence[str],
    response_keys: Sequence[str],
    formulas: Formulas = _DEFAULT,
) -> TraceValues:
    """Turn labels into numbers.

    Keys that do not exist are dropped.

    Args:
        labels: the judge's answer.
        context_keys: the keys of all sentences of the passages; not empty.
        response_keys: the keys of all sentences of the response.
        formulas: ``"ragbench"`` divides by the sentences of the context, ``"fixed20"`` by 20 (RAG Capstone Project).
    """
    relevant = set(labels.all_relevant_sentence_keys).intersection(context_keys)
    utilized = set(labels.all_utilized_sentence_keys).intersection(context_keys)
    if formulas == "ragbench":
        relevance, utilization = len(relevant) / len(context_keys), len(utilized) / len(context_keys)
    else:
        # It divides by 20 sentences whatever the context has, so a long context can reach more than 1.
        relevance = min(1.0, len(relevant) / _FIXED_SENTENCES)
        utilization = min(1.0, len(utilized) / len(relevant)) if relevant else 0.0
    # Nothing relevant and nothing used is complete; nothing relevant but something used is not.
    completeness = len(relevant & utilized) / len(relevant) if relevant else float(not utilized)
    named = [*labels.all_relevant_sentence_keys, *labels.all_utilized_sentence_keys]
    supported: dict[str, bool] = {}
    for item in labels.sentence_support_information:
        # Of two answers about one sentence, the stricter one counts.
        key = item.response_sentence_key
        supported[key] = supported.get(key, True) and item.fully_supported
        named += item.supporting_sentence_keys
    # A key may be of the wrong kind: a key of the response among those of the context.
    dropped = [key for key in named if key not in context_keys] + [key for key in supported if key not in response_keys]
    unjudged = tuple(key for key in response_keys if key not in supported)
    support = None
    if not unjudged:
        # A response without sentences claims nothing that could lack support.
        said = [supported[key] for key in response_keys] or [True]
        adherence = float(all(said))
        four = (relevance, utilization, completeness, adherence)
        rmse = statistics.pstdev(four)
        support = SupportValues(
            adherence=adherence,
            supported_share=sum(said) / len(said),
            average=statistics.fmean(four),
            rmse=rmse,
            consistency=1 - rmse,
        )
    return TraceValues(
        context_relevance=relevance,
        context_utilization=utilization,
        completeness=completeness,
        support=support,
        unjudged=unjudged,
        dropped_keys=tuple(dict.fromkeys(dropped)),
    )


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
        formulas: ``"ragbench"``, or ``"fixed20"``; None for the setting ``trace_formulas``.

    Raises:
        ConfigurationError: the formulas are unknown.
    """

    name = "trace"
    version = "4"
    scores = tuple(_definition(name, description) for name, description in _MEANINGS.items())
    requires = ("query", "passages", "response")
    passages = "prompt"
    family = "judge"
    answerable_only = True
    source = "RAGBench (arXiv 2407.11005); RAG Capstone Project"
    calls = "1"
    default = True
    options: ClassVar = {
        "trace_formulas": Option(
            keyword="formulas",
            type=Formulas,
            default=_DEFAULT,
            about="`ragbench`, or `fixed20` for context relevance and utilization as in RAG Capstone Project: the "
            "relevant sentences over 20.",
        )
    }

    def __init__(self, formulas: Formulas | None = None) -> None:
        if formulas not in (None, "ragbench", "fixed20"):
            raise ConfigurationError(f"the formulas of trace must be 'ragbench' or 'fixed20', not {formulas!r}")
        self.formulas = formulas

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the scores; those of the support are failed if the judge omits a sentence or contradicts itself."""
        # A passage without sentences has no keys, so the judge could not name anything in it.
        if not case.passage_sentences:
            return [self.skip("the passages have no sentences")]
        # A judge calls a refusal unsupported, and the local verdict has said that it is one.
        if case.response.declines and case.claims_nothing and not case.runs(NoAnswer.name):
            return [self.skip(DECLINES)]
        judgement = await case.ask(_TASK, TraceLabels, about_response=True)
        turn = _LabelledTurn(self, case, judgement)
        # The labels are asked for before it is known whether the answer declines: the scores of the context hold for a
        # refusal too.
        results = [*turn.context_scores(), *turn.support_scores()]
        reason = await declined(case)
        if reason is not None:
            results = [result if result.name in _OF_CONTEXT else self.skip(reason, result.name) for result in results]
        # Where the judge is asked whether the response declines, its word counts more than the rules.
        if reason is not None:
            changes = {"label": "declined", "annotator": "LLM", "cause": turn.cause(declines=True)}
            results.append(self.skip(DECLINES, VERDICT).model_copy(update=changes))
        elif any(isinstance(result, Score) and result.name == "trace.adherence" for result in results):
            results.append(turn.verdict())
        return results


class _LabelledTurn:
    """A turn with the judge's labels.

    Args:
        metric: the metric.
        case: the turn.
        judgement: the judge's answer.
    """

    def __init__(self, metric: Trace, case: JudgedTurn, judgement: Judgement[TraceLabels]) -> None:
        self._metric, self._case, self._judgement = metric, case, judgement
        self._labels = judgement.value
        self._context: Mapping[str, KeyedSentence] = {sentence.key: sentence for sentence in case.passage_sentences}
        response = [sentence.key for sentence in case.sentences]
        self._values = trace_values(self._labels, list(self._context), response, metric.formulas or _DEFAULT)

    def context_scores(self) -> list[Result]:
        """Return the scores about relevance and use."""
        values = self._values
        relevant = [key for key in self._context if key in self._labels.all_relevant_sentence_keys]
        used = [key for key in self._context if key in self._labels.all_utilized_sentence_keys]
        # Named in the explanation: what a better answer would have said.
        unused = [f"{key} “{shorten(self._context[key].text)}”" for key in relevant if key not in used]
        of = f"of {len(self._context)} sentences."
        why_relevant = f"{self._labels.relevance_explanation} Relevant: {_list(relevant)} {of}".strip()
        complete = f"Relevant, but not used: {'; '.join(unused)}" if unused else "Everything relevant was used."
        return [
            self._scored("context_relevance", values.context_relevance, why_relevant),
            self._scored("context_utilization", values.context_utilization, f"Used: {_list(used)} {of}"),
            self._scored("completeness", values.completeness, complete),
        ]

    def support_scores(self) -> list[Result]:
        """Return the scores about the response; failed if the judge has not judged all of it, or contradicts itself."""
        problem, values = "", self._values.support
        # A sentence without an answer could be supported or not: any number would hide this.
        if values is None:
            problem = f"the judge said nothing about the sentences {_list(self._values.unjudged)}"
        # The opposite is no contradiction: the scores follow the sentences, which are stricter.
        elif self._case.sentences and values.adherence == 1 and not self._labels.overall_supported:
            problem = _CONTRADICTION
        if values is None or problem:
            error = JudgeAnswerError(problem, **self._judgement.details())
            return [self._metric.fail(error, f"trace.{field.name}") for field in fields(SupportValues)]
        evidence = self.evidence
        explanation = "\n".join(map(_line, evidence)) or "the response has no sentences"
        # The sentences are on one score only, since spans repeat the metadata of each. The last three scores mix in
        # relevance and use, which the evidence does not explain.
        return [
            self._scored("adherence", values.adherence, explanation, {"sentences": evidence}),
            self._scored("supported_share", values.supported_share, explanation),
            self._scored("average", values.average),
            self._scored("rmse", values.rmse),
            self._scored("consistency", values.consistency),
        ]

    def verdict(self) -> Score:
        """Return the judge's verdict, which replaces the local one."""
        label: VerdictLabel = "good"
        reason = "the judge finds every sentence supported by the passages"
        bad = next((item for item in self.evidence if not item["fully_supported"]), None)
        if bad is not None:
            # A judge may call an answer supported as a whole that is not in one detail.
            label = "doubtful" if self._labels.overall_supported else "bad"
            names = dict.fromkeys(self._case.passage_name(support["passage"]) for support in bad["support"])
            where = f"only partly supported by passage {', '.join(names)}" if names else "supported by no passage"
            reason = f"“{shorten(bad['text'])}” is {where}"
            if bad["explanation"]:
                reason += f": {bad['explanation']}"
        value, cause = VERDICT_VALUES[label], None if bad is None else self.cause(bad)
        score = self._metric.judged(value, self._judgement, name=VERDICT, label=label, explanation=reason)
        return score.model_copy(update={"cause": cause})

    def cause(self, bad: Mapping[str, Any] | None = None, *, declines: bool = False) -> Cause:
        """Return the cause of a verdict that is not good: the judge says which sentences help to answer.

        Args:
            bad: the evidence of the sentence that decides; None if the response declines.
            declines: the response declines.
        """
        shown = not self._context.keys().isdisjoint(self._labels.all_relevant_sentence_keys)
        return cause_of(shown=shown, unseen=False, elsewhere=bool(bad and bad.get("unseen")), declines=declines)

    def _scored(
        self, name: str, value: float, explanation: str | None = None, more: Mapping[str, Any] | None = None
    ) -> Score:
        dropped = list(self._values.dropped_keys)
        return self._metric.judged(
            value,
            self._judgement,
            name=f"trace.{name}",
            explanation=explanation,
            metadata={"formulas": self._metric.formulas or _DEFAULT, "dropped_keys": dropped, **(more or {})},
        )

    @cached_property
    def evidence(self) -> list[dict[str, Any]]:
        """Which sentences of the passages support which sentence of the response; each must be judged."""
        # A judge may give a sentence twice. All its entries count, and the strictest decides.
        said: dict[str, list[SentenceSupport]] = {}
        for item in self._labels.sentence_support_information:
            said.setdefault(item.response_sentence_key, []).append(item)
        evidence = []
        for sentence in self._case.sentences:
            items = said[sentence.key]
            keys = dict.fromkeys(key for item in items for key in item.supporting_sentence_keys)
            support = [self._context[key] for key in keys if key in self._context]
            found: dict[str, Any] = {
                "key": sentence.key,
                "text": sentence.text,
                "fully_supported": all(item.fully_supported for item in items),
                "explanation": " ".join(item.explanation.strip() for item in items),
                "support": [{"key": one.key, "passage": one.passage, "text": one.text} for one in support],
            }
            # The retriever found the support, but the prompt did not have it: this is a fault of the prompt.
            if not found["fully_supported"] and sentence.span in self._case.unseen_support:
                found["unseen"] = list(self._case.unseen_support[sentence.span])
            evidence.append(found)
        return evidence


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
