"""Preparation: the passages of a turn are analysed while the model writes its answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress as suppress_errors
from contextvars import Context
from functools import partial

from rageval_hooks.errors import InputTooLargeError, ModelUnavailableError, OverBudgetError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.runtime.fork import run_in_child
from rageval_hooks.runtime.pool import Priority, Steps, local_pool
from rageval_hooks.settings import LEXICAL
from rageval_hooks.turn import Passage, Turn

_MAX_OPEN = 32
"""Preparations of this process that may wait or run. Beyond it turns are not prepared, which costs them time only."""

_Step = Callable[[TurnAnalysis], object]

_open_preparations: set[Preparation] = set()
"""The preparations of turns in progress."""

run_in_child(_open_preparations.clear)


class Preparation:
    """The analysis of a turn's passages, in progress or done: only the answer is left at the end.

    Args:
        analysis: an analysis of the query and the passages, without an answer.
        first: steps that take some milliseconds, and passes of a model over short texts.
        embeds: True if every passage is embedded.
        last: steps that need the embedded passages.
    """

    def __init__(self, analysis: TurnAnalysis, first: Sequence[_Step], embeds: bool, last: Sequence[_Step]) -> None:
        self.analysis = analysis
        self._first, self._last = first, last
        self._to_embed = deque(analysis.turn.passages if embeds else ())
        _open_preparations.add(self)
        # The second thread helps with the passages: each takes a pass of its own.
        for steps in (self._all(), self._embed()) if embeds else (self._all(),):
            local_pool().run(steps, Priority.PREPARE, Context())

    def cancel(self) -> None:
        """Stop at the next step: the turn has ended, and its own evaluation takes over."""
        self.analysis.cancel()
        self._to_embed.clear()
        _open_preparations.discard(self)

    def _all(self) -> Steps[None]:
        try:
            for step in self._first:
                self._do(step)
                yield Priority.PREPARE
            yield from self._embed()
            for step in self._last:
                self._do(step)
                yield Priority.PREPARE
        finally:
            _open_preparations.discard(self)

    def _embed(self) -> Steps[None]:
        """Embed the passages that are left. Several threads may do this."""
        with suppress_errors(IndexError):  # another thread took the last one
            while True:
                passage = self._to_embed.popleft()
                self._do(partial(TurnAnalysis.embed_passage, passage=passage))
                yield Priority.PREPARE

    def _do(self, step: _Step) -> None:
        # The metric that needs what cannot be computed will say why it is skipped.
        with suppress_errors(InputTooLargeError, ModelUnavailableError, OverBudgetError):
            self.analysis.pause()
            step(self.analysis)


class Preparer:
    """Starts preparations for the turns of one pipeline.

    Args:
        metrics: the metrics that run; their models decide what is prepared.
        models: the local models.
    """

    def __init__(self, metrics: Iterable[Metric], models: Models) -> None:
        self._models = models
        self._first, self._last = list[_Step](), list[_Step]()
        self._embeds = False
        local = [metric for metric in metrics if not metric.asks_judge]
        if not any("passages" in metric.requires for metric in local):
            return
        roles = models.needed(role for metric in local for role in metric.models)
        has_concepts, has_embeddings = "nlp" in roles, "embedder" in roles
        self._first.append(lambda analysis: analysis.passage_indexes)
        if has_concepts:
            self._first.append(lambda analysis: analysis.concepts)
        if has_embeddings:
            self._embeds = models.settings.embedder != LEXICAL
            self._first.append(lambda analysis: analysis.embed(analysis.turn.query))
            self._last += [lambda analysis: analysis.passage_embeddings, lambda analysis: analysis.context_embedding]
        if has_concepts and has_embeddings:
            self._first.append(lambda analysis: [*map(analysis.embed, analysis.concepts)])

    def start(self, query: str, texts: Iterable[str]) -> Preparation | None:
        """Analyse passages in the background. Returns None if there is nothing to prepare, or too much is waiting.

        Args:
            query: the retriever's query, which usually is the user's question.
            texts: the passages' texts.
        """
        # Preparation saves time but is never needed, so it is the first thing to give up under load.
        if not self._first or len(_open_preparations) >= _MAX_OPEN:
            return None
        passages = tuple(Passage(text=text) for text in texts)
        if not passages:
            return None
        analysis = TurnAnalysis(Turn(query=query, passages=passages), self._models)
        return Preparation(analysis, self._first, self._embeds, self._last)
