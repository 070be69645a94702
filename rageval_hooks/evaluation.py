"""Evaluate a turn or a conversation directly, without a framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rageval_hooks.integrations.conversation import Context, turns_from_conversation
from rageval_hooks.score import Evaluation
from rageval_hooks.turn import Turn

if TYPE_CHECKING:
    from rageval_hooks.metrics.base import AnyMetric

__all__ = ["evaluate", "evaluate_conversation"]


def evaluate(
    turn: Turn,
    *,
    metrics: Iterable[AnyMetric] | str | None = None,
    models: Any = None,
    judge: Any = None,
    thresholds: Mapping[str, float | None] | str | None = None,
) -> Evaluation:
    """Evaluate a turn and return its evaluation; waits for models that have to be loaded.

    Args:
        turn: the turn.
        metrics: see :func:`rageval_hooks.instrument`.
        models: see :func:`rageval_hooks.instrument`.
        judge: see :func:`rageval_hooks.instrument`.
        thresholds: see :func:`rageval_hooks.instrument`.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    return _evaluate([turn], metrics, models, judge, thresholds)[0]


def evaluate_conversation(
    turns: Sequence[Mapping[str, Any]],
    contexts: Sequence[Context] | Context,
    *,
    metrics: Iterable[AnyMetric] | str | None = None,
    models: Any = None,
    judge: Any = None,
    thresholds: Mapping[str, float | None] | str | None = None,
) -> list[Evaluation]:
    """Evaluate the answers of a conversation, without any framework.

    Args:
        turns: chat messages, each a mapping with ``role`` and ``content``.
        contexts: the retrieved passages: a list per answer, or one list for all answers.
        metrics: see :func:`rageval_hooks.instrument`.
        models: see :func:`rageval_hooks.instrument`.
        judge: see :func:`rageval_hooks.instrument`.
        thresholds: see :func:`rageval_hooks.instrument`.

    Returns:
        One evaluation per answer, in their order.

    Raises:
        ConfigurationError: a setting is wrong.
        TurnError: messages and contexts do not match; the message says where.

    Example:
        >>> [evaluation] = evaluate_conversation(
        ...     [
        ...         {"role": "user", "content": "When was the pier opened?"},
        ...         {"role": "assistant", "content": "The pier was opened in 2019."},
        ...     ],
        ...     [["The new pier was opened in September 2019."]],
        ...     models="lexical",
        ... )
        >>> evaluation["unsupported_facts"]
        0.0
    """
    return _evaluate(turns_from_conversation(turns, contexts), metrics, models, judge, thresholds)


def _evaluate(
    turns: Iterable[Turn],
    metrics: Iterable[AnyMetric] | str | None,
    models: Any,
    judge: Any,
    thresholds: Mapping[str, float | None] | str | None,
) -> list[Evaluation]:
    from rageval_hooks.online.pipeline import Pipeline  # here, so that importing rageval_hooks stays light

    pipeline = Pipeline.build(
        metrics=metrics,
        models=models,
        judge=judge,
        thresholds=dict(thresholds) if isinstance(thresholds, Mapping) else thresholds,
        exporters=[],
        sample_rate=1.0,  # the environment's rate is for an application's turns; these were not sampled
        judge_sample_rate={},
    )
    try:
        pipeline.load_models()
        return [pipeline.evaluate(turn) for turn in turns]
    finally:
        if judge is None or isinstance(judge, str):
            pipeline.close_judge()  # created here; a judge that was passed in may be used again
