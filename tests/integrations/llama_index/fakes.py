"""A scripted model and simple embeddings, on llama-index's real base classes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any
from zlib import crc32

from llama_index.core import VectorStoreIndex
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from rageval_hooks.integrations.llama_index.runs import LlamaIndexRun
from rageval_hooks.integrations.llama_index.turn_building import FRAMEWORK, turn_from_events
from rageval_hooks.turn import Step

USAGE = {"prompt_tokens": 40, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 12}}


class ScriptedLLM(FunctionCallingLLM):
    """Answers with what ``script`` returns for the messages: a text, tool calls, or an exception to raise."""

    script: Callable[[Sequence[ChatMessage]], Any]
    usage: dict[str, Any] | None = USAGE
    reached: Any = None  # an asyncio.Event that is set when the model is called, after which it waits for ever
    fails_after: int | None = None  # words of a stream, after which it fails
    window: int = 4096

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            model_name="scripted-1", is_chat_model=True, is_function_calling_model=True, context_window=self.window
        )

    def _response(self, messages: Sequence[ChatMessage]) -> ChatResponse:
        answer = self.script(messages)
        if isinstance(answer, BaseException):
            raise answer
        message = ChatMessage(role=MessageRole.ASSISTANT, content=answer if isinstance(answer, str) else "")
        if not isinstance(answer, str):
            message.additional_kwargs["tool_calls"] = answer
        return ChatResponse(message=message, raw=self._raw())

    def _raw(self) -> dict[str, Any]:
        usage = {} if self.usage is None else {"usage": self.usage}
        return {"id": "completion-1", "model": "scripted-1-2026", **usage}

    def _chunks(self, messages: Sequence[ChatMessage]) -> Iterator[ChatResponse]:
        whole = self._response(messages).message
        if "tool_calls" in whole.additional_kwargs:
            yield ChatResponse(message=whole, delta="", raw=self._raw())
            return
        words = str(whole.content).split(" ")
        text = ""
        for number, word in enumerate(words):
            if number == self.fails_after:
                raise OutOfOrderError("the line went dead")
            delta = word if number == len(words) - 1 else word + " "
            text += delta
            yield ChatResponse(
                message=ChatMessage(role=MessageRole.ASSISTANT, content=text),
                delta=delta,
                raw=self._raw() if number == len(words) - 1 else {"model": "scripted-1-2026"},
            )

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self._response(messages)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        if self.reached is not None:
            self.reached.set()
            await asyncio.Event().wait()
        return self._response(messages)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        return self._generate(messages)

    def _generate(self, messages: Sequence[ChatMessage]) -> ChatResponseGen:
        yield from self._chunks(messages)

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        return self._agenerate(messages)

    async def _agenerate(self, messages: Sequence[ChatMessage]) -> AsyncIterator[ChatResponse]:
        for chunk in self._chunks(messages):
            yield chunk
            await asyncio.sleep(0)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        response = self._response([ChatMessage(content=prompt)])
        return CompletionResponse(text=response.message.content or "", raw=response.raw)

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        response = self._response([ChatMessage(content=prompt)])
        return CompletionResponse(text=response.message.content or "", raw=response.raw)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        return self._generate_completion(prompt)

    def _generate_completion(self, prompt: str) -> CompletionResponseGen:
        for chunk in self._chunks([ChatMessage(content=prompt)]):
            yield CompletionResponse(text=chunk.message.content or "", delta=chunk.delta, raw=chunk.raw)

    @llm_completion_callback()
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        return self._agenerate_completion(prompt)

    async def _agenerate_completion(self, prompt: str) -> AsyncIterator[CompletionResponse]:
        for chunk in self._generate_completion(prompt):
            yield chunk

    def _prepare_chat_with_tools(
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        return {"messages": [*(chat_history or []), *([user_msg] if user_msg else [])]}

    def get_tool_calls_from_response(self, response: ChatResponse, **kwargs: Any) -> list[ToolSelection]:
        return response.message.additional_kwargs.get("tool_calls", [])


class NestingLLM(CustomLLM):
    """A model as users write it, with ``complete`` and ``stream_complete`` only; other methods call these."""

    answer: str = "It was opened in 2019."

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="nesting-1", is_chat_model=True)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.answer, raw={"usage": USAGE})

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        return self._generate()

    def _generate(self) -> CompletionResponseGen:
        text = ""
        for word in self.answer.split(" "):
            text += word + " "
            yield CompletionResponse(text=text, delta=word + " ", raw={"usage": USAGE})


class OutOfOrderError(Exception):
    """What a broken component raises."""


_DIMENSIONS = 256


class WordCounts(BaseEmbedding):
    """Counts the words of a text, so that texts with common words are near each other. It needs no model."""

    def _get_text_embedding(self, text: str) -> list[float]:
        words = re.findall(r"\w+", text.lower())
        counts = [0.0] * _DIMENSIONS
        for word in words:
            counts[crc32(word.encode()) % _DIMENSIONS] += 1
        # The number of words ranks texts that have no other word in common with a question.
        return [*counts, float(len(words))]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


FACTS = {
    "d1": "The pier was opened in 2019.",
    "d2": "The ferry to Quern takes 18 minutes.",
    "d3": "The lighthouse keeper keeps bees.",
}


def nodes() -> list[TextNode]:
    return [TextNode(id_=key, text=text, metadata={"source": f"{key}.md"}) for key, text in FACTS.items()]


def index() -> VectorStoreIndex:
    """The real index over three facts, with the real embeddings."""
    return VectorStoreIndex(nodes(), embed_model=WordCounts())


def llm(answer: Any = "It was opened in 2019.", **fields: Any) -> ScriptedLLM:
    return ScriptedLLM(script=answer if callable(answer) else lambda messages: answer, **fields)


class ScriptedRetriever(BaseRetriever):
    """Returns the nodes that ``find`` returns for the query, or raises what it returns."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        super().__init__()
        self._find = find

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._find(query_bundle.query_str)
        if isinstance(found, BaseException):
            raise found
        return found


def step_of_call(output: Any, prompt: Any = "When?", **details: Any) -> Step:
    """Return the step of a recorded model call."""
    key = "Model.chat-" + "0" * 36
    details = {"instance": object(), **details}
    run = LlamaIndexRun(
        id=key,
        parent=None,
        framework=FRAMEWORK,
        kind="llm",
        name="Model",
        input=prompt,
        started_at=1,
        ended_at=2,
        output=output,
        **details,
    )
    [step] = turn_from_events([run]).steps
    return step
