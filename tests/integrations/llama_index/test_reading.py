"""The call that wrote the answer is found among several calls, and the context among several retrievals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core import Settings
from llama_index.core.evaluation import RelevancyEvaluator
from llama_index.core.query_engine import RetryQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step

from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import FACTS, ScriptedRetriever, WordCounts, index, llm

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


class Found(Event):
    """Nodes."""

    nodes: Any


class Written(Event):
    """An answer."""

    text: str


class Judged(Workflow):
    """An engine that retrieves, answers, and has the answer judged by a model."""

    changed: Any = staticmethod(str)

    @step
    async def find(self, event: StartEvent) -> Found:
        """Search."""
        return Found(nodes=await index().as_retriever(similarity_top_k=2).aretrieve(event.question))

    @step
    async def write(self, event: Found) -> Written:
        """Answer."""
        prompt = "Use this:\n" + "\n".join(node.node.text for node in event.nodes)
        return Written(text=(await llm(ANSWER).acomplete(prompt)).text)

    @step
    async def judge(self, event: Written) -> StopEvent:
        """Ask whether it is good."""
        await llm("yes").acomplete("Is this good? " + event.text)
        return StopEvent(result=self.changed(event.text))


@pytest.mark.parametrize(
    "changed", [str, lambda text: {"answer": f"{text}\n\nSource: d1.md"}], ids=["as it is", "more"]
)
def test_a_model_that_judges_the_answer_has_not_written_it(captured: Captured, changed: Any) -> None:
    """The prompt and the marks of the passages are those of the call that wrote the answer."""

    async def main() -> None:
        workflow = Judged()
        workflow.changed = changed
        await workflow.run(question=QUESTION)

    asyncio.run(main())

    turn = captured.turn
    assert turn.response.startswith(ANSWER)
    assert turn.prompt[-1].content.startswith("Use this:")
    assert [passage.in_prompt for passage in turn.passages] == [True, True]


def test_an_engine_that_tries_again_until_its_evaluator_is_content(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluator's index of the same passages, and its prompts, are neither context nor question."""
    monkeypatch.setattr(Settings, "_llm", llm())
    monkeypatch.setattr(Settings, "_embed_model", WordCounts())
    verdicts = iter(["NO", "YES"])
    evaluator = RelevancyEvaluator(llm=llm(lambda messages: next(verdicts)))
    RetryQueryEngine(index().as_query_engine(llm=llm(), similarity_top_k=2), evaluator).query(QUESTION)

    turn = captured.turn
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True), ("d2", True)]
    assert turn.retrieval_queries == ()
    assert not turn.prompt[-1].content.startswith("Your task is to evaluate")


def test_passages_whose_ids_are_new_each_time_count_once(captured: Captured) -> None:
    """Retrievers that make nodes from a service's answers give them random ids. Their queries are kept."""

    class Twice(Workflow):
        @step
        async def run_all(self, event: StartEvent) -> StopEvent:
            """Search twice, and answer."""
            service = ScriptedRetriever(
                lambda query: [NodeWithScore(node=TextNode(text=text)) for text in FACTS.values()]
            )
            found = [node for query in (event.question, "pier") for node in await service.aretrieve(query)]
            prompt = "\n".join(node.node.get_content() for node in found)
            return StopEvent(result=(await llm(ANSWER).acomplete(prompt)).text)

    async def main() -> None:
        await Twice().run(question=QUESTION)

    asyncio.run(main())

    turn = captured.turn
    assert [passage.text for passage in turn.passages] == list(FACTS.values())
    assert turn.retrieval_queries == ("pier",)
