"""The base classes of metrics, and the registry that finds metrics by name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Never, Self, TypeVar

from pydantic import BaseModel, ValidationError

from rageval_hooks.errors import JudgeError
from rageval_hooks.metrics.support.definition import Direction, ScoreDefinition, Threshold, label
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.plugins import Registry
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.score import WHOLE_TURN, Annotator, Failed, Result, Score, Skipped, Target

if TYPE_CHECKING:
    from rageval_hooks.judges.base import Judgement
    from rageval_hooks.metrics.support.judged_turn import JudgedTurn
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
    from rageval_hooks.models import Role
    from rageval_hooks.settings import Settings

__all__ = [
    "REGISTRY",
    "AnyMetric",
    "Direction",
    "Field",
    "JudgeMetric",
    "LocalMetric",
    "Metric",
    "PassageScope",
    "Results",
    "ScoreDefinition",
    "Threshold",
    "label",
]

M = TypeVar("M", bound=BaseModel)

Field = Literal["query", "passages", "response", "reference", "timing"]
PassageScope = Literal["prompt", "all"]
Results = Result | Iterable[Result]


class Metric(ABC):
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

    # `Never` as parameter: each subclass says what it receives, and type checkers accept any such type.
    @abstractmethod
    def evaluate(self, subject: Never) -> Results | Awaitable[Results]:
        """Return the results for one turn; see :class:`LocalMetric` and :class:`JudgeMetric`."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Make the metric that a name refers to. Override it if a setting is an option of the metric."""
        return cls()

    @cached_property
    def asks_judge(self) -> bool:
        """True if it asks a judge: if ``evaluate`` is a coroutine function."""
        return inspect.iscoroutinefunction(self.evaluate)

    @cached_property
    def definitions(self) -> Mapping[str, ScoreDefinition]:
        """The definitions of its scores, by name."""
        return {definition.name: definition for definition in self.scores}

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return the judge calls that it makes for a turn of some size."""
        if not self.asks_judge:
            return ()
        return (PlannedCall(self.name, "calls of the metric", estimated=True),)

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
        return Score(
            name=name or self.name,
            value=value,
            label=label,
            explanation=explanation,
            annotator=annotator,
            model=model,
            version=self.version,
            target=target or WHOLE_TURN,
            metric=self.name,
            metadata=dict(metadata or {}),
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
        name = name or self.name
        if not isinstance(error, JudgeError):
            return Failed(name=name, error_type=type(error).__name__, message=_message(error), metric=self.name)
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
    ("rageval_hooks.metrics.local", "rageval_hooks.metrics.judged"),
    "rageval_hooks.metrics",
)


def _message(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    return str(error)
