"""The callback handlers: they pass every event to the recorder, and turns that have ended to a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.text_results import is_search_tool
from rageval_hooks.integrations.langchain.callbacks import callback
from rageval_hooks.integrations.langchain.framework import (
    FRAMEWORK,
    enter_retriever,
    give_slots,
    identity_of_call,
    key_of,
)
from rageval_hooks.integrations.langchain.other_tracers import context_of_root, note_other_span
from rageval_hooks.integrations.langchain.payloads import content_text
from rageval_hooks.integrations.langchain.resuming import (
    note_sampling,
)
from rageval_hooks.integrations.langchain.run_starts import class_name, details_of, parent_key, selection_of_first_half
from rageval_hooks.integrations.langchain.snapshots import snapshot_documents
from rageval_hooks.integrations.langchain.turn_end import end
from rageval_hooks.online.inline import Arrival
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.suppression import is_suppressed

__all__ = ["CallbackHandler", "TurnHandler"]

_recorder = shared_recorder()


class TurnHandler(BaseCallbackHandler):
    """Passes every event to the shared recorder, and turns that have ended to a pipeline.

    It keeps no state of a turn, so one instance serves all concurrent turns.

    Attributes:
        pipeline: receives the turns; None if nothing is captured.
        explicit: True if the application attached the handler to a chain. Its pipeline then receives the turn, even if
            ``instrument()`` captures the same chain.
    """

    raise_error = False
    explicit = True

    def __init__(self) -> None:
        self.pipeline: Pipeline | None = None
        give_slots()

    # --------------------------------------------------------------------------- events that are ignored

    @property
    def ignore_chain(self) -> bool:
        """True if nothing is captured: no pipeline takes turns, or our own code is running (a judge or a metric)."""
        pipeline = self.pipeline
        return pipeline is None or not pipeline.enabled or is_suppressed()

    # LangChain reads one of these before every event, so they are one property rather than several that call it.
    # Tools are reported as agents.
    ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = ignore_chain

    ignore_retry = True
    ignore_custom_event = True

    # LangChain has no switch for these. As plain methods, async managers would run them on a thread pool.

    @callback
    def on_text(self, text: str, **kwargs: Any) -> None:
        """Do nothing."""

    @callback
    def on_agent_action(self, action: Any, **kwargs: Any) -> None:
        """Do nothing: the tool's run is recorded."""

    @callback
    def on_agent_finish(self, finish: Any, **kwargs: Any) -> None:
        """Do nothing: the end of the agent's run is recorded."""

    # --------------------------------------------------------------------------- starts

    def _start(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        kind: str,
        name: Any,
        input: Any,
        fields: dict[str, Any],
    ) -> None:
        pipeline = self.pipeline
        if pipeline is None:
            return
        try:
            run = _recorder.start(
                pipeline,
                key_of(run_id),
                parent_key(parent_run_id),
                kind,
                name or kind,
                input,
                explicit=self.explicit,
                framework=FRAMEWORK,
                details=details_of(kind, parent_run_id, fields),
                selection=None if parent_run_id is not None else selection_of_first_half(pipeline, input, fields),
                context=None if parent_run_id is not None else context_of_root(run_id),
            )
            if parent_run_id is None and _recorder.knows(key_of(run_id)):
                note_sampling(fields.get("metadata"), sampled_out=_recorder.get(key_of(run_id)) is None)
            if run is not None:
                run.metadata = fields.get("metadata")
                if identity := identity_of_call():
                    run.details = {**(run.details or {}), "configurable": identity}
                note_other_span(run)
                if run.parent is None:
                    deferred.prepare()
        except Exception as error:
            pipeline.failed("the start of a run could not be recorded", error)

    @callback
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
        if run_type == "prompt":
            kwargs["template"] = serialized
        self._start(run_id, parent_run_id, run_type or "chain", name, inputs, kwargs)

    @callback
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
        enter_retriever(key_of(run_id))

    @callback
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
        self._start(run_id, parent_run_id, "llm", name or class_name(serialized), messages, kwargs)

    @callback
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
        """Record that a text-completion model has started."""
        self._start(run_id, parent_run_id, "llm", name or class_name(serialized), prompts, kwargs)

    @callback
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
        given = input_str if inputs is None else inputs
        name = name or class_name(serialized)
        pipeline = self.pipeline
        if pipeline is not None:
            kwargs["is_search"] = is_search_tool(name, pipeline.settings.search_tools)
        if serialized:
            kwargs["description"] = serialized.get("description")
        self._start(run_id, parent_run_id, "tool", name, given, kwargs)

    # --------------------------------------------------------------------------- streamed text

    @callback
    def on_llm_new_token(self, token: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """Record a streamed piece of a model's text."""
        _recorder.token(key_of(run_id), token if type(token) is str else content_text(token))

    @callback
    def on_stream_event(self, event: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record a streamed piece of a model's text, in the protocol of ``stream_events(version="v3")``."""
        if isinstance(event, Mapping) and event.get("event") == "content-block-delta":
            delta = event.get("delta") or event.get("content") or {}
            # Pieces of tool calls and of reasoning have no text.
            text = delta.get("text") if isinstance(delta, Mapping) else None
            if isinstance(text, str):
                _recorder.token(key_of(run_id), text)

    # --------------------------------------------------------------------------- ends

    @callback
    def on_chain_end(self, outputs: Any, *, run_id: UUID, inputs: Any = None, **kwargs: Any) -> Arrival | None:
        """Record that a chain has ended. If it was the root of a turn, submit the turn."""
        _note_streamed_input(run_id, inputs)
        return end(run_id, outputs, None)

    @callback
    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, inputs: Any = None, **kwargs: Any
    ) -> Arrival | None:
        """Record that a chain has ended with an exception. If it was the root of a turn, submit the turn."""
        _note_streamed_input(run_id, inputs)
        return end(run_id, None, error)

    @callback
    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> Arrival | None:
        """Record what a retriever returned."""
        return end(run_id, snapshot_documents(documents), None)

    @callback
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> Arrival | None:
        """Record that a retriever has ended with an exception."""
        return end(run_id, None, error)

    @callback
    def on_llm_end(
        self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> Arrival | None:
        """Record what a model wrote."""
        _add_missed_model(run_id, parent_run_id)
        return end(run_id, response, None)

    @callback
    def on_llm_error(
        self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> Arrival | None:
        """Record that a model call has ended with an exception, and what the model had written by then."""
        _add_missed_model(run_id, parent_run_id)
        return end(run_id, kwargs.get("response"), error)

    @callback
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> Arrival | None:
        """Record what a tool returned."""
        return end(run_id, output, None)

    @callback
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> Arrival | None:
        """Record that a tool has ended with an exception."""
        return end(run_id, None, error)


# --------------------------------------------------------------------------- what events say about a run


def _note_streamed_input(run_id: UUID, inputs: Any) -> None:
    if inputs is None:
        return
    run = _recorder.get(key_of(run_id))
    if run is not None:
        run.input = inputs


def _add_missed_model(run_id: UUID, parent_run_id: UUID | None) -> None:
    """Record a model call whose start was not reported.

    For text-completion models, ``AsyncCallbackManager.on_llm_start`` calls only handlers marked ``run_inline`` if there
    are any. LangSmith's tracer and LangGraph's message streams have that mark; this handler does not. The prompt is
    then unknown.
    """
    key, parent = key_of(run_id), key_of(parent_run_id)
    recording = _recorder.recording(parent)
    if recording is not None and not _recorder.knows(key):
        _recorder.start(recording.owner, key, parent, "llm", "llm", None, framework=FRAMEWORK)


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
        self.pipeline.load_models()

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything is evaluated and delivered; False if that took longer than ``timeout`` seconds."""
        return deferred.flush(self.pipeline, timeout)

    def stats(self) -> dict[str, Any]:
        """Return the counters."""
        return {**self.pipeline.stats(), "open_runs": len(_recorder)}
