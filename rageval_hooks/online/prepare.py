"""Preparation: passages are analysed while the model writes, so that only the answer is left at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import NamedTuple

from rageval_hooks.errors import InputTooLargeError, ModelUnavailableError, OverBudgetError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.runtime.executors import (
    embed_ahead_executor,
    embed_along_executor,
    is_evaluating,
    low_priority,
    model_executor,
    prepare_executor,
    turn_begins,
    turn_ends,
)
from rageval_hooks.runtime.fork import run_in_child
from rageval_hooks.runtime.suppression import suppressed
from rageval_hooks.runtime.threads import giving_way, sleep, wait_until
from rageval_hooks.settings import LEXICAL
from rageval_hooks.turn import Passage, Turn

__all__ = ["Preparation", "Preparer"]

_MAX_OPEN = 32
"""Preparations of this process that may wait or run. Beyond it turns are not prepared, which costs them time only."""

_HEAD_START = 0.03
"""Seconds from the end of a retrieval until its passages are analysed: the application sends its prompt first."""

_LONGEST_DELAY = 0.1
"""Seconds by which evaluations of turns that have ended delay it further: they have little time left."""

_CANCELLED = float("-inf")
"""A deadline that has always passed."""

_open: set[Preparation] = set()
"""The preparations of turns in progress."""

_waiting: deque[Preparation] = deque()
"""Those that wait for passes, the newest last."""

_Step = Callable[[TurnAnalysis], object]


class _Steps(NamedTuple):
    """What the local metrics will need of a query and its passages.

    Attributes:
        rules: steps that take some milliseconds.
        short: passes of a model over short texts.
        long: passes over the passages.
    """

    rules: Sequence[_Step]
    short: Sequence[_Step]
    long: Sequence[_Step]


class Preparation:
    """The analysis of a turn's passages, in progress or done.

    Args:
        analysis: an analysis of the query and the passages, without an answer.
        steps: what to compute.
    """

    def __init__(self, analysis: TurnAnalysis, steps: _Steps) -> None:
        self.analysis = analysis
        self._steps = steps
        self._to_embed = deque(analysis.turn.passages)
        self._begins_at = time.monotonic() + _HEAD_START

    def start(self) -> None:
        """Queue the work."""
        _open.add(self)
        rules = prepare_executor().submit(self._run, self._steps.rules)
        if not self._steps.long:
            rules.add_done_callback(lambda _: self._close())
        else:
            turn_begins(self)
            _waiting.append(self)
            _run_waiting()

    def cancel(self) -> None:
        """Stop at the next passage: the turn has ended, and its own evaluation takes over."""
        self.analysis.deadline = _CANCELLED
        self._close()

    def run_passes(self) -> None:
        """Embed what the turn will need."""
        try:
            with model_executor().series("early"):
                # The short texts first: if there is time for nothing else, the scores that need only them are ready.
                self._run([*self._steps.short, self._embed_passages, *self._steps.long])
        finally:
            self._close()

    def _close(self) -> None:
        _open.discard(self)
        # Under load most turns end before their passes begin, and must not stay in memory.
        with suppress(ValueError):
            _waiting.remove(self)
        turn_ends(self)

    def _embed_passages(self, analysis: TurnAnalysis) -> None:
        """Embed the passages on two cores."""
        helper: Future[None] | None = None
        while self._to_embed:
            self._embed_next(analysis)
            # Not before the first passage: until then the scores of an earlier turn may need the second core.
            if helper is None:
                helper = embed_along_executor().submit(self._run, [self._help])
        if helper is not None:
            wait([helper])

    def _help(self, analysis: TurnAnalysis) -> None:
        while self._to_embed:
            self._embed_next(analysis)

    def _embed_next(self, analysis: TurnAnalysis) -> None:
        with suppress(IndexError):  # the other thread took the last one
            analysis.embed_passage(self._to_embed.popleft())

    def _run(self, steps: Sequence[_Step]) -> None:
        """Compute steps, giving way to evaluations of turns that have ended, and to the application."""
        sleep(self._begins_at - time.monotonic())
        wait_until(lambda: not is_evaluating(), self._begins_at + _LONGEST_DELAY - time.monotonic())
        with suppressed(), low_priority("early"), giving_way(), suppress(OverBudgetError):  # cancelled
            for step in steps:
                self.analysis.pause()
                # The metric that needs what cannot be computed will say why it is skipped.
                with suppress(InputTooLargeError, ModelUnavailableError):
                    step(self.analysis)


def _run_newest() -> None:
    """Run the passes of the newest turn.

    Under load there is no time to prepare all turns. The newest has the most time left; with the oldest first, each
    would end just before it is ready.
    """
    try:
        newest = _waiting.pop()
    except IndexError:  # its turn has ended
        return
    try:
        newest.run_passes()
    finally:
        _run_waiting()


def _run_waiting() -> None:
    """Have the passes of waiting turns run, one turn after the other. One job is enough: it starts the next."""
    executor = embed_ahead_executor()
    if _waiting and not executor.has_queue:
        executor.submit(_run_newest)


class Preparer:
    """Starts preparations for the turns of one pipeline.

    Args:
        metrics: the metrics that run; their models decide what is prepared.
        models: the local models.
    """

    def __init__(self, metrics: Iterable[Metric], models: Models) -> None:
        self._models = models
        local = [metric for metric in metrics if not metric.asks_judge]
        self._steps = _steps(local, models)

    def start(self, query: str, texts: Iterable[str]) -> Preparation | None:
        """Analyse passages in the background. Returns None if there is nothing to prepare, or too much is waiting.

        Args:
            query: the retriever's query, which usually is the user's question.
            texts: the passages' texts.
        """
        # Preparation saves time but is never needed, so it is the first thing to give up under load.
        if not self._steps.rules or len(_open) >= _MAX_OPEN:
            return None
        passages = tuple(Passage(text=text) for text in texts)
        if not passages:
            return None
        analysis = TurnAnalysis(Turn(query=query, passages=passages), self._models)
        preparation = Preparation(analysis, self._steps)
        preparation.start()
        return preparation


def _steps(metrics: Sequence[Metric], models: Models) -> _Steps:
    """Return what the local metrics will need."""
    roles = models.needed(role for metric in metrics for role in metric.models)
    if not any("passages" in metric.requires for metric in metrics):
        return _Steps([], [], [])
    rules: list[_Step] = [lambda analysis: analysis.passage_indexes, lambda analysis: analysis.prompt_sequences]
    short: list[_Step] = []
    long: list[_Step] = []
    if "nlp" in roles:
        rules.append(lambda analysis: analysis.concepts)
    if "embedder" in roles:
        short.append(lambda analysis: analysis.embed(analysis.turn.query))
        long = [lambda analysis: analysis.passage_embeddings, lambda analysis: analysis.context_embedding]
    if {"embedder", "nlp"} <= roles:
        short.append(lambda analysis: analysis.embed_all(analysis.concepts))
    if models.settings.embedder == LEXICAL:
        return _Steps([*rules, *short, *long], [], [])
    return _Steps(rules, short, long)


def _reset_in_child() -> None:
    _open.clear()
    _waiting.clear()


run_in_child(_reset_in_child)
