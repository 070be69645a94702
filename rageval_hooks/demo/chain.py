"""The demo application, built as LangChain's documentation does: retriever, prompt, model, parser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough

from rageval_hooks.demo.handbook import QUESTIONS, HandbookSection, load_handbook
from rageval_hooks.models import AnyEmbedder
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import STOP_WORDS, words

_PASSAGES: Final = 4
_PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "You answer passengers of a ferry company, from these passages alone.\n\n{context}"),
        ("human", "{question}"),
    ]
)


class HandbookRetriever(BaseRetriever):
    """Retrieves the nearest sections, each with its similarity in the metadata.

    Attributes:
        sections: each section with its embedding.
        embed: that of the evaluation, so that its weights are loaded once.
    """

    sections: Sequence[tuple[HandbookSection, Any]]
    embed: Callable[[str], Any]

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        wanted = self.embed(query)
        found = [
            Document(id=section.id, page_content=section.text, metadata={"score": float(wanted.cosine(embedding))})
            for section, embedding in self.sections
        ]
        return sorted(found, key=lambda document: -document.metadata["score"])[:_PASSAGES]


class ExtractiveModel(BaseChatModel):
    """Replaces a language model: answers with the sentences that share most words with the question."""

    @property
    def _llm_type(self) -> str:
        return "extractive"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_provider": "demo", "ls_model_name": "extractive-demo", "ls_model_type": "chat"}

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        # The prompt has the passages in its system message, after the instruction.
        _, *passages = str(messages[0].content).split("\n\n")
        answer = _extract(str(messages[-1].content), passages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])


def _extract(question: str, passages: Iterable[str]) -> str:
    """Return the two sentences of the passages that share most words with the question, in their original order."""
    wanted = _content_words(question)
    ranked: list[tuple[float, int, str]] = []
    for rank, passage in enumerate(passages):
        about = len(wanted & _content_words(passage))
        for start, end in sentence_spans(passage):
            sentence = passage[start:end]
            # A sentence of a passage about the question is worth more, and an earlier passage more than a later one.
            shared = len(wanted & _content_words(sentence)) + 0.5 * about - 0.1 * rank
            ranked.append((shared, len(ranked), sentence))
    best = sorted(ranked, key=lambda item: (-item[0], item[1]))[:2]
    return " ".join(sentence for _, _, sentence in sorted(best, key=lambda item: item[1]))


def _content_words(text: str) -> set[str]:
    """Return the words of a text without stop words."""
    return {word.key for word in words(text) if word.key not in STOP_WORDS}


def _slip(state: dict[str, Any]) -> str:
    """Return the answer, with a wrong number in the answer to the question that demonstrates it."""
    answer = str(state["answer"])
    for question in QUESTIONS:
        if question.text == state["question"] and question.slip is not None:
            answer = answer.replace(*question.slip)
    return answer


def build_chain(
    sections: Iterable[HandbookSection], embedder: AnyEmbedder, model: BaseChatModel
) -> Runnable[dict[str, Any], str]:
    """Build the chain: from ``{"question": …}`` to the answer.

    Args:
        sections: the passages to search.
        embedder: the embedder for the search.
        model: the chat model that answers.
    """
    retriever = HandbookRetriever(
        sections=[(section, embedder.embed(section.text)) for section in sections], embed=embedder.embed
    )
    found = itemgetter("question") | retriever
    chain: Runnable[Any, Any] = (
        RunnablePassthrough.assign(context=found | (lambda texts: "\n\n".join(text.page_content for text in texts)))
        | RunnablePassthrough.assign(answer=_PROMPT | model | StrOutputParser())
        | _slip
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
