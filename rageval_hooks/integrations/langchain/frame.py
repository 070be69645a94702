"""LangChain as the recorder knows it, and what was decided about the turn that is about to begin."""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config

from rageval_hooks.integrations.langchain.runs import turn_from_runs
from rageval_hooks.integrations.recorder import Framework, shared_recorder
from rageval_hooks.pipeline import Pipeline
from rageval_hooks.selection import Selection

__all__ = ["FRAMEWORK", "Decision", "ambient_run", "decided", "key_of", "running_retriever", "take_decision"]


def key_of(run_id: UUID | None) -> Hashable | None:
    """Return the key by which the recorder knows a run: numbers are looked up in a fraction of a UUID's time."""
    return run_id.int if isinstance(run_id, UUID) else run_id


def _text_id(key: Hashable) -> str:
    return str(UUID(int=key)) if isinstance(key, int) else str(key)


running_retriever: ContextVar[Hashable | None] = ContextVar("rageval_hooks_langchain_retriever", default=None)
"""The retriever that runs now: LangChain's own context variable does not know of it."""


def ambient_run() -> Hashable | None:
    """Return the key of the run that the calling code runs in."""
    retriever = shared_recorder().get(running_retriever.get())
    for run in (retriever, *retriever.ancestors()) if retriever is not None else ():
        if run.kind == "retriever" and run.ended_at is None and run.framework is FRAMEWORK:
            return run.id
    callbacks = (var_child_runnable_config.get() or {}).get("callbacks")
    return key_of(getattr(callbacks, "parent_run_id", None))


FRAMEWORK = Framework("langchain", turn_from_runs, ambient_run, text_id=_text_id)
shared_recorder().join(FRAMEWORK)


class Decision:
    """Whether the turn that is about to begin in this context is looked at.

    Attributes:
        owner: the pipeline that decided.
        selection: what it decided.
        told: whether langchain-core, which asks twice for a handler, has been told for the second time.
    """

    __slots__ = ("owner", "selection", "told")

    def __init__(self, owner: Pipeline, selection: Selection) -> None:
        self.owner = owner
        self.selection = selection
        self.told = False


decided: ContextVar[Decision | None] = ContextVar("rageval_hooks_langchain_decided", default=None)


def take_decision(explicit: bool) -> Selection | None:
    """Return what was decided about the run that starts now, should it be a turn; it is forgotten.

    Args:
        explicit: whether a handler of the application's sees the run; then its own pipeline decides, and what
            ``instrument()`` has decided does not count.
    """
    decision = decided.get()
    if decision is None:
        return None
    decided.set(None)
    if explicit or not decision.selection.selected:
        decision.owner.take_back(decision.selection)
        return None
    return decision.selection
