"""The guard as middleware of langchain's ``create_agent``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables.config import var_child_runnable_config

from rageval_hooks.guard.answers import text_in, with_decision
from rageval_hooks.guard.checking import (
    Decider,
    GuardEvidence,
    GuardSteps,
    adrive,
    drive,
    passages_under,
    read_passages,
)

_NO_STREAM: Final = "nostream"
"""LangGraph's tag of model calls whose tokens are not shown in ``stream_mode="messages"``."""

_FEEDBACK: Final = (
    "The documents do not support this answer ({reason}). Answer the question again, only with what the documents say. "
    "If they do not have the answer, say so."
)


class GuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Checks the final answers of an agent: what its model writes without calling a tool.

    The passages are those of the turn that is being captured, else those under a passage key of the agent's state, else
    what tools returned since the last question. With ``on_fail="regenerate"`` the model gets the blocked answer and the
    reason, and answers again, a limited number of times; these messages do not become part of the conversation.

    Args:
        decider: checks the answers.
    """

    def __init__(self, decider: Decider) -> None:
        super().__init__()
        self._decider = decider

    @property
    def name(self) -> str:
        """The name in the agent's graph."""
        return "GroundingGuard"

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model, and check what it writes if that is the answer."""

        def call(request: ModelRequest[Any]) -> ModelResponse[Any]:
            with self._tokens_held():
                return handler(request)

        return drive(self._guarded(request, call))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Call the model, and check its answer without blocking the event loop."""

        async def call(request: ModelRequest[Any]) -> ModelResponse[Any]:
            with self._tokens_held():
                return await handler(request)

        return await adrive(self._guarded(request, call))

    def _guarded(
        self, request: ModelRequest[Any], call: Callable[[ModelRequest[Any]], Any]
    ) -> GuardSteps[ModelResponse[Any]]:
        attempt = 1
        # A counted loop inside one model call: the graph sees one answer, and its recursion limit is not used up.
        while True:
            response: ModelResponse[Any] = yield partial(call, request)
            message = _final_answer(response)
            if message is None:
                return response
            decision = yield from self._decider.decide(text_in(message) or "", self._evidence(request), attempt=attempt)
            if decision.action != "regenerated":
                checked = with_decision(message, (), decision)
                result = [checked if other is message else other for other in response.result]
                return ModelResponse(result=result)
            attempt += 1
            feedback = HumanMessage(_FEEDBACK.format(reason=decision.explanation))
            request = request.override(messages=[*request.messages, message, feedback])

    @contextmanager
    def _tokens_held(self) -> Iterator[None]:
        """Keep the tokens of a model call out of LangGraph's streams: they would be shown before the check.

        LangGraph then shows the message as a whole, when the model's node ends.
        """
        config = var_child_runnable_config.get()
        # A flagged answer is shown whatever the check says.
        if config is None or self._decider.options.on_fail == "flag":
            yield
            return
        token = var_child_runnable_config.set({**config, "tags": [*(config.get("tags") or ()), _NO_STREAM]})
        try:
            yield
        finally:
            var_child_runnable_config.reset(token)

    def _evidence(self, request: ModelRequest[Any]) -> GuardEvidence:
        state: Mapping[str, Any] = request.state
        messages: Sequence[BaseMessage] = state.get("messages") or request.messages
        # The last message of the user, and what follows it.
        asked = [place for place, message in enumerate(messages) if isinstance(message, HumanMessage)]
        question = text_in(messages[asked[-1]]) if asked else None
        passages = passages_under(state, self._decider.options.passage_keys)
        for message in messages[asked[-1] if asked else 0 :] if not passages else ():
            # What tools returned: the documents of an artifact, else the text for the model.
            if isinstance(message, ToolMessage):
                passages += read_passages(message.artifact) or read_passages(text_in(message))
        return GuardEvidence(question=question or "", passages=tuple(passages))


def _final_answer(response: ModelResponse[Any]) -> AIMessage | None:
    """Return the message that answers the user; None if the agent goes on, or if the answer is structured."""
    # The text of a structured answer is JSON: its keys are no words of a passage.
    if response.structured_response is not None:
        return None
    messages = [message for message in response.result if isinstance(message, AIMessage)]
    # A message with tool calls asks for something first.
    if not messages or messages[-1].tool_calls:
        return None
    text = text_in(messages[-1]) or ""
    return messages[-1] if text.strip() else None
