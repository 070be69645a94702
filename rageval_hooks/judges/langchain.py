"""A LangChain chat model as a judge."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.judges.answers import full_schema, schema_name, strict_schema
from rageval_hooks.judges.framework import FrameworkJudge
from rageval_hooks.judges.remote import JudgeReply, JudgeRequest
from rageval_hooks.judges.token_counts import usage_from
from rageval_hooks.runtime.narrowing import first_text, text_or_none

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import Runnable, RunnableConfig


# Attributes of chat models, in the order in which they say which model answers.
_NAMES = ("model_name", "model", "model_id", "deployment_name")
# Providers name the reason why the model stopped differently: OpenAI, Anthropic, Ollama.
_REASONS = ("finish_reason", "stop_reason", "done_reason")


class LangChainJudge(FrameworkJudge):
    """A LangChain chat model as a judge; see :class:`FrameworkJudge` for the arguments.

    The schema of the answer is enforced by the model's ``with_structured_output``, or by the prompt if the model has
    none. Another runnable that takes messages and returns a message, such as a model with ``with_fallbacks``, is
    accepted, too. It is asked by the prompt only.
    """

    framework: ClassVar[str] = "langchain"

    def accept(self, model: Any) -> tuple[Any, str]:
        """Return the model without its callbacks, and its name."""
        with requires("langchain-core", "langchain", "LangChainJudge"):
            from langchain_core.runnables import Runnable
        if not isinstance(model, Runnable):
            raise ConfigurationError(f"model must be a LangChain chat model, not {type(model).__qualname__}")
        if getattr(model, "callbacks", None) and isinstance(model, BaseModel):
            # The application's callbacks must not see the judge's calls.
            model = model.model_copy(update={"callbacks": None})
        # What LangChain tells LangSmith; a private method, which other versions may not have.
        with suppress(Exception):
            self.provider = text_or_none(model._get_ls_params().get("ls_provider"))
        return model, first_text(getattr(model, name, None) for name in _NAMES) or type(model).__name__

    async def send(self, request: JudgeRequest) -> JudgeReply:
        """Send one request without callbacks and without LangSmith."""
        from langsmith.run_helpers import tracing_context

        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        is_structured = request.mode == "structured"
        config: RunnableConfig = {"callbacks": []}

        def call() -> Any:
            runnable = self._structured(request.schema) if is_structured else self._model
            with tracing_context(enabled=False, parent=False):
                return runnable.invoke(messages, config)

        try:
            output = await self.in_thread(call)
        except (TypeError, AttributeError, Warning) as error:  # of a model that cannot be bound to a schema
            if is_structured:
                raise NotImplementedError(f"structured output fails: {type(error).__name__}") from None
            raise
        return _reply(output["raw"] if isinstance(output, Mapping) else output, is_structured)

    def _structured(self, schema: type[BaseModel]) -> Runnable[Any, Any]:
        from langchain_core.language_models import BaseChatModel
        from langchain_core.runnables import RunnableParallel, RunnableSequence

        if not isinstance(self._model, BaseChatModel):
            raise NotImplementedError("only chat models have structured output")
        method = self._model.with_structured_output
        strict = strict_schema(schema)
        form = {"title": schema_name(schema), "description": "The answer.", **(strict or full_schema(schema))}
        options: dict[str, Any] = {"include_raw": True}
        if strict is not None and "strict" in inspect.signature(method).parameters:
            options["strict"] = True
        runnable: Runnable[Any, Any] = method(deepcopy(form), **options)
        # Without its parser, which takes minutes of CPU for an answer of 1 MB that is not JSON.
        first = runnable.first if isinstance(runnable, RunnableSequence) else None
        return first.steps__.get("raw", runnable) if isinstance(first, RunnableParallel) else runnable


def _reply(output: Any, is_structured: bool) -> JudgeReply:
    if isinstance(output, str):  # from a text model
        return JudgeReply(text=output)
    message: AIMessage = output
    facts = message.response_metadata
    text = str(message.text)
    # With structured output the answer is the arguments of a tool call, or the text of a provider's JSON mode.
    if is_structured and message.tool_calls:
        text = json.dumps(message.tool_calls[0]["args"])
    elif is_structured and message.invalid_tool_calls:
        text = message.invalid_tool_calls[0]["args"] or ""
    return JudgeReply(
        text=text,
        usage=usage_from(message.usage_metadata),
        model=first_text(map(facts.get, ("model_name", "model"))),
        response_id=text_or_none(facts.get("id")) or message.id,
        finish_reason=first_text(map(facts.get, _REASONS)),
        refusal=text_or_none(message.additional_kwargs.get("refusal")),
    )
