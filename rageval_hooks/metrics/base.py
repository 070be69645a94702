"""The base classes of metrics, the definitions of their scores, and the registry that finds metrics by name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Never, Self, TypeVar

from pydantic import BaseModel, ValidationError

from rageval_hooks.errors import JudgeError
from rageval_hooks.metrics.support.sentence_scores import SentenceScore, as_metadata, explain_sentences, sentences_in
from rageval_hooks.plugins import METRICS, Configurable, Registry
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.score import WHOLE_TURN, Annotator, Failed, Result, Score, Skipped, Target

if TYPE_CHECKING:
    from rageval_hooks.judges.base import Judgement
    from rageval_hooks.metrics.support.judged_turn import JudgedTurn
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
    from rageval_hooks.models import Role
    from rageval_hooks.settings import Settings

M = TypeVar("M", bound=BaseModel)

Field = Literal["query", "passages", "response", "reference", "timing"]
PassageScope = Literal["prompt", "all"]
Results = Result | Iterable[Result]

# --------------------------------------------------------------------------- definitions of scores

Direction = Literal["higher", "lower"]

MODEL_DETAILS: Final = "grounding_model"
"""The key in a score's metadata under which a grounding model says how it was asked, and its threshold."""

_ROUNDING: Final = 1e-9
"""A share may miss the threshold that it meets by this much: as floats, 1 - 4/5 is less than 0.2."""


class Threshold(Data):
    """A default threshold, as it was measured against human labels.

    Attributes:
        value: a score passes at this value or more; at this value or less where lower is better.
        models: the models that it was measured with, as scores name them; None for a score without a model. Another
            model gives other values, so it has no default threshold.
        target: what it was measured on, whole turns or single passages; it labels only such scores.
        accuracy: the lowest and the highest balanced accuracy over the sets; .5 is chance, 1 is perfect.
        sets: the labelled sets of benchmarks/RESULTS.md.
    """

    value: float
    models: tuple[str | None, ...]
    target: Literal["turn", "passage"] = "turn"
    accuracy: tuple[float, float]
    sets: tuple[str, ...]


class ScoreDefinition(Data):
    """The definition of one score of a metric.

    Attributes:
        name: the score's name.
        description: its meaning, in one sentence.
        direction: whether higher or lower is better.
        low: the least possible value.
        high: the greatest possible value; None if there is no bound.
        unit: ``""`` for a share or a probability, else ``"s"``, ``"tokens"``, ``"USD"`` …
        thresholds: the default thresholds of the labels ``pass`` and ``fail``, one per kind of model.
        labels: the labels that the metric itself sets; such a score takes no threshold.
        by_sentence: True if the score is a mean over sentences and lists them in its metadata. Its explanation then
            names the sentences below the threshold of the label.
        headline: how well the score sums up a turn. Reports order turns by the score with the highest headline that a
            file has; 0 is never chosen while another is there.
        binary: True if every value is 0 or 1. Plots then show a share with its interval instead of a box.
    """

    name: str
    description: str
    direction: Direction = "higher"
    low: float = 0.0
    high: float | None = 1.0
    unit: str = ""
    thresholds: tuple[Threshold, ...] = ()
    labels: tuple[str, ...] = ()
    by_sentence: bool = False
    headline: int = 0
    binary: bool = False

    @property
    def scale(self) -> dict[str, Any]:
        """The fields of a score that its definition sets."""
        return {"unit": self.unit, "direction": self.direction, "low": self.low, "high": self.high}

    def contains(self, value: float) -> bool:
        """Return True if the value is in the range, up to rounding."""
        if value < self.low - _ROUNDING:
            return False
        return self.high is None or value <= self.high + _ROUNDING

    def default_threshold(self, score: Score) -> float | None:
        """Return the default threshold for such a score; None if it has none.

        A model that was trained to decide has its own threshold, which the score has in its metadata.
        """
        for threshold in self.thresholds:
            if score.model in threshold.models and score.target.kind == threshold.target:
                return threshold.value
        details = score.metadata.get(MODEL_DETAILS)
        found = details.get("threshold") if isinstance(details, Mapping) else None
        return found if isinstance(found, float) else None

    def label(self, score: Score, threshold: float) -> Score:
        """Return the score with the label ``pass`` or ``fail``; a value equal to the threshold passes.

        The explanation uses the same threshold.
        """
        above = score.value - threshold
        passed = above >= -_ROUNDING if self.direction == "higher" else above <= _ROUNDING
        changes = {"label": "pass" if passed else "fail"}
        # The metric has explained its score with its default threshold.
        is_explained = not self.by_sentence or threshold == self.default_threshold(score)
        if not is_explained and (sentences := sentences_in(score.metadata)):
            changes["explanation"] = explain_sentences(sentences, threshold)
        return score.model_copy(update=changes)


# --------------------------------------------------------------------------- metrics


