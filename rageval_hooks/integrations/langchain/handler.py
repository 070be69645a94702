"""The callback handlers: they pass every event to the recorder, and turns that have ended to a pipeline.

A turn is held if it waits to be resumed, else it is built and submitted, here or on another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, partial
from types import MethodType
from typing import Any, TypeVar, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.capture.deferred import held_turns
from rageval_hooks.integrations.capture.event_source import EventSource
from rageval_hooks.integrations.capture.recent_searches import (
    RecentSearch,
    give_context_a_list,
    note_search,
    recent_searches,
)
from rageval_hooks.integrations.capture.recorder import Framework, Recording, Run, shared_recorder
from rageval_hooks.integrations.capture.trace_context import note_other_span
from rageval_hooks.integrations.capture.values import first_string
from rageval_hooks.integrations.langchain.model_calls import given_text, returned_text
from rageval_hooks.integrations.langchain.other_tracers import find_span
from rageval_hooks.integrations.langchain.passages import IDENTITY_KEYS
from rageval_hooks.integrations.langchain.payloads import copy_found, copy_values, passages_in
from rageval_hooks.integrations.langchain.resuming import hold_if_waiting, join_halves, resumes
from rageval_hooks.integrations.langchain.runs import LangChainRun
from rageval_hooks.integrations.langchain.turn_building import turn_of_conversation
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.copying import CopiedAsItself
from rageval_hooks.runtime.narrowing import content_text, text_or_empty

_recorder = shared_recorder()


# --------------------------------------------------------------------------- the run that the calling code is in


def surrounding_run() -> Hashable | None:
    """Return the id of the run that the calling code is in, according to LangChain's own context variable."""
    config = var_child_runnable_config.get()
    return None if config is None else getattr(config.get("callbacks"), "parent_run_id", None)


_slot: ContextVar[list[Hashable] | None] = ContextVar("rageval_hooks_langchain_retriever", default=None)
"""A list with the id of the retriever that was started last in a context.

LangChain's own context variable does not contain retrievers. Async managers call callbacks in tasks of their own, where
setting a context variable has no effect on the caller. But the caller's context and its copies share this list.
"""


class _SlotHook:
    """Takes the place of a context variable: langchain-core calls ``get`` whenever it configures a callback manager."""

    def get(self) -> None:
        """Give the context lists of its own: concurrent tasks do not see each other's searches. Adds no handler."""
        _slot.set(list(_slot.get() or ()))
        give_context_a_list()


@cache
def give_slots() -> None:
    """Give every context in which LangChain configures callbacks a slot. Our handlers need it, however attached."""
    register_configure_hook(cast("ContextVar[Any]", _SlotHook()), inheritable=False)


def running_retriever() -> Run | None:
    """Return the innermost retriever of this context that has not ended."""
    slot = _slot.get()
    latest = _recorder.get(slot[0]) if slot else None
    for run in () if latest is None else (latest, *latest.ancestors()):
        if run.kind == "retriever" and run.ended_at is None and run.framework is FRAMEWORK:
            return run
    return None


def ambient_run() -> Hashable | None:
    """Return the id of the run that the calling code is in, retrievers included."""
    retriever = running_retriever()
    return surrounding_run() if retriever is None else retriever.id


FRAMEWORK = Framework(
    "langchain",
    turn_of_conversation,
    ambient_run,
    texts_of=lambda documents: [document.page_content for document in documents or ()],
    given_text=given_text,
    returned_text=returned_text,
    find_span=find_span,
    run_class=LangChainRun,
)
_recorder.join(FRAMEWORK)

F = TypeVar("F", bound=Callable[..., Any])


async def _coroutine_function() -> None:
    """Do nothing; see :class:`_Callback`."""


