"""The demo application on LlamaIndex: retriever, query engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from llama_index.core import PromptTemplate
from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.llms import LLM, CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from rageval_hooks.demo.handbook import EXTRACTIVE, HandbookSection, extract, load_handbook, search_in, slip
from rageval_hooks.errors import requires
from rageval_hooks.models import AnyEmbedder

_QUESTION = "\n\nQuestion: "
_PROMPT = PromptTemplate(
    "You answer passengers of a ferry company, from these passages alone.\n\n{context_str}" + _QUESTION + "{query_str}"
)


class HandbookIndex(BaseRetriever):
    """Retrieves the nearest sections, each with its similarity."""

    def __init__(self, search: Callable[[str], list[tuple[HandbookSection, float]]]) -> None:
        super().__init__()
        self._search = search

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=TextNode(id_=section.id, text=section.text), score=similarity)
            for section, similarity in self._search(query_bundle.query_str)
        ]


class ExtractiveLLM(CustomLLM):
    """Replaces a language model: answers with the sentences that share most words with the question."""

    @property
    def metadata(self) -> LLMMetadata:
        """The model name, and a context window that is large enough for every prompt of the demo."""
        return LLMMetadata(model_name=EXTRACTIVE, context_window=32_768)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer."""
        # The prompt is the instruction, the passages and the question, with an empty line between them.
        before, _, question = prompt.rpartition(_QUESTION)
        return CompletionResponse(text=extract(question, before.split("\n\n")[1:]))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Answer in one piece."""
        yield self.complete(prompt)


class Handbook(RetrieverQueryEngine):
    """A query engine that puts one wrong number into its answers, for the scores to find."""

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        found = super()._query(query_bundle)
        return Response(slip(query_bundle.query_str, str(found)), source_nodes=found.source_nodes)


def build_application(embedder: AnyEmbedder, model_name: str | None) -> Callable[[str], Any]:
    """Return the application, a function from a question to an answer.

    Args:
        embedder: the embedder for the search.
        model_name: a model of an OpenAI-compatible endpoint; None for the stand-in.
    """
    llm: LLM = ExtractiveLLM()
    if model_name is not None:
        with requires("llama-index-llms-openai-like", "demo,llama-index", "a model behind OPENAI_API_KEY"):
            from llama_index.llms.openai_like import OpenAILike
        llm = OpenAILike(
            model=model_name,
            api_base=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
            api_key=os.environ.get("OPENAI_API_KEY", "none"),
            is_chat_model=True,
        )
    retriever = HandbookIndex(search_in(load_handbook(), embedder))
    return Handbook.from_args(retriever, llm=llm, text_qa_template=_PROMPT).query
