"""Makes a metric from a plain function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, SupportsFloat, cast, overload

from rageval_hooks.errors import UnknownNameError
from rageval_hooks.metrics.base import Direction, Field, JudgeMetric, LocalMetric, Metric, Results, ScoreDefinition
from rageval_hooks.metrics.running import MISSING
from rageval_hooks.turn import Turn

if TYPE_CHECKING:
    from rageval_hooks.judges.base import Judge
    from rageval_hooks.metrics.support.judged_turn import JudgedTurn
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis

Value = SupportsFloat | Results | None
AnyFunction = Callable[[Turn], Value] | Callable[[Turn, "Judge"], Awaitable[Value]]


class _FunctionMetric(Metric):
    """The part that both kinds of function metrics share."""

    def __init__(
        self, function: AnyFunction, definition: ScoreDefinition, requires: tuple[Field, ...], version: str
    ) -> None:
        self._function = cast("Callable[..., Any]", function)
        # Instance attributes hide those of the class: every function metric has its own.
        self.name = definition.name  # type: ignore[misc]
        self.scores = (definition,)  # type: ignore[misc]
        self.requires = requires  # type: ignore[misc]
        self.version = version  # type: ignore[misc]
        self.source = f"{function.__module__}.{function.__qualname__}"  # type: ignore[misc]

    def _results(self, value: Value) -> Results:
        if value is None:
            return self.skip("the function returned None")
        # Numbers of numpy and torch too, which are no int or float.
        return self.score(float(value)) if isinstance(value, SupportsFloat) else value

    def __call__(self, turn: Turn, *judge: Judge) -> object:
        """Call the function itself."""
        return self._function(turn, *judge)


class _LocalFunctionMetric(_FunctionMetric, LocalMetric):
    """A metric made from a function of a turn."""

    def evaluate(self, analysis: TurnAnalysis) -> Results:
        return self._results(self._function(analysis.turn))


class _JudgeFunctionMetric(_FunctionMetric, JudgeMetric):
    """A metric made from a coroutine function of a turn and a judge."""

    calls = "as the function asks"

    async def evaluate(self, case: JudgedTurn) -> Results:
        return self._results(await self._function(case.turn, case.judge))


@overload
def metric(function: AnyFunction, /) -> _FunctionMetric: ...


@overload
def metric(
    *,
    name: str | None = None,
    requires: Iterable[Field] | Field = (),
    direction: Direction = "higher",
    low: float = 0.0,
    high: float | None = 1.0,
    unit: str = "",
    version: str = "1",
) -> Callable[[AnyFunction], _FunctionMetric]: ...


def metric(
    function: AnyFunction | None = None,
    /,
    *,
    name: str | None = None,
    requires: Iterable[Field] | Field = (),
    direction: Direction = "higher",
    low: float = 0.0,
    high: float | None = 1.0,
    unit: str = "",
    version: str = "1",
) -> _FunctionMetric | Callable[[AnyFunction], _FunctionMetric]:
    """Make a metric from a function of a turn, or from a coroutine function of a turn and a judge.

    The function returns a number, a bool, a result, several results, or None to skip.

    Args:
        function: the function; its name names the score, the first line of its docstring describes it.
        name: another name for the score.
        requires: fields of the turn that the metric needs; without them it is skipped: any of ``query``, ``passages``,
            ``response``, ``reference`` and ``timing``.
        direction: whether higher or lower is better.
        low: the least possible value.
        high: the greatest possible value; None if there is no bound.
        unit: the unit, if there is one.
        version: changes when the formula changes.

    Raises:
        UnknownNameError: ``requires`` names a field that turns do not have.

    Example:
        >>> @metric(requires=["response"], high=None, unit="words", direction="lower")
        ... def response_words(turn):
        ...     "Words of the response."
        ...     return len(turn.response.split())
        >>> response_words
        <metric response_words>
    """
    needed = cast("tuple[Field, ...]", (requires,) if isinstance(requires, str) else tuple(requires))
    for field in needed:
        if field not in MISSING:
            raise UnknownNameError("field in requires", field, MISSING)

    def decorate(function: AnyFunction, /) -> _FunctionMetric:
        lines = (inspect.getdoc(function) or "").splitlines() or [""]
        own_name = name or function.__name__
        definition = ScoreDefinition(
            name=own_name, description=lines[0], direction=direction, low=low, high=high, unit=unit
        )
        kind = _JudgeFunctionMetric if inspect.iscoroutinefunction(function) else _LocalFunctionMetric
        return kind(function, definition, needed, version)

    return decorate if function is None else decorate(function)