class _Callback(partial[Any]):
    """A method that does its work when it is called, and may also be awaited.

    Async managers await coroutine functions, and run everything else in the event loop's thread pool. Without this,
    a chain would wait behind the application's own blocking calls that fill that pool, many times per request. The
    mark ``run_inline`` is not an option: ``AsyncCallbackManager.on_llm_start`` calls either the handlers that have it
    or all the others. So the callback has to pass for a coroutine function. It is a partial of one, because
    ``inspect.iscoroutinefunction`` looks through partials.

    Args:
        method: the plain function to call. It returns what an async manager awaits, or None. Not a
            coroutine: a sync manager would run that on another thread and wait for it, which blocks an event loop.
    """

    method: Callable[..., Awaitable[Any] | None]

    def __new__(cls, method: Callable[..., Any]) -> _Callback:
        """Make a partial of the coroutine function, which is never called."""
        callback = super().__new__(cls, _coroutine_function)
        callback.method = method
        callback.__doc__ = method.__doc__
        return callback

    def __get__(self, handler: object, owner: type | None = None) -> Any:
        """Bind the method to a handler."""
        return self if handler is None else MethodType(self, handler)

    def __call__(self, handler: TurnHandler, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call the method. Its exceptions are counted; interrupts go on to the application."""
        try:
            return self.method(handler, *args, **kwargs) or DONE
        except BaseException as error:
            handler.failed(kwargs.get("run_id"), error)
            return DONE


def _callback(method: F) -> F:
    """Let both kinds of managers call a method of a handler directly, on the thread of the run."""
    return cast("F", _Callback(method))


class TurnHandler(EventSource, CopiedAsItself, BaseCallbackHandler):
    """Passes every event to the shared recorder, and turns that have ended to a pipeline.

    It keeps no state of a turn, so one instance serves all concurrent turns.

    Attributes:
        explicit: True if the application attached the handler to a chain. Its pipeline then receives the turn, even if
            ``instrument()`` captures the same chain.
    """

    # What a callback raises is an interrupt; LangChain swallows it without this.
    raise_error = True
    explicit = True

    def __init__(self) -> None:
        give_slots()

    # --------------------------------------------------------------------------- events that are ignored

    # LangChain reads one of these before every event, so they are one property rather than several that call it.
    # Tools are reported as agents.
    ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = ignore_chain = EventSource.ignores

    ignore_retry = True
    ignore_custom_event = True

    # LangChain has no switch for these. As plain methods, async managers would run them on a thread pool.

    @_callback
    def on_text(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the runs of tools and agents are recorded."""

    on_agent_action = on_agent_finish = on_text

    # --------------------------------------------------------------------------- starts

    def _start(self, run_id: UUID, kind: str, name: Any, input: Any, event: dict[str, Any]) -> None:
        """Record that a run has started.

        Args:
            run_id: LangChain's id.
            kind: the kind of the run.
            name: the component's name.
            input: the component's input.
            event: the other arguments of the callback.
        """
        pipeline = self.pipeline
        if pipeline is None:
            return
        parent_run_id, metadata = event.get("parent_run_id"), event.get("metadata")
        selected = thread = None
        if parent_run_id is None:
            # A graph that goes on after it waited for a person is sampled like the first half of its turn.
            thread = first_string(metadata, ("thread_id",))
            selected = held_turns().earlier_sampling(thread) if thread and resumes(input) else None
        run = _recorder.start(
            pipeline,
            run_id,
            _parent_key(parent_run_id),
            framework=FRAMEWORK,
            kind=kind,
            name=name or kind,
            input=input,
            explicit=self.explicit,
            selected=selected,
            # LangChain says so for the root of chain.stream(…), whose input is only known at its end.
            streamed=parent_run_id is None and "defers_inputs" in event,
        )
        if thread and (recording := _recorder.around(run_id)) is not None:
            held_turns().note_sampling(thread, sampled_out=not recording.selection.selected)
        if isinstance(run, LangChainRun):
            run.metadata = metadata or {}
            run.description, run.tool_call_id = event.get("description"), event.get("tool_call_id")
            run.parameters, run.template = event.get("invocation_params") or {}, event.get("template")
            config = var_child_runnable_config.get()
            configurable = (config or {}).get("configurable") or {}
            run.configurable = {key: configurable[key] for key in IDENTITY_KEYS if key in configurable}
            note_other_span(run)
            if run.parent is None:
                run.searches_before = recent_searches()
                deferred.prepare()

    @_callback
    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **event: Any) -> None:
        """Record that a chain, prompt, parser or graph node has started."""
        kind = event.get("run_type") or "chain"
        if kind == "prompt":
            event["template"] = serialized
        self._start(run_id, kind, event.get("name"), inputs, event)

    @_callback
    def on_retriever_start(self, serialized: Any, query: str, *, run_id: UUID, **event: Any) -> None:
        """Record that a retriever has started."""
        self._start(run_id, "retriever", event.get("name"), query, event)
        if (slot := _slot.get()) is not None:
            slot[:] = [run_id]

    @_callback
    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **event: Any) -> None:
        """Record that a model has started."""
        self._start(run_id, "llm", _name_of(serialized, event), prompts, event)

    on_chat_model_start = on_llm_start  # type: ignore[assignment] # LangChain gives both by position

    @_callback
    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **event: Any) -> None:
        """Record that a tool has started."""
        name, inputs = _name_of(serialized, event), event.get("inputs")
        if serialized:
            event["description"] = serialized.get("description")
        self._start(run_id, "tool", name, input_str if inputs is None else inputs, event)

    # --------------------------------------------------------------------------- streamed text

    @_callback
    def on_llm_new_token(self, token: Any, *, run_id: UUID, **event: Any) -> None:
        """Record a streamed piece of a model's text."""
        _recorder.token(run_id, token if type(token) is str else content_text(token))

    @_callback
    def on_stream_event(self, event: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record a streamed piece of a model's text, in the protocol of ``stream_events(version="v3")``."""
        if isinstance(event, Mapping) and event.get("event") == "content-block-delta":
            delta = event.get("delta") or event.get("content") or {}
            # Pieces of tool calls and of reasoning have no text.
            text = delta.get("text") if isinstance(delta, Mapping) else None
            if isinstance(text, str):
                _recorder.token(run_id, text)

    # --------------------------------------------------------------------------- ends

    @_callback
    def on_chain_end(self, outputs: Any, *, run_id: UUID, inputs: Any = None, **kwargs: Any) -> PendingTurn | None:
        """Record that a chain has ended. If it was the root of a turn, submit the turn."""
        return _end(run_id, outputs, None, inputs)

    @_callback
    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, inputs: Any = None, **event: Any
    ) -> PendingTurn | None:
        """Record that a chain has ended with an exception. If it was the root of a turn, submit the turn."""
        return _end(run_id, None, error, inputs)

    @_callback
    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> PendingTurn | None:
        """Record what a retriever returned."""
        run = _recorder.get(run_id)
        return _end(run_id, None if run is None else copy_found(run, documents), None)

    @_callback
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **event: Any) -> PendingTurn | None:
        """Record that a model call has ended with an exception, and what the model had written by then."""
        return _end(run_id, event.get("response"), error)

    @_callback
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> PendingTurn | None:
        """Record what a tool returned, or what a model wrote."""
        return _end(run_id, output, None)

    on_llm_end = on_tool_end  # type: ignore[assignment] # LangChain gives both by position

    @_callback
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> PendingTurn | None:
        """Record that a tool, or a retriever, has ended with an exception."""
        return _end(run_id, None, error)

    on_retriever_error = on_tool_error


