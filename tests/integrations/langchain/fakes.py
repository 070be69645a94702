"""A scripted chat model and a scripted retriever, on LangChain's real base classes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough

USAGE = {"input_tokens": 40, "output_tokens": 7, "total_tokens": 47, "input_token_details": {"cache_read": 12}}


class ScriptedChatModel(BaseChatModel):
    """Answers with what ``script`` returns for the messages: a text, a message, or an exception to raise."""

    script: Callable[[list[BaseMessage]], Any]
    model_name: str = "scripted-1"
    usage: dict[str, Any] | None = USAGE
    reached: Any = None  # an asyncio.Event that is set when the model is called, after which it waits for ever

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, **kwargs: Any) -> Any:
        return {"ls_provider": "acme", "ls_model_name": self.model_name, "ls_model_type": "chat"}

    def _message(self, messages: list[BaseMessage]) -> AIMessage:
        answer = self.script(messages)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, AIMessage):
            return answer
        return AIMessage(answer, usage_metadata=self.usage, response_metadata={"model_name": self.model_name + "-2026"})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._message(messages))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if self.reached is not None:
            self.reached.set()
            await asyncio.Event().wait()
        return self._generate(messages)

    def _chunks(self, messages: list[BaseMessage]) -> Iterator[ChatGenerationChunk]:
        message = self._message(messages)
        if message.tool_calls:
            calls = [
                {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": index}
                for index, call in enumerate(message.tool_calls)
            ]
            chunk = AIMessageChunk("", tool_call_chunks=calls, usage_metadata=message.usage_metadata)
            yield ChatGenerationChunk(message=chunk)
            return
        words = str(message.content).split(" ")
        for number, word in enumerate(words):
            text = word if number == len(words) - 1 else word + " "
            yield ChatGenerationChunk(message=AIMessageChunk(text))
        last = AIMessageChunk("", usage_metadata=self.usage, response_metadata=message.response_metadata)
        yield ChatGenerationChunk(message=last)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
            await asyncio.sleep(0)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        return self


class ScriptedRetriever(BaseRetriever):
    """Returns the documents that ``find`` returns for the query, or raises what it returns."""

    find: Callable[[str], Any]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        found = self.find(query)
        if isinstance(found, BaseException):
            raise found
        return found


FACTS = [
    Document(id="d1", page_content="The pier was opened in 2019.", metadata={"score": 0.9, "source": "harbour.md"}),
    Document(id="d2", page_content="The ferry to Quern takes 18 minutes.", metadata={"relevance_score": 0.4}),
]

PROMPT = ChatPromptTemplate.from_messages([("system", "Use this:\n{context}"), ("human", "{question}")])


def join(documents: list[Document]) -> str:
    return "\n".join(document.page_content for document in documents)


def retriever(documents: Any = FACTS) -> ScriptedRetriever:
    return ScriptedRetriever(find=lambda query: documents)


def model(answer: Any = "It was opened in 2019.", **fields: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=answer if callable(answer) else lambda messages: answer, **fields)


def lcel(answer: Any = "It was opened in 2019.", documents: Any = FACTS, **fields: Any) -> Runnable[Any, Any]:
    """The usual chain: documents and question in parallel, prompt, model, text."""
    return (
        {"context": retriever(documents) | join, "question": RunnablePassthrough()}
        | PROMPT
        | model(answer, **fields)
        | StrOutputParser()
    )
