"""The demo application on LangChain, built as its documentation does: retriever, prompt, model, parser."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

from rageval_hooks.demo.handbook import EXTRACTIVE, HandbookSection, extract, load_handbook, search_in, slip
from rageval_hooks.models import AnyEmbedder

__all__ = ["ExtractiveModel", "answer_model", "build_application", "build_chain"]

_PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "You answer passengers of a ferry company, from these passages alone.\n\n{context}"),
        ("human", "{question}"),
    ]
)


class HandbookRetriever(BaseRetriever):
    """Retrieves the nearest sections, each with its similarity in the metadata."""

    search: Callable[[str], list[tuple[HandbookSection, float]]]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [
            Document(id=section.id, page_content=section.text, metadata={"score": similarity})
            for section, similarity in self.search(query)
        ]


class ExtractiveModel(BaseChatModel):
    """Replaces a language model: answers with the sentences that share most words with the question."""

    @property
    def _llm_type(self) -> str:
        return "extractive"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_provider": "demo", "ls_model_name": EXTRACTIVE, "ls_model_type": "chat"}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(_extract(messages)))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        # A word with the space after it, such as "pier ", is one chunk.
        for piece in re.findall(r"\S+\s*", _extract(messages)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def _extract(messages: Sequence[BaseMessage]) -> str:
    # The prompt has the passages in its system message, after the instruction.
    passages = str(messages[0].content).split("\n\n")[1:]
    return extract(str(messages[-1].content), passages)


def answer_model() -> tuple[BaseChatModel, str]:
    """Return the chat model and a line that describes it: an OpenAI-compatible endpoint if one is configured."""
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        from langchain_openai import ChatOpenAI

        name = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
        # Servers of one's own often need no key, but the client insists on one.
        key = os.environ.get("OPENAI_API_KEY", "none")
        return ChatOpenAI(
            model=name, api_key=lambda: key, stream_usage=True
        ), f"{name}, by OPENAI_API_KEY or OPENAI_BASE_URL"
    return (
        ExtractiveModel(),
        f"{EXTRACTIVE}, which copies sentences (set OPENAI_API_KEY or OPENAI_BASE_URL for a model)",
    )


def build_chain(
    sections: Iterable[HandbookSection], embedder: AnyEmbedder, model: BaseChatModel
) -> Runnable[dict[str, Any], str]:
    """Build the chain.

    Args:
        sections: the passages to search.
        embedder: the embedder for the search.
        model: the chat model that answers.
    """
    retriever = HandbookRetriever(search=search_in(list(sections), embedder))
    chain: Runnable[Any, Any] = (
        {"context": retriever | _join, "question": RunnablePassthrough()} | _PROMPT | model | StrOutputParser()
    )
    return (
        RunnablePassthrough.assign(answer=lambda state: chain.invoke(state["question"]))
        | RunnableLambda(lambda state: slip(state["question"], state["answer"]))
    ).with_config(run_name="handbook")


def build_application(embedder: AnyEmbedder) -> tuple[Callable[[str], Any], str]:
    """Return the application, a function from a question to an answer, and a line that describes its model."""
    model, about = answer_model()
    chain = build_chain(load_handbook(), embedder, model)
    return lambda question: chain.invoke({"question": question}), about


def _join(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)
