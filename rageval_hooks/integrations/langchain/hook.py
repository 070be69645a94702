"""What ``instrument()`` puts into every chain of the process: a hook of langchain-core, and the handler behind it."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook
from opentelemetry import context as otel_context

from rageval_hooks.integrations.langchain.frame import FRAMEWORK, Decision, ambient_run, decided, key_of
from rageval_hooks.integrations.langchain.handler import TurnHandler
from rageval_hooks.integrations.recorder import shared_recorder
from rageval_hooks.muted import is_muted
from rageval_hooks.pipeline import Pipeline

__all__ = ["attach", "detach"]


class _AttachedHandler(TurnHandler):
    """The one handler that ``instrument()`` puts into the chains of the process."""

    explicit = False
    ignore_chain = ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = False


_attached = _AttachedHandler()


class _Hook:
    """Stands where langchain-core expects a context variable, and is asked for a handler before each run.

    A turn that is not looked at gets none, nor does anything inside of it, and so costs next to nothing: even a handler
    that ignores every event would cost LangChain's dispatch of some twenty events.
    """

    def get(self) -> BaseCallbackHandler | None:
        """Return the handler, if the run that is about to begin is to be seen."""
        pipeline = _attached.pipeline
        if pipeline is None or not pipeline.enabled or is_muted():
            return None
        try:
            return _attached if self._sees(pipeline, sys._getframe(1).f_locals) else None
        except Exception as error:
            pipeline.failed("whether a run is looked at could not be decided", error)
            return None

    def _sees(self, pipeline: Pipeline, asking: Any) -> bool:
        decision = decided.get()
        around: Any = (var_child_runnable_config.get() or {}).get("callbacks")
        if getattr(around, "parent_run_id", None) is None:  # not in LangChain's context, but perhaps passed on by hand
            around = asking.get("inheritable_callbacks")
        parent_id = getattr(around, "parent_run_id", None)
        if parent_id is not None:
            if decision is not None:
                decided.set(None)
            return any(handler is _attached for handler in around.handlers) or key_of(parent_id) in shared_recorder()
        if decision is not None and decision.owner is pipeline and decision.selection.selected and not decision.told:
            decision.told = True
            return True
        return self._sees_turn(pipeline)

    def _sees_turn(self, pipeline: Pipeline) -> bool:
        surrounding = shared_recorder().surrounding(FRAMEWORK)
        if surrounding is not None:  # LangChain inside of another framework's turn
            decided.set(None)
            return surrounding[1] is not None
        selection = pipeline.begin(otel_context.get_current())
        decided.set(Decision(pipeline, selection))
        return selection.selected


def _left_out() -> bool:
    """Whether the calling code runs inside of a LangChain turn that is not looked at."""
    key = ambient_run() if _attached.pipeline is not None else None
    return key is not None and key not in shared_recorder()


FRAMEWORK.left_out = _left_out
_registered = False


def attach(pipeline: Pipeline) -> None:
    """Send the turns of every chain in the process to a pipeline; replaces the one that was attached."""
    global _registered
    if not _registered:
        hook = cast("ContextVar[BaseCallbackHandler | None]", _Hook())
        register_configure_hook(hook, inheritable=True, handle_class=TurnHandler)
        _registered = True
    _attached.pipeline = pipeline


def detach() -> None:
    """Send them nowhere, those under way included. LangChain keeps the hook; it does nothing from now on."""
    pipeline, _attached.pipeline = _attached.pipeline, None
    if pipeline is not None:
        shared_recorder().forget(pipeline)
