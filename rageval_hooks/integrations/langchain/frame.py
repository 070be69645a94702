"""LangChain as the recorder knows it."""

from __future__ import annotations

import time
from collections.abc import Hashable
from contextvars import ContextVar
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config

from rageval_hooks.integrations.langchain.runs import turn_from_runs
from rageval_hooks.integrations.recorder import Framework, shared_recorder
from rageval_hooks.pipeline import Pipeline

__all__ = ["FRAMEWORK", "is_left_out", "key_of", "running_retriever", "surrounding_run", "watch"]

_TIME_ORDERED = 7
"""Version of UUIDs that begin with the milliseconds since the epoch. LangChain's own are."""


def key_of(run_id: UUID | None) -> Hashable | None:
    """Return the key by which the recorder knows a run: numbers are looked up in a fraction of a UUID's time."""
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


def _ambient_run() -> Hashable | None:
    """Return the key of the run that the calling code runs in."""
    retriever = shared_recorder().get(running_retriever.get())
    for run in (retriever, *retriever.ancestors()) if retriever is not None else ():
        if run.kind == "retriever" and run.ended_at is None and run.framework is FRAMEWORK:
            return run.id
    return key_of(surrounding_run())


# --------------------------------------------------------------------------- what is not looked at

_watching: tuple[Pipeline, int] | None = None


def watch(pipeline: Pipeline | None) -> None:
    """Note which pipeline decides, from now on, whether a turn is looked at."""
    global _watching
    _watching = None if pipeline is None else (pipeline, time.time_ns() // 1_000_000)


def is_left_out(run_id: UUID) -> bool:
    """Whether a run is part of a turn that is not looked at.

    Args:
        run_id: of a run that the recorder does not know. It may also have begun before anybody looked, or be a foreign
            id that the application gave to a callback manager.
    """
    if _watching is None or not _watching[0].leaves_out:
        return False
    number = run_id.int
    return number >> 76 & 0xF != _TIME_ORDERED or number >> 80 >= _watching[1]


def _left_out() -> bool:
    """Whether the calling code runs inside of a turn that is not looked at."""
    run_id = surrounding_run()
    return run_id is not None and not shared_recorder().knows(key_of(run_id)) and is_left_out(run_id)


FRAMEWORK = Framework("langchain", turn_from_runs, _ambient_run, _left_out, _text_id)
shared_recorder().join(FRAMEWORK)
