"""What a metric is, how one is made from a function, and how one is run."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union

from pydantic import ValidationError

from rageval_hooks.errors import (
    InputTooLargeError,
    JudgeError,
    ModelNotReadyError,
    ModelUnavailableError,
    OverBudgetError,
    UnknownNameError,
)
from rageval_hooks.metrics.support.definition import Direction, ScoreDefinition, Threshold, label
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.plugins import Registry
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger
from rageval_hooks.score import Failed, Result, Score, Skipped
from rageval_hooks.turn import Turn

if TYPE_CHECKING:
    from rageval_hooks.judges.base import Judgement
    from rageval_hooks.metrics.support.judged_turn import JudgedTurn
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
    from rageval_hooks.models import Role

__all__ = [
    "REGISTRY",
    "Direction",
    "Field",
    "Metric",
    "ScoreDefinition",
    "Threshold",
    "compute",
    "compute_judged",
    "label",
    "metric",
]

_limited_log = RateLimitedLogger(logging.getLogger(__name__))

Field = Literal["query", "passages", "response", "reference", "timing"]


class Metric(ABC):
    """Computes one score of a turn, or several that come from the same work.

    A subclass sets the class attributes and defines :meth:`evaluate`. It holds no state of a turn: one instance serves
    concurrent turns.

    Attributes:
        name: as users name it; also the name of its score if it has one.
        scores: what its scores mean.
        requires: fields of the turn without which there is nothing to compute.
        models: the local models that it uses; until they are loaded it waits in the background.
        family: the heading under which documentation lists it.
        source: the paper or document that defines it.
        calls: how many judge calls it takes per turn, in words; ``"0"`` for a local metric.
        version: changes when the formula or the prompt does.
        default: whether it runs when no metrics are named.
        about_claims: whether it judges what the response claims. A local metric is then skipped where the response, by
            its wording, only declines to answer: a refusal is neither unsupported nor incomplete. One that brings up
            a number or a name that neither the query nor the passages have claims something, and is scored.
    """

    name: ClassVar[str]
    scores: ClassVar[tuple[ScoreDefinition, ...]] = ()
    requires: ClassVar[tuple[Field, ...]] = ()
    models: ClassVar[tuple[Role, ...]] = ()
    family: ClassVar[str] = "custom"
    source: ClassVar[str] = ""
    calls: ClassVar[str] = "0"
    version: ClassVar[str] = "1"
    default: ClassVar[bool] = False
    about_claims: ClassVar[bool] = False

    @abstractmethod
    def evaluate(self, subject: Any) -> Any:
        """Return the results for one turn.

        A plain method makes a local metric, a coroutine (``async def``) one that asks a judge.

        Args:
            subject: the turn with what its metrics share: a ``TurnAnalysis`` for a local metric, a ``JudgedTurn`` for
                one that asks a judge.

        Returns:
            One result or several; :class:`Skipped` where there is nothing to compute. What it raises becomes
            :class:`Failed`.
        """

    @property
    def asks_judge(self) -> bool:
        """Whether it asks a judge."""
        return inspect.iscoroutinefunction(self.evaluate)

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return the calls that it takes for a turn of some size; one that has not said so is taken to need one."""
        return (PlannedCall(self.name, "as the metric asks", estimated=True),) if self.asks_judge else ()

    def score(self, value: float, name: str | None = None, **fields: Any) -> Score:
        """Make a score of this metric, with its version."""
        return Score(name=name or self.name, value=value, version=self.version, metric=self.name, **fields)

    def judged(
        self,
        value: float,
        judgement: Judgement[Any],
        *,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Score:
        """Make a score from a judge's answer: its model, and what the answer took, stand on the score."""
        return self.score(
            value,
            name,
            annotator="LLM",
            model=judgement.model,
            metadata={**(metadata or {}), "judge": judgement.details()},
            **fields,
        )

    def skip(self, reason: str, name: str | None = None) -> Skipped:
        """Say why there is no score."""
        return Skipped(name=name or self.name, reason=reason, metric=self.name)

    def skip_all(self, reason: str) -> list[Skipped]:
        """Say of each of its scores why there is none."""
        return [self.skip(reason, definition.name) for definition in self.scores]

    def fail(self, error: BaseException, name: str | None = None) -> Failed:
        """Say what went wrong."""
        if isinstance(error, JudgeError):
            return Failed(
                name=name or self.name,
                error_type=error.kind,
                message=error.message,
                annotator="LLM",
                metric=self.name,
                metadata={"judge": error.details} if error.details else {},
            )
        return Failed(
            name=name or self.name, error_type=type(error).__name__, message=_message(error), metric=self.name
        )

    def __repr__(self) -> str:
        """Show the name."""
        return f"<metric {self.name}>"


REGISTRY: Registry[Metric] = Registry("metric", Metric, "rageval_hooks.metrics", "rageval_hooks.metrics")  # type: ignore[type-abstract]


class _FunctionMetric(Metric):
    """A metric made from a plain function by :func:`metric`."""

    def __init__(
        self, function: Callable[..., Any], definition: ScoreDefinition, requires: tuple[Field, ...], version: str
    ) -> None:
        self._function = function
        # Instance attributes shadow the class's: every such metric has its own.
        self.name = definition.name  # type: ignore[misc]
        self.scores = (definition,)  # type: ignore[misc]
        self.requires = requires  # type: ignore[misc]
        self.version = version  # type: ignore[misc]
        self.source = f"{function.__module__}.{function.__qualname__}"  # type: ignore[misc]

    def evaluate(self, subject: TurnAnalysis) -> Any:
        return self._result(self._function(subject.turn))

    def _result(self, value: Any) -> Any:
        if value is None:
            return self.skip("the function returned None")
        if hasattr(value, "__float__"):  # numpy's and torch's numbers too
            return self.score(float(value))
        return value

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self._function(*arguments)


class _AsyncFunctionMetric(_FunctionMetric):
    """A metric made from a coroutine function of a turn and a judge by :func:`metric`."""

    calls: ClassVar[str] = "as the function asks"

    async def evaluate(self, subject: JudgedTurn) -> Any:  # type: ignore[override]
        return self._result(await self._function(subject.turn, subject.judge))


def metric(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    requires: Iterable[Field] | Field = (),
    direction: Direction = "higher",
    low: float = 0.0,
    high: float | None = 1.0,
    unit: str = "",
    version: str = "1",
) -> Any:
    """Make a metric from a function of a turn, or from a coroutine function of a turn and a judge.

    The function returns a number, a bool, a result, several results, or None to skip.

    Args:
        function: the function; its name names the score, its docstring's first line describes it.
        name: another name for the score.
        requires: fields of the turn without which the metric is skipped: any of ``query``, ``passages``, ``response``,
            ``reference`` and ``timing``.
        direction: whether higher or lower is better.
        low: the least possible value.
        high: the greatest possible value, None where there is no bound.
        unit: the unit, if any.
        version: changes when the formula does.

    Raises:
        UnknownNameError: ``requires`` names something that no turn has.

    Example:
        >>> @metric(requires=["response"], high=None, unit="words", direction="lower")
        ... def response_words(turn):
        ...     "Words of the response."
        ...     return len(turn.response.split())
        >>> response_words
        <metric response_words>
    """
    needed: tuple[Field, ...] = (requires,) if isinstance(requires, str) else tuple(requires)
    for field in needed:
        if field not in _MISSING:
            raise UnknownNameError("field in requires", field, _MISSING)

    def decorate(function: Callable[..., Any]) -> Metric:
        lines = (inspect.getdoc(function) or "").splitlines()
        definition = ScoreDefinition(
            name=name or function.__name__,
            description=lines[0] if lines else "",
            direction=direction,
            low=low,
            high=high,
            unit=unit,
        )
        kind = _AsyncFunctionMetric if inspect.iscoroutinefunction(function) else _FunctionMetric
        return kind(function, definition, needed, version)

    return decorate if function is None else decorate(function)


_MISSING: dict[Field, str] = {
    "query": "the turn has no query",
    "passages": "the turn has no passages",
    "response": "the turn has no response",
    "reference": "the turn has no reference answer",
    "timing": "the turn was not timed",
}


def missing_input(metric: Metric, turn: Turn) -> str | None:
    """Return why a metric has nothing to work on, or None if it has."""
    for field in metric.requires:
        value = getattr(turn, field)
        if not value or (isinstance(value, str) and not value.strip()):
            reason = _MISSING[field]
            if field == "response" and turn.status != "ok":
                return f"{reason}: it ended with {turn.error.type if turn.error else turn.status}"
            return reason
        if field == "response" and not turn.complete:
            return "answer incomplete: the model was stopped before its end"
        if field == "passages" and not any(passage.text.strip() for passage in turn.passages):
            return "the passages have no text"
    return None


def passage_name(turn: Turn, index: int) -> str:
    """Return how an explanation names a passage: by its id, else by its place, counted from 1."""
    return turn.passages[index].id or f"number {index + 1}"


def compute(metric: Metric, analysis: TurnAnalysis) -> tuple[Result, ...]:
    """Run a local metric: whatever happens comes back as a result.

    Raises:
        ModelNotReadyError: one of its models is still loading, and the analysis does not wait.
        OverBudgetError: the analysis has no time left.
    """
    try:
        reason = missing_input(metric, analysis.turn)
        if reason is not None:
            return (metric.skip(reason),)
        if metric.about_claims and _claims_nothing(analysis):
            return (metric.skip("the response declines to answer: it claims nothing"),)
        return _checked(metric, metric.evaluate(analysis))
    except (ModelNotReadyError, OverBudgetError):
        raise
    except (ModelUnavailableError, InputTooLargeError) as error:
        return (metric.skip(str(error)),)
    except (Exception, SystemExit) as error:
        return (_failure(metric, error),)


def _claims_nothing(analysis: TurnAnalysis) -> bool:
    """Whether the response declines, and states no number or name but such as the query or the passages have."""
    if not analysis.declines:
        return False
    from rageval_hooks.text.facts import (
        index_facts,
        merge_indexes,
        unsupported_facts,
    )  # keeps the package's import light

    known = merge_indexes([index_facts(analysis.turn.query), analysis.passage_facts]) if analysis.facts else None
    return known is None or not unsupported_facts(analysis.facts, known)


async def compute_judged(metric: Metric, case: JudgedTurn) -> tuple[Result, ...]:
    """Run a metric that asks a judge: whatever happens comes back as a result."""
    try:
        reason = missing_input(metric, case.turn)
        if reason is not None:
            return (metric.skip(reason),)
        return _checked(metric, await metric.evaluate(case))
    except JudgeError as error:  # the judge has logged it
        return (metric.fail(error),)
    except InputTooLargeError as error:
        return (metric.skip(str(error)),)
    except Exception as error:
        return (_failure(metric, error),)


def _checked(metric: Metric, given: Any) -> tuple[Result, ...]:
    """Return what a metric has returned as results, each with the metric's name."""
    results: tuple[Any, ...] = (given,) if isinstance(given, (Score, Skipped, Failed)) else tuple(given)
    if not results:
        return (metric.skip("the metric returned no result"),)
    for result in results:
        if not isinstance(result, (Score, Skipped, Failed)):
            message = f"returned {type(result).__name__}, not a number or a result"
            return (Failed(name=metric.name, error_type="TypeError", message=message, metric=metric.name),)
    ranges = {definition.name: definition for definition in metric.scores}
    return tuple(_within_range(_named(result, metric), ranges.get(result.name)) for result in results)


def _named(result: Result, metric: Metric) -> Result:
    return result if result.metric is not None else result.model_copy(update={"metric": metric.name})


def _within_range(result: Result, definition: ScoreDefinition | None) -> Result:
    """Return a result as it is, or as failed if its value is none that such a score can have."""
    if definition is None or not isinstance(result, Score) or definition.contains(result.value):
        return result
    bound = "and above" if definition.high is None else f"to {definition.high:g}"
    valid = f"{result.name} is {definition.low:g} {bound}: give its range where it is made, such as high=None"
    return Failed(
        name=result.name,
        error_type="ValueError",
        message=f"the value is {result.value:g}, and {valid}",
        annotator=result.annotator,
        metric=result.metric,
    )


def _failure(metric: Metric, error: BaseException) -> Failed:
    kind = f"{type(metric).__qualname__} {metric.name} {metric.source}"
    _limited_log.warn(kind, "the metric %s failed", metric.name, error=error)
    return metric.fail(error)


def _message(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    return str(error)


AnyMetric = Union[str, Metric, type[Metric]]
