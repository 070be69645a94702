"""Captures what the frameworks do for one question, however many are asked at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context

from rageval_hooks.models import Models
from rageval_hooks.online.inline import DONE, Arrival
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.settings import Settings
from rageval_hooks.turn import Timing, Turn, Usage

if TYPE_CHECKING:
    from rageval_hooks.offline.apps.langchain_capture import CapturingHandler

__all__ = ["Capture", "Captured", "joined"]

_KEY = otel_context.create_key("rageval-run-question")


class Captured:
    """What was seen of one question.

    Attributes:
        turns: in the order in which they ended.
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []


class _Collector(Pipeline):
    """Puts every turn where its question finds it: the OpenTelemetry context in which the turn began says which.

    That context goes with the caller through threads and tasks, so that turns of concurrent questions are told apart
    exactly, and it leaves the application's own trace as it is. Nothing is evaluated. The environment's settings are
    those of the application, not of this.
    """

    def __init__(self) -> None:
        settings = Settings.model_construct(
            exporters=(), spans="rag", evaluate_unsampled=True, evaluate_without_retrieval=True
        )
        super().__init__(settings, [], [], Models(settings.models))
        self.computes_inline = True  # a turn is built, and handed over, before its call returns

    def submit(self, turn: Turn | Callable[[], Turn], context: TurnContext | None = None) -> Arrival:
        """Keep a turn that has just ended."""
        captured = otel_context.get_value(_KEY, context.context) if context is not None else None
        if isinstance(captured, Captured):
            captured.turns.append(turn if isinstance(turn, Turn) else turn())
        return DONE


class Capture:
    """Watches the frameworks that are installed, between :meth:`attach` and :meth:`detach`."""

    def __init__(self) -> None:
        self._pipeline = _Collector()
        self._handler: CapturingHandler | None = None

    @contextmanager
    def attached(self) -> Iterator[Capture]:
        """Watch while the block runs; what ``instrument()`` had attached to LlamaIndex is detached."""
        llama_index = _llama_index()
        if find_spec("langchain_core") is not None:
            from rageval_hooks.offline.apps.langchain_capture import CapturingHandler

            self._handler = CapturingHandler(self._pipeline)
        if llama_index is not None:
            llama_index.attach(self._pipeline)
        try:
            yield self
        finally:
            if llama_index is not None:
                llama_index.detach()

    def begin(self) -> Captured:
        """Capture what the current context does from now on. Meant for a context of its own: there is no end."""
        captured = Captured()
        otel_context.attach(otel_context.set_value(_KEY, captured))
        if self._handler is not None:
            self._handler.watch()
        return captured


def _llama_index() -> Any:
    if find_spec("llama_index_instrumentation") is None:
        return None
    from rageval_hooks.integrations import llama_index

    return llama_index


def joined(turns: Sequence[Turn]) -> Turn | None:
    """Make one turn of all that a question has set off: where a function calls retriever and model by itself, several.

    The answer is that of the last turn that has one; the passages are those of all.
    """
    if len(turns) < 2:
        return turns[0] if turns else None
    from rageval_hooks.integrations.capture.passages import mark_shown, unique_passages

    turns = sorted(turns, key=lambda turn: turn.timing.started_at if turn.timing else 0)
    answering = next((turn for turn in reversed(turns) if turn.response and (turn.prompt or turn.model)), None)
    last = answering or next((turn for turn in reversed(turns) if turn.response), turns[-1])
    passages = unique_passages(passage for turn in turns for passage in turn.passages)
    if last.prompt and any(passage.in_prompt is None for passage in passages):
        passages = mark_shown(passages, "\n".join(message.content for message in last.prompt))
    queries = [query for turn in turns for query in (turn.query if turn.passages else "", *turn.retrieval_queries)]
    return last.model_copy(
        update={
            "passages": passages,
            "retrieval_queries": tuple(dict.fromkeys(filter(None, queries))),
            "steps": tuple(step for turn in turns for step in turn.steps),
            "usage": Usage.sum(turn.usage for turn in turns),
            "timing": _timing([turn.timing for turn in turns if turn.timing is not None]),
        }
    )


def _timing(timings: Sequence[Timing]) -> Timing | None:
    if not timings:
        return None
    retrieval = [timing.retrieval for timing in timings if timing.retrieval is not None]
    generation = [timing.generation for timing in timings if timing.generation is not None]
    return Timing(
        started_at=min(timing.started_at for timing in timings),
        ended_at=max(timing.ended_at for timing in timings),
        retrieval=sum(retrieval) if retrieval else None,
        generation=sum(generation) if generation else None,
    )
