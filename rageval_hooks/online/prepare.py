"""Preparation: passages are analysed while the model writes, so that only the answer is left at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress

from rageval_hooks.errors import InputTooLargeError, ModelUnavailableError, OverBudgetError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.runtime.executors import embed_ahead_executor, low_priority, model_executor, prepare_executor
from rageval_hooks.runtime.suppression import suppressed
from rageval_hooks.runtime.threads import giving_way, sleep
from rageval_hooks.turn import Passage, Turn

__all__ = ["Preparation", "Preparer"]

_MAX_OPEN = 32
"""Preparations of this process that may wait or run. Beyond it turns are not prepared, which costs them time only."""

_HEAD_START = 0.03
"""Seconds from the end of a retrieval until its passages are analysed: the application sends its prompt first."""

_CANCELLED = float("-inf")
"""A deadline that has always passed."""

_open: set[Preparation] = set()


_Step = Callable[[TurnAnalysis], object]


class Preparation:
    """The analysis of a turn's passages, in progress or done.

    Args:
        analysis: an analysis of the query and the passages, without an answer.
        rules: steps that take some milliseconds.
        passes: steps that need passes of a model.
    """

    def __init__(self, analysis: TurnAnalysis, rules: Sequence[_Step], passes: Sequence[_Step]) -> None:
        self.analysis = analysis
        self._rules = rules
        self._passes = passes
        self._to_embed = deque(analysis.turn.passages if passes else ())
        self._begins_at = time.monotonic() + _HEAD_START

    def start(self) -> None:
        """Queue the work."""
        _open.add(self)
        prepare_executor().submit(self._run, self._rules)
        embed_ahead_executor().submit(self._run_passes)

    def cancel(self) -> None:
        """Stop at the next passage: the turn has ended, and its own evaluation takes over."""
        self.analysis.deadline = _CANCELLED

    def _run_passes(self) -> None:
        try:
            with model_executor().early_series():
                self._run([self._embed_passages, *self._passes])
        finally:
            _open.discard(self)

    def _embed_passages(self, analysis: TurnAnalysis) -> None:
        """Embed the passages; on a second core as well while no other turn is in progress, which may need that core."""
        helper: Future[None] | None = None
        while self._to_embed:
            self._embed_next(analysis)
            # Not before the first passage: until then the scores of an earlier turn may need the second core.
            if helper is None and _is_alone():
                helper = prepare_executor().submit(self._run, [self._help])
        if helper is not None:
            wait([helper])

    def _help(self, analysis: TurnAnalysis) -> None:
        while self._to_embed and _is_alone():
            self._embed_next(analysis)

    def _embed_next(self, analysis: TurnAnalysis) -> None:
        with suppress(IndexError):  # the other thread took the last one
            analysis.embed_passage(self._to_embed.popleft())

    def _run(self, steps: Sequence[_Step]) -> None:
        """Compute steps, giving way to evaluations of turns that have ended, and to the application."""
        sleep(self._begins_at - time.monotonic())
        with suppressed(), low_priority("early"), giving_way(), suppress(OverBudgetError):  # cancelled
            for step in steps:
                self.analysis.pause()
                # The metric that needs what cannot be computed will say why it is skipped.
                with suppress(InputTooLargeError, ModelUnavailableError):
                    step(self.analysis)


def _is_alone() -> bool:
    return len(_open) == 1


class Preparer:
    """Starts preparations for the turns of one pipeline.

    Args:
        metrics: the metrics that run; their models decide what is prepared.
        models: the local models.
    """

    def __init__(self, metrics: Iterable[Metric], models: Models) -> None:
        self._models = models
        local = [metric for metric in metrics if not metric.asks_judge]
        self._rules, self._passes = _steps(local, models)

    def start(self, query: str, texts: Iterable[str]) -> Preparation | None:
        """Analyse passages in the background. Returns None if there is nothing to prepare, or too much is waiting.

        Args:
            query: the retriever's query, which usually is the user's question.
            texts: the passages' texts.
        """
        # Preparation saves time but is never needed, so it is the first thing to give up under load.
        if not self._rules or len(_open) >= _MAX_OPEN:
            return None
        passages = tuple(Passage(text=text) for text in texts)
        if not passages:
            return None
        analysis = TurnAnalysis(Turn(query=query, passages=passages), self._models)
        preparation = Preparation(analysis, self._rules, self._passes)
        preparation.start()
        return preparation


def _steps(metrics: Sequence[Metric], models: Models) -> tuple[list[_Step], list[_Step]]:
    """Return what the local metrics will need of a query and its passages: by rules, and by passes of a model."""
    roles = models.needed(role for metric in metrics for role in metric.models)
    rules: list[_Step] = []
    passes: list[_Step] = []
    if not any("passages" in metric.requires for metric in metrics):
        return rules, passes
    rules.append(lambda analysis: analysis.passage_indexes)
    if "nlp" in roles:
        rules.append(lambda analysis: analysis.concepts)
    if "embedder" in roles:
        passes += [
            lambda analysis: analysis.passage_embeddings,
            lambda analysis: analysis.context_embedding,
            lambda analysis: analysis.embed(analysis.turn.query),
        ]
    if {"embedder", "nlp"} <= roles:
        passes.append(lambda analysis: analysis.embed_all(analysis.concepts))
    return rules, passes