# --------------------------------------------------------------------------- what events say about a run


def _name_of(serialized: dict[str, Any] | None, event: dict[str, Any]) -> Any:
    """Return the name that a call has, or that of the component: {"name": "ChatOpenAI", "id": ["langchain", …]}."""
    return event.get("name") or (serialized or {}).get("name")


def _parent_key(parent_run_id: UUID | None) -> Hashable | None:
    """Return the key of the enclosing run.

    LangChain reports no parent, or one that is unknown here, if the call was made with separate callbacks. It is
    still part of the run that it was made in.
    """
    parent: Hashable | None = parent_run_id
    is_known = _recorder.knows(parent)

    # A retriever may call a model. LangChain's context does not contain retrievers, so it names the run around it.
    retriever = running_retriever()
    if retriever is not None and (not is_known or any(run.id == parent for run in retriever.ancestors())):
        return retriever.id
    # The recorder decides what becomes of a run whose parent has ended.
    if is_known or parent in _recorder.ended:
        return parent
    around = surrounding_run()
    return around if _recorder.knows(around) else parent


# --------------------------------------------------------------------------- the end of a turn


def _end(run_id: UUID, output: Any, error: BaseException | None, inputs: Any = None) -> PendingTurn | None:
    """Record that a run has ended, and submit the turn if it was the root of one.

    Args:
        run_id: the run's id.
        output: its output.
        error: the exception that ended it.
        inputs: its input, if that was not known at its start: a chain that streams.

    Returns:
        What an async caller waits for, within the budget for inline scores; None if there is nothing to wait for.
    """
    run = _recorder.get(run_id)
    if run is not None:
        run.input = run.input if inputs is None else inputs
        note_other_span(run)
    recording = _recorder.end(run_id, output, error)
    if recording is None:
        return None
    if recording.root.kind == "retriever" and error is None:
        note_search(RecentSearch(text_or_empty(recording.root.input), passages_in(output)), in_task=True)
    # LangGraph's ``update_state`` runs branches, but answers nothing.
    if recording.root.name.endswith("UpdateState") and all(run.kind == "chain" for run in recording.runs):
        return None
    # A stream that ends before the runs inside it was left by its reader. LangChain swallows the GeneratorExit of most
    # streams, so it does not show that the garbage collector may be closing this one.
    is_left_early = recording.root.streamed and any(run.ended_at is None for run in recording.runs)
    if deferred.closes_generator() or is_left_early:
        pipeline = recording.owner
        on_full = partial(pipeline.count_dropped, "queue_full")
        deferred.hand_over(_finish, recording, size=pipeline.typical_size, on_full=on_full)
        return None
    submitted = _finish(recording)
    # The caller of a cancelled call does not wait for scores.
    return None if isinstance(error, (asyncio.CancelledError, GeneratorExit)) else submitted


