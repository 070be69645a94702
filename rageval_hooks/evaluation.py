"""Evaluate a turn, a conversation or a dataset directly, without a framework."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.integrations.conversation import Context, ends_with_question, turns_from_conversation
from rageval_hooks.score import Evaluation
from rageval_hooks.turn import Turn

if TYPE_CHECKING:
    import pandas

    from rageval_hooks.judges.resolve import AnyJudge
    from rageval_hooks.metrics.base import AnyMetric
    from rageval_hooks.offline.conversations import Conversation
    from rageval_hooks.online.pipeline import Pipeline
    from rageval_hooks.settings import ModelSettings


def evaluate(
    turn: Turn | Mapping[str, Any],
    *,
    metrics: Iterable[AnyMetric] | str | None = None,
    models: str | ModelSettings | Mapping[str, Any] | None = None,
    judge: AnyJudge | None = None,
    judge_options: Mapping[str, Any] | str | None = None,
    thresholds: Mapping[str, float | None] | str | None = None,
) -> Evaluation:
    """Evaluate a turn and return its evaluation; waits for models that have to be loaded.

    Args:
        turn: the turn, or a dict with a question, an answer and passages, under any of the names that
            ``rageval-hooks score`` accepts: ``{"question": …, "answer": …, "contexts": […]}``.
        metrics: see :func:`rageval_hooks.instrument`.
        models: see :func:`rageval_hooks.instrument`.
        judge: see :func:`rageval_hooks.instrument`.
        judge_options: options of a judge that is given by name, such as ``{"base_url": "http://localhost:8000/v1"}``.
        thresholds: see :func:`rageval_hooks.instrument`.

    Raises:
        ConfigurationError: a setting is wrong.
        TurnError: the dict has no question or no answer, and a metric needs it.

    Example:
        >>> evaluation = evaluate(
        ...     {"question": "When was the pier opened?", "answer": "In 2019.", "contexts": ["It opened in 2019."]},
        ...     models="lexical",
        ... )
        >>> evaluation["unsupported_facts"]
        0.0
    """
    from rageval_hooks.offline.dataset import turn_of  # here, so that importing rageval_hooks stays light
    from rageval_hooks.offline.scoring.score_file import required_fields

    options: dict[str, Any] = {"judge": judge, "judge_options": judge_options, "thresholds": thresholds}
    with _pipeline(metrics=metrics, models=models, **options) as pipeline:
        return pipeline.evaluate(turn_of(turn, required_fields(pipeline, named=metrics is not None)))


async def aevaluate(turn: Turn | Mapping[str, Any], **options: Any) -> Evaluation:
    """Evaluate a turn without blocking the event loop; see :func:`evaluate` for arguments and result."""
    return await asyncio.to_thread(partial(evaluate, turn, **options))


def score_dataset(
    data: object,
    *,
    metrics: Iterable[AnyMetric] | str | None = None,
    models: str | ModelSettings | Mapping[str, Any] | None = None,
    judge: AnyJudge | None = None,
    judge_options: Mapping[str, Any] | str | None = None,
    thresholds: Mapping[str, float | None] | str | None = None,
    mapping: Mapping[str, str] | None = None,
    bad_rows: Literal["raise", "keep"] = "raise",
    concurrency: int = 8,
    workers: int | None = None,
    max_calls: int | None = None,
    max_cost: float | None = None,
    progress: bool = True,
) -> pandas.DataFrame:
    """Score the answers of a dataset, and return them with their scores as a data frame.

    The frame keeps the columns and the index of a data frame that is passed in. Each score is a column with its name,
    next to ``NAME.label`` and, where it is missing, ``NAME.reason``; ``frame.evaluations`` has all details. In a
    notebook the frame shows the worst answers first, with their unsupported sentences marked. It has an Arrow stream,
    so that ``polars.DataFrame(frame)`` and ``pyarrow.table(frame)`` work.

    Args:
        data: a pandas data frame; a table with an Arrow stream, such as one of Polars; a list of dicts, turns or
            evaluations; or the path of a file that ``rageval-hooks score`` reads. For a dataset of Ray, the result is
            another one, with the columns of :class:`rageval_hooks.ScoreBatches`; ``workers`` is the number of actors,
            ``max_calls`` and ``max_cost`` are errors, and ``bad_rows`` is ``keep``.
        metrics: see :func:`rageval_hooks.instrument`.
        models: see :func:`rageval_hooks.instrument`.
        judge: see :func:`rageval_hooks.instrument`.
        judge_options: options of a judge that is given by name.
        thresholds: see :func:`rageval_hooks.instrument`.
        mapping: field → column, or a path into it: ``{"response": "gpt_reply", "passages": "hits[].text"}``.
        bad_rows: what to do about rows that cannot be used: raise an error, or keep them without scores.
        concurrency: turns at a time.
        workers: processes for local metrics; None for one per core if there are 500 rows or more.
        max_calls: maximum number of judge requests; further judge scores are skipped.
        max_cost: maximum cost of the judge in USD.
        progress: True to show a progress bar, if tqdm is installed.

    Raises:
        ConfigurationError: a setting is wrong.
        TurnError: a column is missing (the message proposes a mapping), or rows cannot be used.
        JudgeUnavailableError: the judge does not work.
        MissingDependencyError: pandas is not installed.
    """
    from rageval_hooks.offline.dataset import score_rows
    from rageval_hooks.offline.scoring.score_file import required_fields

    options: dict[str, Any] = {"judge": judge, "judge_options": judge_options, "thresholds": thresholds}
    if type(data).__module__.startswith("ray.data"):
        if max_calls is not None or max_cost is not None:
            raise ConfigurationError("max_calls and max_cost do not hold for actors of Ray: use judge_budget")
        return _score_ray_dataset(
            data, workers, metrics=metrics, models=models, mapping=mapping, concurrency=concurrency, **options
        )
    with _pipeline(metrics=metrics, models=models, **options) as pipeline:
        return score_rows(
            data,
            pipeline,
            required=required_fields(pipeline, named=metrics is not None),
            mapping=mapping,
            bad_rows=bad_rows,
            concurrency=concurrency,
            workers=workers,
            max_calls=max_calls,
            max_cost=max_cost,
            progress=progress,
        )


def _score_ray_dataset(data: Any, workers: int | None, **options: Any) -> Any:
    import ray

    from rageval_hooks.offline.dataset import ScoreBatches

    ScoreBatches(**options)  # a wrong option is an error here, not in an actor
    # Half of the CPUs stay for what comes before and after.
    actors = workers or max(1, int(ray.cluster_resources().get("CPU", 2)) // 2)
    return data.map_batches(
        ScoreBatches,
        fn_constructor_kwargs=options,
        batch_format="pandas",
        batch_size=500,
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=actors),
    )


async def ascore_dataset(data: object, **options: Any) -> pandas.DataFrame:
    """Score a dataset without blocking the event loop; see :func:`score_dataset` for arguments and result."""
    return await asyncio.to_thread(partial(score_dataset, data, **options))


def evaluate_conversation(
    turns: Sequence[Mapping[str, Any]],
    contexts: Sequence[Context] | Context,
    *,
    metrics: Iterable[AnyMetric] | str | None = None,
    models: str | ModelSettings | Mapping[str, Any] | None = None,
    judge: AnyJudge | None = None,
    thresholds: Mapping[str, float | None] | str | None = None,
) -> Conversation:
    """Evaluate the answers of a conversation, without any framework.

    Args:
        turns: chat messages, each a mapping with ``role`` and ``content``.
        contexts: the retrieved passages: a list per answer, or one list for all answers.
        metrics: see :func:`rageval_hooks.instrument`.
        models: see :func:`rageval_hooks.instrument`.
        judge: see :func:`rageval_hooks.instrument`.
        thresholds: see :func:`rageval_hooks.instrument`.

    Returns:
        One evaluation per answer, in their order: a list, whose ``summary`` is that of the conversation.

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
    from rageval_hooks.offline.conversations import Conversation

    found = turns_from_conversation(turns, contexts)
    with _pipeline(metrics=metrics, models=models, judge=judge, thresholds=thresholds) as pipeline:
        return Conversation(map(pipeline.evaluate, found), is_open=ends_with_question(turns))


@contextmanager
def _pipeline(judge: AnyJudge | None, **given: Any) -> Iterator[Pipeline]:
    """Yield a pipeline without exporters; a judge that was created for it is closed at the end."""
    settings = {name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()}
    pipeline = build_pipeline(judge=judge, **settings)
    try:
        yield pipeline
    finally:
        if judge is None or isinstance(judge, str):
            pipeline.close_judge()  # created here; a judge that was passed in may be used again


def build_pipeline(**settings: Any) -> Pipeline:
    """Return a pipeline without exporters, for turns that were not sampled, and start loading its models."""
    # Here, so that importing rageval_hooks stays light.
    from rageval_hooks.online.pipeline import Pipeline
    from rageval_hooks.settings import UNSAMPLED

    pipeline = Pipeline.build(exporters=[], **UNSAMPLED, **settings)
    pipeline.load_models()
    return pipeline
