"""Preparation: passages are analysed while the model writes, so that only the answer is left at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rageval_hooks.errors import InputTooLargeError, ModelUnavailableError, OverBudgetError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.runtime.executors import low_priority, prepare_executor
from rageval_hooks.runtime.suppression import suppressed
from rageval_hooks.turn import Passage, Turn

__all__ = ["Preparation", "Preparer"]

_MAX_OPEN = 32
"""Preparations of this process that may wait or run. Beyond it turns are not prepared, which costs them time only."""

_CANCELLED = float("-inf")
"""A deadline that has always passed."""

_open: set[Preparation] = set()


class Preparation:
    """The analysis of a turn's passages, in progress or done.

    Args:
        analysis: an analysis of the query and the passages, without an answer.
        steps: what to compute, in order.
    """

    def __init__(self, analysis: TurnAnalysis, steps: Sequence[Callable[[TurnAnalysis], object]]) -> None:
        self.analysis = analysis
        self._steps = steps

    def cancel(self) -> None:
        """Stop at the next passage: the turn has ended, and its own evaluation takes over."""
        self.analysis.deadline = _CANCELLED

    def run(self) -> None:
        """Compute the steps, giving way to evaluations that a caller waits for."""
        try:
            with suppressed(), low_priority():
                for step in self._steps:
                    self._run(step)
        except OverBudgetError:
            return  # cancelled
        finally:
            _open.discard(self)

    def _run(self, step: Callable[[TurnAnalysis], object]) -> None:
        try:
            self.analysis.pause()
            step(self.analysis)
        except (InputTooLargeError, ModelUnavailableError):
            return  # the metric that needs this will say why it is skipped


class Preparer:
    """Starts preparations for the turns of one pipeline.

    Args:
        metrics: the metrics that run; their models decide what is prepared.
        models: the local models.
    """

    def __init__(self, metrics: Iterable[Metric], models: Models) -> None:
        self._models = models
        self._steps = _steps([metric for metric in metrics if not metric.asks_judge], models)

    def start(self, query: str, texts: Iterable[str]) -> Preparation | None:
        """Analyse passages in the background. Returns None if there is nothing to prepare, or too much is waiting.

        Args:
            query: the retriever's query, which usually is the user's question.
            texts: the passages' texts.
        """
        # Preparation saves time but is never needed, so it is the first thing to give up under load.
        if not self._steps or len(_open) >= _MAX_OPEN:
            return None
        passages = tuple(Passage(text=text) for text in texts)
        if not passages:
            return None
        analysis = TurnAnalysis(Turn(query=query, passages=passages), self._models)
        preparation = Preparation(analysis, self._steps)
        _open.add(preparation)
        prepare_executor().submit(preparation.run)
        return preparation


def _steps(metrics: Sequence[Metric], models: Models) -> list[Callable[[TurnAnalysis], object]]:
    """Return what the local metrics will need of a query and its passages, the most expensive first."""
    roles = models.needed(role for metric in metrics for role in metric.models)
    steps: list[Callable[[TurnAnalysis], object]] = []
    if not any("passages" in metric.requires for metric in metrics):
        return steps
    # Embeddings take most of the time, so they start first: a short answer leaves little of it.
    if "embedder" in roles:
        steps += [lambda analysis: analysis.passage_embeddings, lambda analysis: analysis.context_embedding]
    steps.append(lambda analysis: analysis.passage_indexes)
    if "nlp" in roles:
        steps.append(lambda analysis: analysis.concepts)
    if "embedder" in roles:
        steps.append(lambda analysis: analysis.embed(analysis.turn.query))
    if {"embedder", "nlp"} <= roles:
        steps.append(lambda analysis: analysis.embed_all(analysis.concepts))
    return steps
