"""What ``instrument()`` puts into every chain of the process: a hook of langchain-core, and the handlers behind it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Hashable
from contextvars import ContextVar
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook
from opentelemetry import context as otel_context

from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.langchain.framework import (
    FRAMEWORK,
    LeftOut,
    is_part_left_out,
    key_of,
    langsmiths_run,
    left_out,
    surrounding_run,
    watch,
)
from rageval_hooks.integrations.langchain.handler import TurnHandler
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import Selection
from rageval_hooks.runtime.suppression import is_suppressed

__all__ = ["attach", "detach"]

_recorder = shared_recorder()
_knows = _recorder.knows
_langchains_context = var_child_runnable_config.get


class _AttachedHandler(TurnHandler):
    """What ``instrument()`` puts into a chain: one for each turn that is looked at, and one for parts of turns.

    Args:
        selection: what was decided about the turn. Should LangChain use the handler for more turns, each is decided
            as it starts.
    """

    explicit = False
    pipeline: Pipeline | None = None
    ignore_chain = ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = False

    def __init__(self, selection: Selection | None = None) -> None:
        self._selections = [] if selection is None else [selection]

    def _begin(self, parent_run_id: UUID | None) -> tuple[Hashable | None, Selection | None] | None:
        try:
            return key_of(parent_run_id), self._selections.pop()
        except IndexError:  # it was another run's
            pass
        foreign = parent_run_id is None or parent_run_id == langsmiths_run()
        if not foreign and self is _for_parts and is_part_left_out(parent_run_id):
            return None  # of another turn than the one around it: work that is shared by requests
        around = surrounding_run()
        if _knows(key_of(around)) and not _recorder.has_ended(key_of(parent_run_id)):
            parent_run_id = around  # it was called with callbacks of its own
        return key_of(parent_run_id), None


_for_parts = _AttachedHandler()


class _Hook:
    """Stands where langchain-core expects a context variable, and is asked for a handler before each run.

    A turn that is not looked at gets none, nor does anything inside of it, and so costs next to nothing: even a handler
    that ignores every event would cost LangChain's dispatch of some twenty events. What is part of a turn is told by
    LangChain's context; where that is not passed on (plain threads, tasks in Python 3.10), by the callback manager that
    is being configured, in the frame that asks.
    """

    def __init__(self) -> None:
        self._decided = threading.local()

    def get(self) -> BaseCallbackHandler | None:
        """Return the handler for the run that is about to begin; None if it has one, or is not looked at."""
        pipeline = _AttachedHandler.pipeline
        if pipeline is None or not pipeline.enabled or is_suppressed():
            return None
        try:
            around = None
            config = _langchains_context()
            if config is not None:  # not by surrounding_run and key_of: this is asked before each run of a turn
                around = getattr(config.get("callbacks"), "parent_run_id", None)
                if around is not None:
                    if _knows(getattr(around, "int", around)):
                        return _for_parts  # which LangChain takes only where there is none of ours yet
                    root = left_out.get()
                    if root is not None and root.around is not around and root.manager() is not None:
                        return None
            # It is asked twice in a row for the same run: whether there is a handler, and for the handler.
            handler: BaseCallbackHandler | None = getattr(self._decided, "handler", None)
            if handler is not None:
                self._decided.handler = None
                return handler
            asking = sys._getframe(1).f_locals
            manager, inherited = asking.get("callback_manager"), asking.get("inheritable_callbacks")
            handler = self._choose(pipeline, manager, inherited, around)
        except Exception as error:
            pipeline.failed("whether a run is looked at could not be decided", error)
            handler = None
        self._decided.handler = handler
        return handler

    def _choose(
        self, pipeline: Pipeline, manager: Any, inherited: Any, around: UUID | None
    ) -> BaseCallbackHandler | None:
        if not isinstance(manager, BaseCallbackManager):
            return _for_parts  # another version of langchain-core: each turn is decided as it starts
        if any(isinstance(handler, TurnHandler) for handler in manager.handlers):
            return None
        parent_id = getattr(inherited, "parent_run_id", None)
        if parent_id is not None:
            if _knows(key_of(parent_id)):
                return _for_parts  # of a turn whose handler is not passed on
            if is_part_left_out(parent_id):
                return None
        surrounding = _recorder.surrounding(FRAMEWORK)
        if surrounding is not None and surrounding[1] is not None:
            return _for_parts  # of another framework's turn
        if surrounding is None and not _recorder.is_left_out(FRAMEWORK):
            selection = pipeline.begin(otel_context.get_current())
            if selection.selected:
                return _AttachedHandler(selection)
        left_out.set(LeftOut(manager, around))
        return None


_registered = False


def attach(pipeline: Pipeline) -> None:
    """Send the turns of every chain in the process to a pipeline; replaces the one that was attached."""
    global _registered
    if not _registered:
        hook = cast("ContextVar[BaseCallbackHandler | None]", _Hook())
        register_configure_hook(hook, inheritable=True, handle_class=TurnHandler)
        _registered = True
    watch(pipeline)
    _AttachedHandler.pipeline = pipeline


def detach() -> None:
    """Send them nowhere, those under way included. LangChain keeps the hook; it does nothing from now on."""
    pipeline, _AttachedHandler.pipeline = _AttachedHandler.pipeline, None
    watch(None)
    if pipeline is not None:
        _recorder.forget(pipeline)
