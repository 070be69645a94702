"""LangChain as the recorder knows it."""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config

from rageval_hooks.integrations.langchain.runs import turn_from_runs
from rageval_hooks.integrations.recorder import Framework, shared_recorder

__all__ = ["FRAMEWORK", "LEFT_OUT", "key_of", "running_retriever"]


def key_of(run_id: UUID | None) -> Hashable | None:
    """Return the key by which the recorder knows a run: numbers are looked up in a fraction of a UUID's time."""
    return getattr(run_id, "int", run_id)


def _text_id(key: Hashable) -> str:
    return str(UUID(int=key)) if isinstance(key, int) else str(key)


class _LeftOut(BaseCallbackHandler):
    """Marks LangChain's callback managers inside of a turn that is not looked at: it goes from each to those below.

    It stands among their inheritable handlers only, so that no event is ever handed to it.
    """

    ignore_llm = ignore_chat_model = ignore_chain = ignore_agent = ignore_retriever = True
    ignore_retry = ignore_custom_event = True


LEFT_OUT = _LeftOut()

running_retriever: ContextVar[Hashable | None] = ContextVar("rageval_hooks_langchain_retriever", default=None)
"""The retriever that runs now: LangChain's own context variable does not know of it."""


def _ambient_run() -> Hashable | None:
    """Return the key of the run that the calling code runs in."""
    retriever = shared_recorder().get(running_retriever.get())
    for run in (retriever, *retriever.ancestors()) if retriever is not None else ():
        if run.kind == "retriever" and run.ended_at is None and run.framework is FRAMEWORK:
            return run.id
    callbacks = (var_child_runnable_config.get() or {}).get("callbacks")
    return key_of(getattr(callbacks, "parent_run_id", None))


def _left_out() -> bool:
    """Whether the calling code runs inside of a turn that is not looked at."""
    callbacks = (var_child_runnable_config.get() or {}).get("callbacks")
    return LEFT_OUT in getattr(callbacks, "inheritable_handlers", ())


FRAMEWORK = Framework("langchain", turn_from_runs, _ambient_run, _left_out, _text_id)
shared_recorder().join(FRAMEWORK)
