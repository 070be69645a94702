"""The demo application on LlamaIndex: index, retriever, query engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from llama_index.core import PromptTemplate, VectorStoreIndex
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import RESPONSE_TYPE, Response
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import LLM, CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from rageval_hooks.demo.extraction import EXTRACTIVE, content_words, extract, slip
from rageval_hooks.demo.handbook import Section, load_handbook
from rageval_hooks.errors import requires
from rageval_hooks.models import AnyEmbedder
from rageval_hooks.models.embedder import Embedder

__all__ = ["build_application", "build_query_engine"]

_PASSAGES = 4
_QUESTION = "\n\nQuestion: "
_PROMPT = PromptTemplate(
    "You answer passengers of a ferry company, from these passages alone.\n\n{context_str}" + _QUESTION + "{query_str}"
)


class SharedEmbedding(BaseEmbedding):
    """The embedder of the evaluation behind the interface of LlamaIndex, so that its weights are loaded once."""

    embedder: Any

    def _get_text_embedding(self, text: str) -> list[float]:
        return [float(value) for value in self.embedder.embed(text).vector]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


class LexicalRetriever(BaseRetriever):
    """Retrieves the passages that share most words with the query, for ``--models lexical``."""

    def __init__(self, sections: Iterable[Section]) -> None:
        super().__init__()
        self._sections = list(sections)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        wanted = content_words(query_bundle.query_str)
        shares = [
            (len(wanted & content_words(section.text)) / max(1, len(wanted)), section) for section in self._sections
        ]
        best = sorted(shares, key=lambda pair: -pair[0])[:_PASSAGES]
        return [NodeWithScore(node=_node(section), score=share) for share, section in best]


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


class Handbook(BaseQueryEngine):
    """Wraps a query engine and puts one wrong number into its answers, for the scores to find."""

    def __init__(self, engine: BaseQueryEngine) -> None:
        super().__init__(None)
        self._engine = engine

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        found = self._engine.query(query_bundle)
        return Response(slip(query_bundle.query_str, str(found)), source_nodes=found.source_nodes)

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        return self._query(query_bundle)

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {}


def build_query_engine(sections: Iterable[Section], embedder: AnyEmbedder, llm: LLM) -> BaseQueryEngine:
    """Build the query engine.

    Args:
        sections: the passages to search.
        embedder: the embedder for the search; a lexical one searches by shared words.
        llm: the language model that answers.
    """
    retriever: BaseRetriever
    if isinstance(embedder, Embedder):
        index = VectorStoreIndex(list(map(_node, sections)), embed_model=SharedEmbedding(embedder=embedder))
        retriever = index.as_retriever(similarity_top_k=_PASSAGES)
    else:
        retriever = LexicalRetriever(sections)
    return Handbook(RetrieverQueryEngine.from_args(retriever, llm=llm, text_qa_template=_PROMPT))


def build_application(embedder: AnyEmbedder) -> tuple[Callable[[str], Any], str]:
    """Return the application, a function from a question to an answer, and a line that describes its model."""
    llm, about = _answer_model()
    return build_query_engine(load_handbook(), embedder, llm).query, about


def _answer_model() -> tuple[LLM, str]:
    """Return the language model and a line that describes it: an OpenAI-compatible endpoint if one is configured."""
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        with requires(
            "llama-index-llms-openai-like", "demo,llama-index", "a model behind OPENAI_API_KEY or OPENAI_BASE_URL"
        ):
            from llama_index.llms.openai_like import OpenAILike
        name = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
        model = OpenAILike(
            model=name,
            api_base=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
            api_key=os.environ.get("OPENAI_API_KEY", "none"),
            is_chat_model=True,
        )
        return model, f"{name}, by OPENAI_API_KEY or OPENAI_BASE_URL"
    return ExtractiveLLM(), f"{EXTRACTIVE}, which copies sentences (set OPENAI_API_KEY or OPENAI_BASE_URL for a model)"


def _node(section: Section) -> TextNode:
    return TextNode(id_=section.id, text=section.text)
