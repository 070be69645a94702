"""LangChain as the recorder knows it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Hashable
from contextvars import ContextVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables.config import var_child_runnable_config

from rageval_hooks.integrations.capture.recorder import STRAGGLING_SECONDS, Framework, shared_recorder
from rageval_hooks.integrations.langchain.runs import turn_from_runs
from rageval_hooks.online.pipeline import Pipeline

__all__ = [
    "FRAMEWORK",
    "LeftOut",
    "is_part_left_out",
    "key_of",
    "langsmiths_run",
    "left_out",
    "running_retriever",
    "surrounding_run",
    "watch",
]

_TIME_ORDERED = 7
"""Version of UUIDs that begin with the milliseconds since the epoch. LangChain's own are."""


def key_of(run_id: Hashable | None) -> Hashable | None:
    """Return the key by which the recorder knows a run: numbers are looked up in a fraction of a UUID's time.

    What comes for each run and for each token has ``getattr(run_id, "int", run_id)`` in its place.
    """
    return run_id.int if isinstance(run_id, UUID) else run_id


def _text_id(key: Hashable) -> str:
    return str(UUID(int=key)) if isinstance(key, int) else str(key)


# --------------------------------------------------------------------------- what the calling code runs in

running_retriever: ContextVar[Hashable | None] = ContextVar("rageval_hooks_langchain_retriever", default=None)
"""The retriever that runs now: LangChain's own context variable does not know of it."""


def surrounding_run() -> UUID | None:
    """Return the id of the run that the calling code runs in, as LangChain's context has it."""
    config = var_child_runnable_config.get()
    return None if config is None else getattr(config.get("callbacks"), "parent_run_id", None)


def langsmiths_run() -> UUID | None:
    """Return the id of the run of LangSmith's that the calling code runs in; LangChain takes it for a parent."""
    from langsmith.run_helpers import get_tracing_context

    run_id: UUID | None = getattr(get_tracing_context().get("parent"), "id", None)
    return run_id


def _ambient_run() -> Hashable | None:
    """Return the key of the run that the calling code runs in."""
    key = running_retriever.get()
    retriever = None if key is None else shared_recorder().get(key)
    for run in (retriever, *retriever.ancestors()) if retriever is not None else ():
        if run.kind == "retriever" and run.ended_at is None and run.framework is FRAMEWORK:
            return run.id
    around = surrounding_run()
    return None if around is None else key_of(around)


# --------------------------------------------------------------------------- what is not looked at


class LeftOut:
    """A root that is not looked at.

    Args:
        manager: its callback manager, which lives as long as it runs.
        around: the run that it was called in, as LangChain's context had it.
    """

    __slots__ = ("_ended_at", "around", "manager")

    def __init__(self, manager: BaseCallbackManager, around: UUID | None) -> None:
        self.manager = weakref.ref(manager, self._end)
        self.around = around
        self._ended_at: float | None = None

    def _end(self, _: object) -> None:
        self._ended_at = time.monotonic()

    @property
    def is_long_over(self) -> bool:
        """Whether it ended so long ago that what runs in its context now is no part of it."""
        return self._ended_at is not None and time.monotonic() - self._ended_at > STRAGGLING_SECONDS


left_out: ContextVar[LeftOut | None] = ContextVar("rageval_hooks_langchain_left_out", default=None)
"""The root that was left out last in this context. It may have ended; and the calling code is inside of it only if
LangChain's context has moved on since: the caller of a batch or of a stream has the variable too."""

_watching: tuple[Pipeline, int] | None = None


def watch(pipeline: Pipeline | None) -> None:
    """Note which pipeline decides, from now on, whether a turn is looked at."""
    global _watching
    _watching = None if pipeline is None else (pipeline, time.time_ns() // 1_000_000)


def is_part_left_out(parent_id: Hashable) -> bool:
    """Whether the parent of a run is part of a turn that is not looked at, or was.

    Args:
        parent_id: of a run that the recorder does not know. It may also have begun before anybody looked, or be an id
            of the application's own, which is told by its not being time-ordered.
    """
    root = left_out.get()
    if root is not None and root.manager() is not None:
        return True
    key, recorder = key_of(parent_id), shared_recorder()
    if recorder.has_ended(key):
        return recorder.goes_on(key)
    if root is not None and root.is_long_over:
        return False
    if _watching is None or not _watching[0].leaves_out or not isinstance(parent_id, UUID):
        return False
    number = parent_id.int
    return number >> 76 & 0xF == _TIME_ORDERED and number >> 80 >= _watching[1]


def _is_inside_left_out() -> bool:
    """Whether the calling code runs inside of a turn that is not looked at."""
    root = left_out.get()
    return root is not None and surrounding_run() is not root.around and root.manager() is not None


FRAMEWORK = Framework("langchain", turn_from_runs, _ambient_run, _is_inside_left_out, _text_id)
shared_recorder().join(FRAMEWORK)
