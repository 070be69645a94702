"""The passages of a turn: the nodes in the prompt, wherever they came from, and the retrieved nodes that are not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.schema import Document, NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool, RetrieverTool
from llama_index.core.vector_stores.types import VectorStoreQueryResult
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step

from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import FACTS, ScriptedLLM, ScriptedRetriever, llm

pytestmark = [  # raised by agents when they are created
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step"),
]

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."
NODES = [TextNode(id_=key, text=text) for key, text in FACTS.items()]
FOUND = [NodeWithScore(node=node, score=0.5) for node in NODES]


def shown(turn: Turn) -> list[str | None]:
    return [passage.id for passage in turn.passages if passage.in_prompt]


def dropped(turn: Turn) -> list[str | None]:
    return [passage.id for passage in turn.passages if passage.in_prompt is False]


def calling(tool: str, answer: str = ANSWER, **arguments: str) -> ScriptedLLM:
    """Return a model that calls a tool first and then answers."""

    def script(messages: Sequence[ChatMessage]) -> Any:
        if messages[-1].role.value == "tool":
            return answer
        return [ToolSelection(tool_id="1", tool_name=tool, tool_kwargs=arguments)]

    return llm(script)


class Found(Event):
    """What one step passes to the next."""

    nodes: Any
    question: str


class Searching(Workflow):
    """A workflow that searches a vector store, and answers from the first two results."""

    @step
    async def search(self, ev: StartEvent) -> Found:
        return Found(nodes=ev.found, question=ev.question)

    @step
    async def answer(self, ev: Found) -> StopEvent:
        found = ev.nodes.nodes if hasattr(ev.nodes, "nodes") else ev.nodes
        texts = [getattr(node, "text", None) or node["text"] for node in found[:2]]
        return StopEvent(result=str(await llm(ANSWER).acomplete("\n".join([*texts, ev.question]))))


@pytest.mark.parametrize(
    ("found", "scores"),
    [
        (NODES, [None, None]),
        (FOUND, [0.5, 0.5]),
        (VectorStoreQueryResult(nodes=NODES, similarities=[0.5, 0.4, 0.3], ids=list(FACTS)), [0.5, 0.4]),
    ],
    ids=["nodes", "nodes with scores", "result of a vector store"],
)
def test_nodes_that_steps_pass_on(captured: Captured, found: Any, scores: list[float | None]) -> None:
    """Only the nodes in the prompt are passages, with the scores that they came with."""

    async def main() -> None:
        await Searching().run(question=QUESTION, found=found)

    asyncio.run(main())

    assert shown(captured.turn) == ["d1", "d2"]
    assert dropped(captured.turn) == []
    assert [passage.score for passage in captured.turn.passages] == scores


def test_documents_that_the_caller_passes_in(captured: Captured) -> None:
    """They were not retrieved in this turn, but they are in the prompt."""
    documents = [Document(id_=key, text=text) for key, text in FACTS.items()]

    async def main() -> None:
        await Searching().run(question=QUESTION, found=documents)

    asyncio.run(main())

    assert shown(captured.turn) == ["d1", "d2"]


class Grading(Workflow):
    """Corrective RAG: a workflow that drops what was retrieved and uses a web page."""

    @step
    async def run_all(self, ev: StartEvent) -> StopEvent:
        found = await ScriptedRetriever(lambda query: FOUND[1:]).aretrieve(ev.question)
        for item in found:
            await llm("no").acomplete(f"Is this relevant? {item.text}")
        page = TextNode(id_="web", text="A web page: the pier was opened in 2019.")
        return StopEvent(result=str(await self.write([page], ev.question)))

    async def write(self, nodes: list[TextNode], question: str) -> Any:
        return await llm(ANSWER).acomplete("\n".join([*(node.text for node in nodes), question]))


def test_retrieved_nodes_that_were_graded_away(captured: Captured) -> None:
    """They are kept and marked as dropped, although the grader's prompts had them."""

    async def main() -> None:
        await Grading().run(question=QUESTION)

    asyncio.run(main())

    assert shown(captured.turn) == []
    assert dropped(captured.turn) == ["d2", "d3"]


def test_nodes_that_a_tool_returns(captured: Captured) -> None:
    """The tool is a function that queries a vector store and returns its nodes."""

    def search(query: str) -> list[NodeWithScore]:
        """Search."""
        return FOUND[:2]

    async def main() -> None:
        agent = FunctionAgent(tools=[FunctionTool.from_defaults(search)], llm=calling("search", query=QUESTION))
        await agent.run(QUESTION)

    asyncio.run(main())

    assert shown(captured.turn) == ["d1", "d2"]


def test_passages_that_an_agent_used_as_a_tool_has_read(captured: Captured) -> None:
    """The outer model sees only the inner agent's answer, which was written from them."""

    async def ask(question: str) -> str:
        """Ask the other agent."""
        retriever = ScriptedRetriever(lambda query: FOUND[:1])
        tool = RetrieverTool.from_defaults(retriever, name="town", description="The town.")
        return str(await FunctionAgent(tools=[tool], llm=calling("town", input=question)).run(question))

    async def main() -> None:
        model = calling("ask", "In 2019, the agent says.", question=QUESTION)
        await FunctionAgent(tools=[FunctionTool.from_defaults(ask)], llm=model).run(QUESTION)

    asyncio.run(main())

    assert captured.turn.response == "In 2019, the agent says."
    assert shown(captured.turn) == ["d1"]
