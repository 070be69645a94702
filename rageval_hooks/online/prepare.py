"""Preparation: passages are analysed while the model writes, so that only the answer is left at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import NamedTuple

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

_CANCELLED = float("-inf")
"""A deadline that has always passed."""

_Step = Callable[[TurnAnalysis], object]

_open: set[Preparation] = set()
"""The preparations of turns in progress."""

run_in_child(_open.clear)


class _Needs(NamedTuple):
    """What the local metrics will need of a query and its passages.

    Attributes:
        rules: steps that take some milliseconds, and passes of a model over short texts.
        embeds: True if every passage is embedded.
        last: steps that need the embedded passages.
    """

    rules: Sequence[_Step]
    embeds: bool
    last: Sequence[_Step]


class Preparation:
    """The analysis of a turn's passages, in progress or done.

    Args:
        analysis: an analysis of the query and the passages, without an answer.
        needs: what to compute.
    """

    def __init__(self, analysis: TurnAnalysis, needs: _Needs) -> None:
        self.analysis = analysis
        self._needs = needs
        self._to_embed = deque(analysis.turn.passages if needs.embeds else ())

    def start(self) -> None:
        """Queue the work."""
        _open.add(self)
        # The second thread helps with the passages: each takes a pass of its own.
        for steps in (self._all(), self._embed()) if self._needs.embeds else (self._all(),):
            local_pool().run(steps, Priority.PREPARE, Context())

    def cancel(self) -> None:
        """Stop at the next step: the turn has ended, and its own evaluation takes over."""
        self.analysis.deadline = _CANCELLED
        self._to_embed.clear()
        _open.discard(self)

    def _all(self) -> Steps[None]:
        try:
            for step in self._needs.rules:
                self._do(step)
                yield Priority.PREPARE
            yield from self._embed()
            for step in self._needs.last:
                self._do(step)
                yield Priority.PREPARE
        finally:
            _open.discard(self)

    def _embed(self) -> Steps[None]:
        """Embed the passages that are left. Several threads may do this."""
        with suppress(IndexError):  # another thread took the last one
            while True:
                passage = self._to_embed.popleft()
                self._do(partial(TurnAnalysis.embed_passage, passage=passage))
                yield Priority.PREPARE

    def _do(self, step: _Step) -> None:
        # The metric that needs what cannot be computed will say why it is skipped.
        with suppress(InputTooLargeError, ModelUnavailableError, OverBudgetError):
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
        self._needs = _needs([metric for metric in metrics if not metric.asks_judge], models)

    def start(self, query: str, texts: Iterable[str]) -> Preparation | None:
        """Analyse passages in the background. Returns None if there is nothing to prepare, or too much is waiting.

        Args:
            query: the retriever's query, which usually is the user's question.
            texts: the passages' texts.
        """
        # Preparation saves time but is never needed, so it is the first thing to give up under load.
        if not self._needs.rules or len(_open) >= _MAX_OPEN:
            return None
        passages = tuple(Passage(text=text) for text in texts)
        if not passages:
            return None
        analysis = TurnAnalysis(Turn(query=query, passages=passages), self._models)
        preparation = Preparation(analysis, self._needs)
        preparation.start()
        return preparation


def _needs(metrics: Sequence[Metric], models: Models) -> _Needs:
    """Return what the local metrics will need."""
    if not any("passages" in metric.requires for metric in metrics):
        return _Needs([], False, [])
    roles = models.needed(role for metric in metrics for role in metric.models)
    rules: list[_Step] = [lambda analysis: analysis.passage_indexes, lambda analysis: analysis.prompt_statements]
    if "nlp" in roles:
        rules.append(lambda analysis: analysis.concepts)
    if "embedder" not in roles:
        return _Needs(rules, False, [])
    rules.append(lambda analysis: analysis.embed(analysis.turn.query))
    if "nlp" in roles:
        rules.append(lambda analysis: analysis.embed_all(analysis.concepts))
    last: list[_Step] = [lambda analysis: analysis.passage_embeddings, lambda analysis: analysis.context_embedding]
    if models.settings.embedder == LEXICAL:
        return _Needs([*rules, *last], False, [])
    return _Needs(rules, True, last)