def _finish(recording: Recording) -> PendingTurn | None:
    """Submit the turn of a recording, or hold it if it waits to be resumed; returns what an async caller waits for."""
    pipeline, root = recording.owner, recording.root
    # A model that is called by itself, with no search shortly before, has retrieved nothing.
    is_alone = root.kind == "llm" and len(recording.runs) == 1
    is_bare_model = is_alone and not root.searches_before and not recent_searches(everywhere=True)
    has_scores = pipeline.computes_inline and (pipeline.settings.evaluate_without_retrieval or not is_bare_model)
    has_foreign = any(run.framework is not FRAMEWORK for run in recording.runs)  # their values are not copied
    try:
        if not is_bare_model:
            held_turns().submit_old()
            join_halves(recording)
            if hold_if_waiting(recording):
                return None
        if not has_foreign:
            copy_values(recording.runs)  # plain containers alone: those of the application may never end
    except BaseException as error:
        recording.not_submitted(error)
    builds = has_foreign or (has_scores and not deferred.in_event_loop())
    pending = deferred.submit(recording, builds=builds, may_have_scores=has_scores)
    return pending if has_scores else None


# --------------------------------------------------------------------------- for one chain


class CallbackHandler(TurnHandler):
    """Evaluates the turns of the chains that it is passed to, through ``callbacks=[…]`` or ``with_config``.

    Takes the keyword arguments of :func:`rageval_hooks.instrument`. It is cheap to create: models, the background
    thread and providers are shared. If ``instrument()`` captures the same chain, the turn counts once, for this
    handler.

    Args:
        settings: see :func:`rageval_hooks.instrument`.

    Raises:
        ConfigurationError: a setting is wrong; the message says what is valid.

    Example:
        >>> chain.invoke(question, {"callbacks": [CallbackHandler(metrics=["groundedness"])]})  # doctest: +SKIP
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.pipeline: Pipeline = Pipeline.build(**settings)

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything is evaluated and delivered; False if that took longer than ``timeout`` seconds."""
        return deferred.flush(self.pipeline, timeout)

    def stats(self) -> dict[str, Any]:
        """Return the counters."""
        return {**self.pipeline.stats(), "open_runs": len(_recorder)}
