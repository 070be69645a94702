"""The demo application on LangChain, built as its documentation does: retriever, prompt, model, parser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough

from rageval_hooks.demo.handbook import EXTRACTIVE, HandbookSection, extract, load_handbook, search_in, slip
from rageval_hooks.models import AnyEmbedder

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
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        # The prompt has the passages in its system message, after the instruction.
        _, *passages = str(messages[0].content).split("\n\n")
        answer = extract(str(messages[-1].content), passages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])


def build_chain(
    sections: Iterable[HandbookSection], embedder: AnyEmbedder, model: BaseChatModel
) -> Runnable[dict[str, Any], str]:
    """Build the chain: from ``{"question": …}`` to the answer.

    Args:
        sections: the passages to search.
        embedder: the embedder for the search.
        model: the chat model that answers.
    """
    retriever = HandbookRetriever(search=search_in(list(sections), embedder))
    found = itemgetter("question") | retriever
    chain: Runnable[Any, Any] = (
        RunnablePassthrough.assign(context=found | (lambda texts: "\n\n".join(text.page_content for text in texts)))
        | RunnablePassthrough.assign(answer=_PROMPT | model | StrOutputParser())
        | (lambda state: slip(state["question"], state["answer"]))
    )
    return chain.with_config(run_name="handbook")


def build_application(embedder: AnyEmbedder, model_name: str | None) -> Callable[[str], Any]:
    """Return the application, a function from a question to an answer.

    Args:
        embedder: the embedder for the search.
        model_name: a model of an OpenAI-compatible endpoint; None for the stand-in.
    """
    model: BaseChatModel = ExtractiveModel()
    if model_name is not None:
        from langchain_openai import ChatOpenAI

        # Servers of one's own often need no key, but the client insists on one.
        key = os.environ.get("OPENAI_API_KEY", "none")
        model = ChatOpenAI(model=model_name, api_key=lambda: key, stream_usage=True)
    chain = build_chain(load_handbook(), embedder, model)
    return lambda question: chain.invoke({"question": question})
