"""TRACe: which sentences of the context are relevant, which were used, and which support the response.

One judge call. Source: RAGBench (arXiv 2407.11005); the formulas ``fixed20`` are those of the seeds 000 and 002.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel
from pydantic import Field as Described

from rageval_hooks.errors import ConfigurationError, JudgeAnswerError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition
from rageval_hooks.metrics.no_answer import declined
from rageval_hooks.metrics.support.batching import plain_key
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.score import Failed, Result
from rageval_hooks.text.keys import KeyedSentence

__all__ = ["SentenceSupport", "Trace", "TraceLabels", "TraceValues", "trace_values"]

Formulas = Literal["ragbench", "fixed20"]

_KEY = "trace.labels"
_NO_KEY = re.compile(r"|n/?a|[^\d]{3,}")  # nothing, or words: "none", "general knowledge"
_NO_SUCH_KEYS = "the judge named only sentences that do not exist"
_ABOUT_RESPONSE = ("completeness", "adherence", "supported_share", "average", "rmse", "consistency")


class SentenceSupport(BaseModel):
    """What the judge says of one sentence of the response."""

    response_sentence_key: str = Described(description="key of the answer's sentence")
    explanation: str = Described(description="why it is, or is not, fully supported")
    supporting_sentence_keys: list[str] = Described(description="keys of the passages' sentences that support it")
    fully_supported: bool = Described(description="whether the passages support all of it")


class TraceLabels(BaseModel):
    """The judge's answer; the names are RAGBench's."""

    relevance_explanation: str = Described(description="which passages help to answer the question, and how")
    all_relevant_sentence_keys: list[str] = Described(description="keys of the passages' sentences that are relevant")
    sentence_support_information: list[SentenceSupport] = Described(description="one entry per sentence of the answer")
    all_utilized_sentence_keys: list[str] = Described(description="keys of the passages' sentences that were used")
    overall_supported: bool = Described(description="whether the answer as a whole is supported")


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


@dataclass(frozen=True)
class TraceValues:
    """The labels as numbers; None where the judge's answer does not say.

    Attributes:
        context_relevance: how much of the context is relevant, 0..1; None, as those that follow from it, if keys were
            named and none of them exists.
        context_utilization: how much of the context was used, 0..1; likewise.
        completeness: share of what is relevant that was used, 0..1.
        adherence: 1 if every sentence of the response is fully supported, else 0.
        supported_share: share of the response's sentences that are, 0..1.
        unjudged: keys of response sentences of which the judge has said nothing.
        dropped_keys: keys that the judge made up.
    """

    context_relevance: float | None
    context_utilization: float | None
    completeness: float | None
    adherence: float | None
    supported_share: float | None
    unjudged: tuple[str, ...] = ()
    dropped_keys: tuple[str, ...] = ()

    @property
    def average(self) -> float | None:
        """Mean of the four."""
        four = self._four()
        return None if four is None else sum(four) / 4

    @property
    def rmse(self) -> float | None:
        """Root mean square deviation of the four from their mean."""
        four = self._four()
        if four is None:
            return None
        mean = sum(four) / 4
        return math.sqrt(sum((value - mean) ** 2 for value in four) / 4)

    @property
    def consistency(self) -> float | None:
        """1 - rmse."""
        rmse = self.rmse
        return None if rmse is None else 1 - rmse

    def _four(self) -> tuple[float, float, float, float] | None:
        four = (self.context_relevance, self.context_utilization, self.completeness, self.adherence)
        return None if None in four else cast("tuple[float, float, float, float]", four)


def trace_values(
    labels: TraceLabels, context_keys: Sequence[str], response_keys: Sequence[str], formulas: Formulas = "ragbench"
) -> TraceValues:
    """Turn labels into numbers. Keys may be written in another notation: in capitals, in brackets, with a colon.

    Args:
        labels: the judge's answer.
        context_keys: the keys of all sentences of the passages; not empty.
        response_keys: the keys of all sentences of the response.
        formulas: ``"ragbench"`` divides by the sentences of the context, ``"fixed20"`` as the seeds do.
    """
    labels = _in_our_notation(labels, context_keys, response_keys)
    known = set(context_keys)
    relevant = _named(labels.all_relevant_sentence_keys, known)
    utilized = _named(labels.all_utilized_sentence_keys, known)
    relevance = utilization = completeness = None
    if relevant is not None:
        relevance = len(relevant) / len(context_keys) if formulas == "ragbench" else min(1.0, len(relevant) / 20)
    if utilized is not None and formulas == "ragbench":
        utilization = len(utilized) / len(context_keys)
    if relevant is not None and utilized is not None:
        if formulas == "fixed20":
            utilization = min(1.0, len(utilized) / len(relevant)) if relevant else 0.0
        completeness = len(relevant & utilized) / len(relevant) if relevant else float(not utilized)
    supported = _supported(labels.sentence_support_information, set(response_keys))
    unjudged = tuple(key for key in response_keys if key not in supported)
    share = adherence = None
    if not unjudged:
        share = sum(supported.values()) / len(supported) if supported else 1.0
        adherence = float(all(supported.values()))
    return TraceValues(
        relevance, utilization, completeness, adherence, share, unjudged, _made_up(labels, known, set(response_keys))
    )


def _in_our_notation(labels: TraceLabels, context: Iterable[str], response: Iterable[str]) -> TraceLabels:
    """Return the labels with the keys that exist as we write them; others stay as they are."""
    ours = {key: key for key in (*context, *response)}  # those of the context begin with a digit

    def read(key: str) -> str:
        return ours.get(plain_key(key), key)

    return labels.model_copy(
        update={
            "all_relevant_sentence_keys": [read(key) for key in labels.all_relevant_sentence_keys],
            "all_utilized_sentence_keys": [read(key) for key in labels.all_utilized_sentence_keys],
            "sentence_support_information": [
                item.model_copy(
                    update={
                        "response_sentence_key": read(item.response_sentence_key),
                        "supporting_sentence_keys": [read(key) for key in item.supporting_sentence_keys],
                    }
                )
                for item in labels.sentence_support_information
            ],
        }
    )


def _named(keys: Iterable[str], known: set[str]) -> set[str] | None:
    """Return the keys that exist; None where there are others alone: what they mean is not known."""
    named = {key for key in keys if not _NO_KEY.fullmatch(plain_key(key))}
    found = named & known
    return found if found or not named else None


def _supported(information: Iterable[SentenceSupport], known: set[str]) -> dict[str, bool]:
    """Return what is said of each sentence; said twice, the stricter holds."""
    supported: dict[str, bool] = {}
    for item in information:
        key = item.response_sentence_key
        if key in known:
            supported[key] = supported.get(key, True) and item.fully_supported
    return supported


def _made_up(labels: TraceLabels, context: set[str], response: set[str]) -> tuple[str, ...]:
    named = [*labels.all_relevant_sentence_keys, *labels.all_utilized_sentence_keys]
    for item in labels.sentence_support_information:
        named += item.supporting_sentence_keys
    strange = [key for key in named if key not in context]
    strange += [
        item.response_sentence_key
        for item in labels.sentence_support_information
        if item.response_sentence_key not in response
    ]
    return tuple(dict.fromkeys(strange))


class Trace(Metric):
    """TRACe: four scores from one judge call, with the evidence sentence by sentence.

    Where ``no_answer`` runs too and says that the system declined to answer, those that judge the response are skipped.

    Args:
        formulas: ``"ragbench"``, or ``"fixed20"`` for those of the seeds.

    Raises:
        ConfigurationError: the formulas are unknown.
    """

    name: ClassVar[str] = "trace"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = tuple(
        ScoreDefinition(
            name=f"trace.{name}", description=description, direction="lower" if name == "rmse" else "higher"
        )
        for name, description in (
            ("context_relevance", "share of the context's sentences that are relevant to the query"),
            ("context_utilization", "share of the context's sentences that went into the response"),
            ("completeness", "share of the relevant sentences that went into the response"),
            ("adherence", "1 if the passages support every sentence of the response, else 0"),
            ("supported_share", "share of the response's sentences that the passages support"),
            ("average", "mean of relevance, utilization, completeness and adherence"),
            ("rmse", "root mean square deviation of these four from their mean"),
            ("consistency", "1 - rmse"),
        )
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages", "response")
    family: ClassVar[str] = "judge"
    source: ClassVar[str] = "RAGBench (arXiv 2407.11005); seeds 000 and 002"
    calls: ClassVar[str] = "1"
    default: ClassVar[bool] = True

    def __init__(self, formulas: Formulas = "ragbench") -> None:
        if formulas not in ("ragbench", "fixed20"):
            raise ConfigurationError(f"the formulas of trace are 'ragbench' or 'fixed20', not {formulas!r}")
        self.formulas: Formulas = formulas

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return its one call."""
        return (PlannedCall(_KEY, "labels of the passages' and the response's sentences"),)

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the scores; those of the support, or of the context, are failed where the judge does not say."""
        if not case.passages:
            return [self.skip("the passages have no sentences")]
        judgement = await self.labels(case)
        context, response = ([sentence.key for sentence in part] for part in (case.passages, case.response))
        labels = _in_our_notation(judgement.value, context, response)
        values = trace_values(labels, context, response, self.formulas)
        metadata = {"formulas": self.formulas, "dropped_keys": list(values.dropped_keys)}
        results = [
            *self._context_scores(values, labels, case, judgement, metadata),
            *self._support_scores(values, labels, case, judgement, metadata),
        ]
        reason = await declined(case)
        if reason is None:
            return results
        refused = {f"trace.{name}" for name in _ABOUT_RESPONSE}
        return [self.skip(reason, result.name) if result.name in refused else result for result in results]

    async def labels(self, case: JudgedTurn) -> Judgement[TraceLabels]:
        """Return the judge's labels of the turn; asked once, whichever metrics use them."""
        return await case.once(_KEY, lambda: case.ask(_TASK, TraceLabels, about_response=True))

    def _context_scores(
        self,
        values: TraceValues,
        labels: TraceLabels,
        case: JudgedTurn,
        judgement: Judgement[Any],
        metadata: Mapping[str, Any],
    ) -> Iterable[Result]:
        texts = {sentence.key: sentence for sentence in case.passages}
        relevant = [key for key in texts if key in set(labels.all_relevant_sentence_keys)]
        used = [key for key in texts if key in set(labels.all_utilized_sentence_keys)]
        unused = [key for key in relevant if key not in used]
        for name, value, explanation in (
            (
                "context_relevance",
                values.context_relevance,
                f"{labels.relevance_explanation} Relevant: {_list(relevant)} of {len(texts)} sentences.".strip(),
            ),
            ("context_utilization", values.context_utilization, f"Used: {_list(used)} of {len(texts)} sentences."),
            (
                "completeness",
                values.completeness,
                f"Relevant, but not used: {_quote(unused, texts)}" if unused else "Everything relevant was used.",
            ),
        ):
            if value is None:
                yield self._failed(name, judgement, _NO_SUCH_KEYS)
            else:
                yield self.judged(value, judgement, name=f"trace.{name}", explanation=explanation, metadata=metadata)

    def _support_scores(
        self,
        values: TraceValues,
        labels: TraceLabels,
        case: JudgedTurn,
        judgement: Judgement[Any],
        metadata: Mapping[str, Any],
    ) -> Iterable[Result]:
        message = _NO_SUCH_KEYS
        if values.unjudged:
            message = f"the judge said nothing of the sentences {_list(values.unjudged)}"
        evidence = [] if values.unjudged else _evidence(labels, case)
        for name in ("adherence", "supported_share", "average", "rmse", "consistency"):
            value: float | None = getattr(values, name)
            if value is None:
                yield self._failed(name, judgement, message)
                continue
            about_support = name in ("adherence", "supported_share")
            yield self.judged(
                value,
                judgement,
                name=f"trace.{name}",
                explanation=_explain(evidence) if about_support else None,
                metadata={**metadata, "sentences": evidence} if name == "adherence" else metadata,
            )

    def _failed(self, name: str, judgement: Judgement[Any], message: str) -> Failed:
        return self.fail(JudgeAnswerError(message, **judgement.details()), f"trace.{name}")