class Metric(Configurable, ABC):
    """Computes one score of a turn, or several that come from the same work.

    Derive from :class:`LocalMetric` or :class:`JudgeMetric`: set the class attributes and define ``evaluate``. A
    metric holds no state of a turn: one instance serves concurrent turns.

    Attributes:
        name: the metric's name; also the name of its score if it has only one.
        scores: what its scores mean.
        requires: fields of the turn that it needs; without them it is skipped.
        passages: which passages it uses. ``"prompt"``: those that the answering model saw, for metrics about the
            answer. ``"all"``: everything that was retrieved, for metrics about retrieval.
        models: the local models that it uses; it waits in the background until they are loaded.
        family: the heading under which the documentation lists it.
        source: the paper or document that defines it.
        calls: how many judge calls it makes per turn, in words; ``"0"`` for a local metric.
        version: changes when the formula or the prompt changes.
        default: True if it runs when no metrics are named.
        about_claims: True if it judges what the response claims. Such a local metric is skipped if the response only
            declines to answer: a refusal is neither unsupported nor incomplete. A refusal with a number or a name that
            neither the query nor the passages have does claim something, and is scored.
        limits: names in the setting ``thresholds`` that the metric reads itself, with their defaults, 0..1.
        answerable_only: True if a low score is right where the documents do not answer the question. A question of a
            test set that is marked as unanswerable is not scored by such a metric.
    """

    name: ClassVar[str]
    scores: ClassVar[tuple[ScoreDefinition, ...]] = ()
    requires: ClassVar[tuple[Field, ...]] = ()
    passages: ClassVar[PassageScope] = "all"
    models: ClassVar[tuple[Role, ...]] = ()
    family: ClassVar[str] = "custom"
    source: ClassVar[str] = ""
    calls: ClassVar[str] = "0"
    version: ClassVar[str] = "1"
    default: ClassVar[bool] = False
    about_claims: ClassVar[bool] = False
    answerable_only: ClassVar[bool] = False
    limits: ClassVar[Mapping[str, float]] = {}

    # `Never` as parameter: each subclass says what it receives, and type checkers accept any such type.
    @abstractmethod
    def evaluate(self, subject: Never) -> Results | Awaitable[Results]:
        """Return the results for one turn; see :class:`LocalMetric` and :class:`JudgeMetric`."""

    def bound(self, settings: Settings) -> Self:
        """Return the metric with its options from the settings of a pipeline; see :class:`Configurable`."""
        if not self.options:
            return self
        made = copy(self)  # another pipeline may have other settings
        vars(made).pop("definitions", None)
        made.take_options(settings.options)
        return made

    @cached_property
    def asks_judge(self) -> bool:
        """True if it asks a judge: if ``evaluate`` is a coroutine function."""
        return inspect.iscoroutinefunction(self.evaluate)

    @cached_property
    def definitions(self) -> Mapping[str, ScoreDefinition]:
        """The definitions of its scores, by name."""
        return {definition.name: definition for definition in self.scores}

    def expected_calls(self, passages: int) -> Mapping[str, int]:
        """Return about how many judge calls it makes for a turn with so many passages, for an estimate of the cost.

        The calls have names: two metrics that name the same call share it.
        """
        return {self.name: 1} if self.asks_judge else {}

    def score(
        self,
        value: float,
        name: str | None = None,
        *,
        label: str | None = None,
        explanation: str | None = None,
        annotator: Annotator = "CODE",
        model: str | None = None,
        target: Target | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Score:
        """Make a score of this metric, with its version.

        Args:
            value: the value.
            name: the score's name; None for the metric's own.
            label: the metric's own label; None if a threshold sets it.
            explanation: the reason for the value.
            annotator: CODE for a formula or a small model, LLM for a judge, HUMAN for a person.
            model: the model that computed it.
            target: the passage or sentence that it is about; None for the turn.
            metadata: details.
        """
        name = name or self.name
        defined = self.definitions.get(name)
        return Score(
            name=name,
            value=value,
            label=label,
            explanation=explanation,
            annotator=annotator,
            model=model,
            version=self.version,
            target=target or WHOLE_TURN,
            metric=self.name,
            metadata=dict(metadata or {}),
            **(defined.scale if defined else {}),
        )

    def judged(
        self,
        value: float,
        judgement: Judgement[M],
        *,
        name: str | None = None,
        label: str | None = None,
        explanation: str | None = None,
        target: Target | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Score:
        """Make a score from a judge's answer, with the judge's model and what the answer cost.

        Args:
            value: the value.
            judgement: the judge's answer.
            name: the score's name; None for the metric's own.
            label: the metric's own label; None if a threshold sets it.
            explanation: the reason for the value.
            target: the passage or sentence that it is about; None for the turn.
            metadata: details.
        """
        return self.score(
            value,
            name,
            label=label,
            explanation=explanation,
            annotator="LLM",
            model=judgement.model,
            target=target,
            metadata={**(metadata or {}), "judge": judgement.details()},
        )

    def skip(self, reason: str, name: str | None = None) -> Skipped:
        """Return a skipped result with its reason."""
        return Skipped(name=name or self.name, reason=reason, metric=self.name)

    def skip_all(self, reason: str) -> list[Skipped]:
        """Return a skipped result for each of its scores."""
        return [self.skip(reason, definition.name) for definition in self.scores]

    def fail(self, error: BaseException, name: str | None = None) -> Failed:
        """Return a failed result for an exception."""
        name, message = name or self.name, str(error)
        if isinstance(error, ValidationError):
            message = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        if not isinstance(error, JudgeError):
            return Failed(name=name, error_type=type(error).__name__, message=message, metric=self.name)
        return Failed(
            name=name,
            error_type=error.kind,
            message=error.message,
            annotator="LLM",
            metric=self.name,
            metadata={"judge": error.details} if error.details else {},
        )

    def __repr__(self) -> str:
        """Return the name in angle brackets."""
        return f"<metric {self.name}>"


class LocalMetric(Metric):
    """A metric that needs no judge: a formula, or a small model on this machine.

    Example:
        >>> class ResponseWords(LocalMetric):
        ...     name = "response_words"
        ...     scores = (ScoreDefinition(name="response_words", description="words of the response", high=None),)
        ...     requires = ("response",)
        ...
        ...     def evaluate(self, analysis):
        ...         return self.score(len(analysis.turn.response.split()))
        >>> ResponseWords()
        <metric response_words>
    """

    @abstractmethod
    def evaluate(self, analysis: TurnAnalysis) -> Results:
        """Return the results for one turn.

        Args:
            analysis: the turn, and what its local metrics share.

        Returns:
            One result or several; :class:`Skipped` if there is nothing to compute. An exception becomes a
            :class:`Failed` result.
        """


GROUNDING_SETS: Final = ("begin_wow_test", "faithdial_gold", "expertqa_test", "wice_test")
"""The labelled sets with which the default thresholds of grounding metrics were measured."""

NO_WORDS: Final = "the response or the passages have no words that could be compared"
"""Why a grounding metric is skipped."""


class GroundingMetric(LocalMetric):
    """A local metric that says how far the passages of the prompt support what the response claims."""

    requires = ("response", "passages")
    passages = "prompt"
    family = "local"
    source = "ours"
    default = True
    about_claims = True

    def score_by_sentence(
        self,
        value: float,
        sentences: Sequence[SentenceScore],
        model: str,
        weak: float,
        details: Mapping[str, Any] | None = None,
    ) -> Score:
        """Make a score that lists its sentences, and names those below the threshold of its label.

        Where the user's own threshold sets the label, the explanation is written again with that threshold.

        Args:
            value: the value.
            sentences: the sentences of the response.
            model: the model that computed it.
            weak: where the score has no label, the explanation names the sentences below this.
            details: of the model.
        """
        metadata = {"sentences": as_metadata(sentences), **({MODEL_DETAILS: details} if details else {})}
        score = self.score(value, model=model, metadata=metadata)
        threshold = self.scores[0].default_threshold(score)
        explanation = explain_sentences(sentences, weak if threshold is None else threshold)
        return score.model_copy(update={"explanation": explanation})


VerdictLabel = Literal["good", "doubtful", "bad"]

VERDICT_VALUES: Final[Mapping[str, float]] = {"good": 1.0, "doubtful": 0.5, "bad": 0.0}
"""The value of each label of ``verdict``, so that a mean over turns can be charted."""

Cause = Literal[
    "language", "no_passages", "not_retrieved", "not_shown", "refused", "nothing_found", "asks_back", "no_claims",
    "should_decline", "computed", "unsupported", "off_topic",
]  # fmt: skip
"""Why a verdict is not good; :data:`rageval_hooks.score.CAUSES` has the meanings."""


def cause_of(
    *,
    shown: bool,
    unseen: bool,
    elsewhere: bool,
    declines: bool = False,
    computed: bool = False,
    supported: bool = False,
) -> Cause:
    """Return the cause of a verdict that is not good: the first thing that went wrong, from retrieval to answer.

    Args:
        shown: a passage of the prompt is about the question.
        unseen: a passage that was retrieved and not in the prompt is about the question.
        elsewhere: such a passage supports what those of the prompt do not.
        declines: the response declines.
        computed: all that is unsupported are figures that follow from figures of a passage.
        supported: nothing is unsupported.
    """
    if elsewhere or (unseen and not shown):
        return "not_shown"
    if declines:
        return "refused" if shown else "nothing_found"
    if not shown:
        return "not_retrieved"
    return "off_topic" if supported else "computed" if computed else "unsupported"


DECLINES: Final = "the response declines to answer"
ASKS_BACK: Final = "the response asks the user what is meant"
"""The reason of the verdict ``declined``."""


class JudgeMetric(Metric):
    """A metric that asks a judge, a language model."""

    @abstractmethod
    async def evaluate(self, case: JudgedTurn) -> Results:
        """Return the results for one turn.

        Args:
            case: the turn, its judge, and the answers that several metrics share.

        Returns:
            One result or several; :class:`Skipped` if there is nothing to compute. An exception becomes a
            :class:`Failed` result.
        """


AnyMetric = str | Metric | type[Metric]
"""A metric as users name it: by name, as an instance or as a class."""

REGISTRY: Registry[Metric] = Registry(
    "metric",
    Metric,  # type: ignore[type-abstract]
    METRICS,
    "rageval_hooks.metrics",
)
