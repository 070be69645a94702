"""What ``instrument()`` puts into every chain of the process: a hook of langchain-core, and the handler behind it."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import RunnableConfig, var_child_runnable_config
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
_recorder = shared_recorder()
_NO_CONFIG: RunnableConfig = {}


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
            around: Any = (var_child_runnable_config.get() or _NO_CONFIG).get("callbacks")
            if getattr(around, "parent_run_id", None) is None:  # perhaps passed on by hand, as legacy chains do
                around = sys._getframe(1).f_locals.get("inheritable_callbacks")
            sees = self._sees_part if getattr(around, "parent_run_id", None) is not None else self._sees_turn
            return _attached if sees(pipeline, around) else None
        except Exception as error:
            pipeline.failed("whether a run is looked at could not be decided", error)
            return None

    def _sees_part(self, _: Pipeline, around: Any) -> bool:
        if decided.get() is not None:
            decided.set(None)
        return _attached in around.handlers or key_of(around.parent_run_id) in _recorder

    def _sees_turn(self, pipeline: Pipeline, _: Any) -> bool:
        decision = decided.get()
        if decision is not None and decision.owner is pipeline and decision.selection.selected and not decision.told:
            decision.told = True
            return True
        surrounding = _recorder.surrounding(FRAMEWORK)
        if surrounding is not None:  # LangChain inside of another framework's turn
            decided.set(None)
            return surrounding[1] is not None
        selection = pipeline.begin(otel_context.get_current())
        decided.set(Decision(pipeline, selection))
        return selection.selected


def _left_out() -> bool:
    """Whether the calling code runs inside of a LangChain turn that is not looked at."""
    key = ambient_run() if _attached.pipeline is not None else None
    return key is not None and key not in _recorder


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
        _recorder.forget(pipeline)
