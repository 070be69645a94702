"""The output of postprocessors and rerankers is the context; the retriever's step keeps their input."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor import LLMRerank, MetadataReplacementPostProcessor, SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from rageval_hooks.turn import Step, Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import FACTS, OutOfOrderError, ScriptedRetriever, index, llm

QUESTION = "When was the pier opened?"


class Reverse(BaseNodePostprocessor):
    """A reranker without events that gives the nodes new scores in place, as many do."""

    keep: int = 2
    events: bool = False

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if self.events:
            get_dispatcher().event(ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=self.keep, model_name="rev"))
        kept = nodes[::-1][: self.keep]
        for rank, node in enumerate(kept):
            node.score = 100.0 - rank
        if self.events:
            get_dispatcher().event(ReRankEndEvent(nodes=kept))
        return kept


class AsyncReverse(Reverse):
    """A reranker whose asynchronous method has no span: LlamaIndex decorates abstract methods only."""

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return self._postprocess_nodes.__wrapped__(nodes, query_bundle)


class Broken(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        raise OutOfOrderError("no reranking today")


def engine(*postprocessors: Any, **options: Any) -> Any:
    return index().as_query_engine(llm=llm(), similarity_top_k=3, node_postprocessors=list(postprocessors), **options)


def ask(asked: Any, asynchronous: bool) -> None:
    asyncio.run(asked.aquery(QUESTION)) if asynchronous else asked.query(QUESTION)


def shown(turn: Turn) -> list[tuple[str | None, float | None]]:
    return [(passage.id, passage.score) for passage in turn.passages if passage.in_prompt]


def dropped(turn: Turn) -> list[str | None]:
    return [passage.id for passage in turn.passages if passage.in_prompt is False]


def of_kind(turn: Turn, kind: str) -> list[Step]:
    return [step for step in turn.steps if step.kind == kind]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
@pytest.mark.parametrize("events", [False, True], ids=["without events", "with events"])
def test_a_reranker(captured: Captured, events: bool, asynchronous: bool) -> None:
    """The prompt has its choice, with its order and scores. Dropped passages are kept and marked."""
    ask(engine(Reverse(events=events)), asynchronous)

    turn = captured.turn
    assert shown(turn) == [("d3", 100.0), ("d2", 99.0)]
    assert dropped(turn) == ["d1"]
    assert [passage.id for passage in turn.passages] == ["d3", "d2", "d1"]
    [retrieval], [reranking] = of_kind(turn, "retriever"), of_kind(turn, "reranker")
    assert [passage.id for passage in retrieval.passages] == ["d1", "d2", "d3"]
    assert all((passage.score or 0) < 1 for passage in retrieval.passages)
    assert [passage.in_prompt for passage in retrieval.passages] == [False, True, True]
    assert reranking.name == "Reverse"
    assert reranking.input == QUESTION
    assert [(passage.id, passage.score) for passage in reranking.passages] == [("d3", 100.0), ("d2", 99.0)]
    assert turn.timing is not None
    both = (retrieval.ended_at - retrieval.started_at) + (reranking.ended_at - reranking.started_at)
    assert turn.timing.retrieval == pytest.approx(both / 1e9)


def test_a_reranker_without_a_span(captured: Captured) -> None:
    """The input of the synthesizer shows what the reranker chose."""
    ask(engine(AsyncReverse()), True)

    turn = captured.turn
    assert shown(turn) == [("d3", 100.0), ("d2", 99.0)]
    assert dropped(turn) == ["d1"]
    assert [passage.id for passage in of_kind(turn, "retriever")[0].passages] == ["d1", "d2", "d3"]


def test_an_empty_node_hides_no_other_one(captured: Captured) -> None:
    """What the reranker dropped is kept, also where it left a node without text."""

    nodes = [TextNode(text=text, id_=name) for name, text in {**FACTS, "empty": ""}.items()]
    retriever = ScriptedRetriever(lambda _: [NodeWithScore(node=node, score=0.5) for node in nodes])
    RetrieverQueryEngine.from_args(retriever, llm=llm(), node_postprocessors=[Reverse(keep=1)]).query(QUESTION)

    assert dropped(captured.turn) == list(FACTS)


def test_several_in_a_row(captured: Captured) -> None:
    """Each is a step with the nodes that it kept. The prompt has those of the last one."""
    ask(engine(Reverse(), SimilarityPostprocessor(similarity_cutoff=99.5)), False)

    turn = captured.turn
    assert [passage_id for passage_id, _ in shown(turn)] == ["d3"]
    assert dropped(turn) == ["d1", "d2"]
    assert [[passage.id for passage in step.passages] for step in of_kind(turn, "reranker")] == [["d3", "d2"], ["d3"]]


def test_one_that_leaves_nothing(captured: Captured) -> None:
    """All passages are marked as dropped, although no model was called."""
    ask(engine(SimilarityPostprocessor(similarity_cutoff=2.0)), False)

    turn = captured.turn
    assert dropped(turn) == ["d1", "d2", "d3"]
    assert shown(turn) == []
    assert turn.response == "Empty Response"
    assert [passage.id for passage in of_kind(turn, "retriever")[0].passages] == ["d1", "d2", "d3"]
    assert turn.is_rag


def test_one_that_changes_the_texts_in_place(captured: Captured) -> None:
    """With sentence windows, the passage is the window, and the retriever's step keeps the sentence."""
    node = TextNode(id_="d1", text=FACTS["d1"], metadata={"window": "Before that. " + FACTS["d1"]})
    asked = engine(MetadataReplacementPostProcessor(target_metadata_key="window"))
    asked._retriever = ScriptedRetriever(lambda query: [NodeWithScore(node=node, score=0.5)])
    ask(asked, False)

    turn = captured.turn
    assert [passage.text for passage in turn.passages] == ["Before that. " + FACTS["d1"]]
    assert [passage.text for passage in of_kind(turn, "retriever")[0].passages] == [FACTS["d1"]]


def test_one_that_asks_a_model(captured: Captured) -> None:
    """Its call is inside its step. Its prompt has every candidate, and is not the prompt of the answer."""
    ask(engine(LLMRerank(llm=llm("Doc: 1, Relevance: 9"), top_n=1)), False)

    turn = captured.turn
    assert shown(turn) == [("d1", 9.0)]
    assert dropped(turn) == ["d2", "d3"]
    [reranking] = of_kind(turn, "reranker")
    assert [call.parent_id for call in of_kind(turn, "llm")] == [reranking.id, None]
    retrieved = of_kind(turn, "retriever")[0].passages
    assert [passage.in_prompt for passage in retrieved] == [True, False, False]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
def test_one_that_fails(captured: Captured, asynchronous: bool) -> None:
    """The turn has its error, and what was retrieved before."""
    with pytest.raises(OutOfOrderError):
        ask(engine(Broken()), asynchronous)

    turn = captured.turn
    assert turn.status == "error"
    assert turn.error is not None
    assert turn.error.type == "OutOfOrderError"
    assert [passage.id for passage in turn.passages] == ["d1", "d2", "d3"]
    [reranking] = of_kind(turn, "reranker")
    assert reranking.error is not None
    assert reranking.error.message == "no reranking today"
