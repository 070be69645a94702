"""LangChain as the shared recorder sees it: ids of runs, and the run that the calling code is in."""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar
from functools import cache
from typing import Any, cast
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook

from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Framework, Run
from rageval_hooks.integrations.langchain.turn_building import IDENTITY_KEYS, turn_of_conversation

_recorder = shared_recorder()


def key_of(run_id: Hashable | None) -> Hashable | None:
    """Return the key of a run in the recorder's table. Integers are looked up several times as fast as UUIDs."""
    return getattr(run_id, "int", run_id)


def _text_id(key: Hashable) -> str:
    return str(UUID(int=key)) if isinstance(key, int) else str(key)


# --------------------------------------------------------------------------- the run that the calling code is in


def surrounding_run() -> Hashable | None:
    """Return the key of the run that the calling code is in, according to LangChain's own context variable."""
    config = var_child_runnable_config.get()
    return None if config is None else key_of(getattr(config.get("callbacks"), "parent_run_id", None))


class _Slot:
    """Holds the key of the retriever that was started last in a context.

    Async managers call callbacks in tasks of their own, where setting a context variable has no effect on the caller.
    But the caller's context and its copies share this object.
    """

    __slots__ = ("retriever",)

    def __init__(self, retriever: Hashable | None) -> None:
        self.retriever = retriever


_slot: ContextVar[_Slot | None] = ContextVar("rageval_hooks_langchain_retriever", default=None)


class _SlotHook:
    """Takes the place of a context variable: langchain-core calls ``get`` whenever it configures a callback manager."""

    def get(self) -> None:
        """Give the context a slot of its own: concurrent tasks do not see each other's retrievers. Adds no handler."""
        previous = _slot.get()
        _slot.set(_Slot(None if previous is None else previous.retriever))


@cache
def give_slots() -> None:
    """Give every context in which LangChain configures callbacks a slot. Our handlers need it, however attached."""
    register_configure_hook(cast("ContextVar[Any]", _SlotHook()), inheritable=False)


def enter_retriever(key: Hashable | None) -> None:
    """Note that a retriever has started in this context. LangChain's own context variable does not contain it."""
    slot = _slot.get()
    if slot is not None:
        slot.retriever = key


def running_retriever() -> Run | None:
    """Return the innermost retriever of this context that has not ended."""
    slot = _slot.get()
    if slot is None or slot.retriever is None:
        return None
    latest = _recorder.get(slot.retriever)
    # The retriever's turn may have ended.
    if latest is None:
        return None
    for run in (latest, *latest.ancestors()):
        if run.kind == "retriever" and run.ended_at is None and run.framework is FRAMEWORK:
            return run
    return None


def _ambient_run() -> Hashable | None:
    retriever = running_retriever()
    return surrounding_run() if retriever is None else retriever.id


def _texts_of(output: Any) -> list[str]:
    return [document.page_content for document in output or ()]


def identity_of_call() -> dict[str, Any] | None:
    """Return the ids of session and user in the ``configurable`` of the calling code's configuration."""
    config = var_child_runnable_config.get()
    configurable = None if config is None else config.get("configurable")
    if not configurable:
        return None
    return {key: configurable[key] for key in IDENTITY_KEYS if key in configurable} or None


FRAMEWORK = Framework("langchain", turn_of_conversation, _ambient_run, text_id=_text_id, texts_of=_texts_of)
_recorder.join(FRAMEWORK)