def _evidence(labels: TraceLabels, case: JudgedTurn) -> list[dict[str, Any]]:
    """Return which passage sentences support which response sentence."""
    texts = {sentence.key: sentence for sentence in case.passages}
    said: dict[str, list[SentenceSupport]] = {}
    for item in labels.sentence_support_information:
        said.setdefault(item.response_sentence_key, []).append(item)
    return [
        {
            "key": sentence.key,
            "text": sentence.text,
            "fully_supported": all(item.fully_supported for item in said[sentence.key]),
            "explanation": " ".join(item.explanation.strip() for item in said[sentence.key]),
            "support": [
                {"key": key, "passage": texts[key].passage, "text": texts[key].text}
                for key in dict.fromkeys(key for item in said[sentence.key] for key in item.supporting_sentence_keys)
                if key in texts
            ],
        }
        for sentence in case.response
    ]


def _explain(evidence: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for item in evidence:
        mark = "supported" if item["fully_supported"] else "NOT SUPPORTED"
        keys = ", ".join(support["key"] for support in item["support"]) or "no sentence"
        line = f"{item['key']} {mark} by {keys}: “{_shorten(item['text'])}”"
        if not item["fully_supported"] and item["explanation"]:
            line += f" – {item['explanation']}"
        lines.append(line)
    return "\n".join(lines) or "the response has no sentences"


def _list(keys: Iterable[str]) -> str:
    return ", ".join(keys) or "none"


def _quote(keys: Iterable[str], texts: Mapping[str, KeyedSentence]) -> str:
    return "; ".join(f"{key} “{_shorten(texts[key].text)}”" for key in keys)


def _shorten(text: str, length: int = 120) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
