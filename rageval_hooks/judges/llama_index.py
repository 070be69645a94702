"""A LlamaIndex LLM as a judge."""

from __future__ import annotations

import json
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field, RootModel, create_model

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.judges.answers import NONCE_DESCRIPTION, nonce_name
from rageval_hooks.judges.framework import FrameworkJudge
from rageval_hooks.judges.remote import JudgeReply, JudgeRequest
from rageval_hooks.judges.token_counts import usage_of_llama_index
from rageval_hooks.runtime.narrowing import entry_or_attribute, first_text, items_or_empty, text_or_none

if TYPE_CHECKING:
    from llama_index.core.base.llms.types import ChatResponse


class LlamaIndexJudge(FrameworkJudge):
    """A LlamaIndex LLM as a judge; see :class:`FrameworkJudge` for the arguments.

    The answer is requested as the arguments of a tool call if the LLM supports tools, otherwise by the prompt.
    ``astructured_predict`` is not used: it takes the prompt as a template, so that braces in a judged text become
    placeholders, and it hides the token counts.
    """

    framework: ClassVar[str] = "llama_index"

    def accept(self, model: Any) -> tuple[Any, str]:
        """Return the LLM and its name."""
        with requires("llama-index-core", "llama-index", "LlamaIndexJudge"):
            from llama_index.core.llms import LLM
        if not isinstance(model, LLM):
            raise ConfigurationError(f"llm must be a LlamaIndex LLM, not {type(model).__qualname__}")
        return model, model.metadata.model_name or type(model).__name__

    async def send(self, request: JudgeRequest) -> JudgeReply:
        """Send one request."""
        from llama_index.core.base.llms.types import ChatMessage
        from llama_index.core.llms.function_calling import FunctionCallingLLM
        from llama_index.core.program.function_program import get_function_tool

        messages = [ChatMessage(role=message.role, content=message.content) for message in request.messages]
        llm = self._model
        if request.mode == "text":
            response = await self.in_thread(partial(llm.chat, messages))
            return _reply(response, response.message.content or "")
        if not isinstance(llm, FunctionCallingLLM) or not llm.metadata.is_function_calling_model:
            raise NotImplementedError("the LLM does not call tools")
        tool = get_function_tool(_with_nonce(request.schema))
        call = partial(llm.chat_with_tools, [tool], chat_history=messages, tool_required=True)
        response = await self.in_thread(call)
        try:
            calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        except ValueError:  # the arguments are not JSON
            calls = []
        return _reply(response, json.dumps(calls[0].tool_kwargs) if calls else response.message.content or "")


@lru_cache(maxsize=256)
def _with_nonce(schema: type[BaseModel]) -> type[BaseModel]:
    """Return the model with a first field for the nonce: LlamaIndex takes the schema of a tool from a class."""
    if issubclass(schema, RootModel):
        raise NotImplementedError("a tool has named arguments")
    field: dict[str, Any] = {nonce_name(schema): (str, Field(description=NONCE_DESCRIPTION))}
    first = create_model("Nonce", **field)
    # pydantic puts the fields of the last base first.
    return create_model(schema.__name__, __base__=(schema, first), __doc__=schema.__doc__)


def _reply(response: ChatResponse, text: str) -> JudgeReply:
    raw = response.raw
    # Only raw responses in OpenAI's form have choices.
    choice = next(iter(items_or_empty(entry_or_attribute(raw, "choices"))), None)
    return JudgeReply(
        text=text,
        usage=usage_of_llama_index(response),
        model=text_or_none(entry_or_attribute(raw, "model")),
        response_id=text_or_none(entry_or_attribute(raw, "id")),
        finish_reason=first_text([entry_or_attribute(choice, "finish_reason"), entry_or_attribute(raw, "stop_reason")]),
        refusal=text_or_none(entry_or_attribute(entry_or_attribute(choice, "message"), "refusal")),
    )
