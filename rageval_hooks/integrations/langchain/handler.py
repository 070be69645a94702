"""The thin part: callbacks that hand every event to the recorder, and ended turns to a pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from rageval_hooks.integrations.capture import deferred as handover
from rageval_hooks.integrations.capture.deferred import running_loop
from rageval_hooks.integrations.capture.merging import turn_of
from rageval_hooks.integrations.capture.recorder import Recording, Run, shared_recorder
from rageval_hooks.integrations.capture.trace_context import foreign_span, others_trace
from rageval_hooks.integrations.langchain.framework import FRAMEWORK, key_of, running_retriever
from rageval_hooks.integrations.langchain.payloads import content_text
from rageval_hooks.integrations.langchain.snapshots import seal, seal_documents
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import Selection
from rageval_hooks.runtime.suppression import is_suppressed
from rageval_hooks.turn import Turn

__all__ = ["CallbackHandler", "TurnHandler"]

_recorder = shared_recorder()
_knows = _recorder.knows
_token = _recorder.token


class TurnHandler(BaseCallbackHandler):
    """Hands every event to the shared recorder, and ended turns to a pipeline.

    Holds nothing of a turn: one instance serves all concurrent ones. Runs inline, so that the recorder sees events in
    their order and in the caller's OpenTelemetry context; each takes microseconds.
    """

    run_inline = True
    raise_error = False
    explicit = True

    def __init__(self) -> None:
        self.pipeline: Pipeline | None = None

    # what is of no interest, and the switch

    @property
    def ignore_chain(self) -> bool:
        """Whether events are skipped: nobody takes turns, or what runs is our own judge's call."""
        pipeline = self.pipeline
        return pipeline is None or not pipeline.enabled or is_suppressed()

    # Asked before every event, so the same property and not one that asks another. Tool events come as those of agents.
    ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = ignore_chain

    ignore_retry = True
    ignore_custom_event = True

    # starts

    def _begin(self, parent_run_id: UUID | None) -> tuple[Hashable | None, Selection | None] | None:
        """Decide about a run that is not part of a turn which is known.

        Returns:
            The key of the run around it, and what was decided about it should it be a turn, None if the recorder is to
            ask. None if the run is not recorded.
        """
        return key_of(parent_run_id), None

    def _start(
        self, run_id: UUID, parent_run_id: UUID | None, kind: str, name: Any, input: Any, fields: dict[str, Any]
    ) -> None:
        pipeline = self.pipeline
        if pipeline is None:
            return
        try:
            parent, selection = getattr(parent_run_id, "int", parent_run_id), None
            if not _knows(parent):
                begun = self._begin(parent_run_id)
                if begun is None:
                    return
                parent, selection = begun
            run = _recorder.start(
                pipeline,
                getattr(run_id, "int", run_id),
                parent,
                kind,
                name or kind,
                input,
                explicit=self.explicit,
                framework=FRAMEWORK,
                selection=selection,
            )
            if run is None:
                return
            run.metadata = fields.get("metadata")
            if kind == "llm":
                run.details = {"invocation_params": fields.get("invocation_params")}
            if (run.parent is None or kind == "retriever") and others_trace():
                self._look_for_foreign_span(run)
        except Exception as error:
            pipeline.failed("the start of a run could not be recorded", error)

    def _look_for_foreign_span(self, run: Run) -> None:
        recording = _recorder.recording(run.id)
        if recording is not None and recording.external_span is None and recording.root.framework is FRAMEWORK:
            recording.external_span = foreign_span(UUID(recording.root.text_id))

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        run_type: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a chain, prompt, parser or graph node has started."""
        self._start(run_id, parent_run_id, run_type or "chain", name, inputs, kwargs)
        if "defers_inputs" in kwargs and parent_run_id is None:
            run = _recorder.get(key_of(run_id))
            if run is not None:
                run.details = {"streamed": True}

    def on_retriever_start(
        self,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a retriever has started."""
        self._start(run_id, parent_run_id, "retriever", name, query, kwargs)
        running_retriever.set(key_of(run_id))

    def on_chat_model_start(
        self,
        serialized: dict[str, Any] | None,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a chat model has started."""
        self._start(run_id, parent_run_id, "llm", name or (serialized or {}).get("name"), messages, kwargs)

    def on_llm_start(
        self,
        serialized: dict[str, Any] | None,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a text model has started."""
        self._start(run_id, parent_run_id, "llm", name or (serialized or {}).get("name"), prompts, kwargs)

    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a tool has started."""
        self._start(
            run_id,
            parent_run_id,
            "tool",
            name or (serialized or {}).get("name"),
            inputs if inputs is not None else input_str,
            kwargs,
        )

    # what comes while it runs

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record a streamed piece of a model's text."""
        _token(getattr(run_id, "int", run_id), token if type(token) is str else content_text(token))

    def on_stream_event(self, event: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record a streamed piece of a model's text, as the protocol of ``stream_events(version="v3")`` has it."""
        if isinstance(event, Mapping) and event.get("event") == "content-block-delta":
            delta = event.get("delta") or event.get("content") or {}
            text = delta.get("text") if isinstance(delta, Mapping) else None
            if isinstance(text, str):
                _recorder.token(key_of(run_id), text)

    def on_interrupt(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the root's end tells."""

    def on_resume(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the root's end tells."""

    # ends

    @property
    def on_chain_end(self) -> Callable[..., Any]:
        """Record that a chain has ended, and evaluate the turn that ends with it.

        In an event loop this is a coroutine function, which LangChain awaits: the caller gets his answer after the
        local scores are there, and the loop does other work meanwhile. Elsewhere it is a plain function.
        """
        return self._chain_end if running_loop() is None else self._chain_end_async

    @property
    def on_chain_error(self) -> Callable[..., Any]:
        """Record that a chain has ended with an exception; as :attr:`on_chain_end`."""
        return self._chain_error if running_loop() is None else self._chain_error_async

    def _chain_end(self, outputs: Any, *, run_id: UUID, inputs: Any = None, **kwargs: Any) -> None:
        _end_sync(run_id, outputs, None, inputs)

    async def _chain_end_async(self, outputs: Any, *, run_id: UUID, inputs: Any = None, **kwargs: Any) -> None:
        await _end_async(run_id, outputs, None, inputs)

    def _chain_error(self, error: BaseException, *, run_id: UUID, inputs: Any = None, **kwargs: Any) -> None:
        _end_sync(run_id, None, error, inputs)

    async def _chain_error_async(
        self, error: BaseException, *, run_id: UUID, inputs: Any = None, **kwargs: Any
    ) -> None:
        await _end_async(run_id, None, error, inputs)

    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """Record what a retriever returned."""
        _end_sync(run_id, seal_documents(documents), None)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a retriever has ended with an exception."""
        _end_sync(run_id, None, error)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Record what a model wrote."""
        _end_sync(run_id, response, None)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a model call has ended with an exception, and what it had written."""
        _end_sync(run_id, kwargs.get("response"), error)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record what a tool returned."""
        _end_sync(run_id, output, None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a tool has ended with an exception."""
        _end_sync(run_id, None, error)


def _end(run_id: UUID, output: Any, error: BaseException | None, inputs: Any) -> Recording | None:
    """Record that a run has ended; returns the recording if its turn has, and is to be built now."""
    key = getattr(run_id, "int", run_id)
    if inputs is not None:  # a stream's real input is known at its end only
        run = _recorder.get(key)
        if run is not None:
            run.input = inputs
    recording = _recorder.end(key, output, error)
    return None if recording is None or _left_to_background(recording) else recording


def _end_sync(run_id: UUID, output: Any, error: BaseException | None, inputs: Any = None) -> None:
    recording = _end(run_id, output, error, inputs)
    turn = None if recording is None else _turn(recording)
    if recording is not None and turn is not None:
        handover.submit(recording.owner, turn, recording.selection)


async def _end_async(run_id: UUID, output: Any, error: BaseException | None, inputs: Any = None) -> None:
    recording = _end(run_id, output, error, inputs)
    turn = None if recording is None else _turn(recording)
    if recording is None or turn is None:
        return
    pipeline, selection = recording.owner, recording.selection
    if pipeline.needs_thread(turn):
        submitted = handover.hand_over(pipeline.submit, turn, selection, pipeline.clock())
        if not isinstance(error, (asyncio.CancelledError, GeneratorExit)):  # then nobody waits for the answer
            await asyncio.shield(asyncio.wrap_future(submitted))  # who asked may go away, the turn has ended
    else:
        pipeline.submit(turn, selection)


def _left_to_background(recording: Recording) -> bool:
    """Leave a turn to the background thread as a whole, if nothing of it is computed before the call returns."""
    pipeline = recording.owner
    if pipeline.computes_inline or any(run.framework is not FRAMEWORK for run in recording.runs):
        return False
    try:
        seal(recording.runs, pipeline.settings.spans == "all")
    except Exception:
        return False  # a class that cannot be copied: the turn is built now
    pipeline.submit_later(partial(turn_of, recording), recording.selection)
    return True


def _turn(recording: Recording) -> Turn | None:
    pipeline = recording.owner
    try:
        return turn_of(recording)
    except Exception as error:
        pipeline.failed("a turn could not be built from what was recorded", error)
        return None


class CallbackHandler(TurnHandler):
    """Evaluates the turns of the chains that it is passed to, through ``callbacks=[…]`` or ``with_config``.

    Takes the keyword arguments of :func:`rageval_hooks.instrument`. Cheap to make: models, the background thread and
    providers are shared. Where it and ``instrument()`` see the same chain, the turn counts once, and is this handler's.

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
        self.pipeline.load_models()

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything is evaluated and delivered; returns False if that took longer."""
        return handover.flush(self.pipeline, timeout)

    def stats(self) -> dict[str, Any]:
        """Return what was counted."""
        return {**self.pipeline.stats(), "open_runs": len(_recorder)}
