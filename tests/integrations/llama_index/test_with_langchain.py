"""LangChain and LlamaIndex in one turn: whichever is the outer one, the turn has what both did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.retrievers import BaseRetriever as LangChainRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step

from rageval_hooks import start_turn
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain import fakes as langchain
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index import fakes as llama_index

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."
FACT = "The pier was opened in 2019."


def nodes(query: str) -> list[NodeWithScore]:
    return [
        NodeWithScore(node=TextNode(id_="n1", text=FACT), score=0.8),
        NodeWithScore(node=TextNode(id_="n2", text="The ferry takes 18 minutes."), score=0.3),
    ]


def engine(answer: Any = ANSWER, **options: Any) -> Any:
    return RetrieverQueryEngine.from_args(llama_index.ScriptedRetriever(nodes), llm=llama_index.llm(answer), **options)


def kinds(turn: Turn) -> list[str]:
    return [step.kind for step in turn.steps]


# --------------------------------------------------------------------------- LangChain around LlamaIndex


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "async function"])
def test_a_chain_that_asks_a_query_engine(captured: Captured, way: str) -> None:
    """The chain's run is the turn. The context, prompt and tokens come from the engine."""

    async def ask(question: str) -> str:
        return str(await engine().aquery(question))

    plain = RunnableLambda(lambda question: str(engine().query(question)))
    chain: Any = plain | StrOutputParser()
    if way == "invoke":
        chain.invoke(QUESTION)
    elif way == "stream":
        list(chain.stream(QUESTION))
    elif way == "ainvoke":
        asyncio.run(chain.ainvoke(QUESTION))
    else:
        asyncio.run((RunnableLambda(ask) | StrOutputParser()).ainvoke(QUESTION))

    turn = captured.turn
    assert turn.framework == "langchain"
    assert turn.name == "RunnableSequence"
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("n1", True), ("n2", True)]
    assert kinds(turn) == ["retriever", "llm"]
    assert turn.model == "scripted-1-2026"
    assert QUESTION in turn.prompt[-1].content
    assert turn.usage is not None
    assert turn.usage.input_tokens == 40
    assert turn.timing is not None
    assert turn.timing.retrieval is not None
    assert turn.timing.generation is not None


def test_a_block_around_a_chain_that_asks_a_query_engine(captured: Captured) -> None:
    """The answer is the chain's, and not the engine's, which the chain has changed."""
    chain = RunnableLambda(lambda question: str(engine().query(question)).upper())
    with start_turn("And when?"):
        chain.invoke(QUESTION)

    turn = captured.turn
    assert (turn.query, turn.response, turn.framework) == ("And when?", ANSWER.upper(), "langchain")
    assert turn.retrieval_queries == (QUESTION,)
    assert kinds(turn) == ["retriever", "llm"]


def test_a_chain_over_nodes(captured: Captured) -> None:
    """LlamaIndex retrieves and LangChain's model answers. Its prompt marks the passages."""
    retriever = llama_index.ScriptedRetriever(nodes)
    first = RunnableLambda(lambda question: retriever.retrieve(question)[0].text)
    chain = {"context": first, "question": RunnablePassthrough()} | langchain.PROMPT | langchain.model(ANSWER)
    chain.invoke(QUESTION)

    turn = captured.turn
    assert [(passage.id, passage.score, passage.in_prompt) for passage in turn.passages] == [
        ("n1", 0.8, True),
        ("n2", 0.3, False),
    ]
    assert kinds(turn) == ["retriever", "llm"]
    assert turn.response == ANSWER
    assert turn.model == "scripted-1-2026"
    assert turn.retrieval_queries == ()


class NodeRetriever(LangChainRetriever):
    """A retriever of LangChain around one of LlamaIndex, which makes new documents."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        found = llama_index.ScriptedRetriever(nodes).retrieve(QueryBundle(query))
        return [Document(id=f"from {node.node_id}", page_content=f"# {node.text}") for node in found]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["invoke", "ainvoke"])
def test_a_retriever_around_a_retriever(captured: Captured, asynchronous: bool) -> None:
    """The context is the documents of the outermost retriever, each once."""
    chain: Any = (
        {"context": NodeRetriever() | langchain.join, "question": RunnablePassthrough()}
        | langchain.PROMPT
        | langchain.model(ANSWER)
        | StrOutputParser()
    )
    asyncio.run(chain.ainvoke(QUESTION)) if asynchronous else chain.invoke(QUESTION)

    turn = captured.turn
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("from n1", True), ("from n2", True)]
    outer, inner, _ = turn.steps
    assert (outer.kind, inner.kind, inner.parent_id) == ("retriever", "retriever", outer.id)


def test_a_retriever_beside_a_query_engine(captured: Captured) -> None:
    """A retrieval in another task is not part of a retrieval that runs at the same time."""

    async def both(question: str) -> str:
        documents, answer = await asyncio.gather(
            langchain.retriever().ainvoke(question), engine("From the engine.").aquery(question)
        )
        return f"{len(documents)} documents. {answer}"

    asyncio.run((RunnableLambda(both) | StrOutputParser()).ainvoke(QUESTION))

    turn = captured.turn
    assert turn.response == "2 documents. From the engine."
    assert [passage.id for passage in turn.passages] == ["d1", "d2", "n2"], "one text is in both"
    retrievals = [step for step in turn.steps if step.kind == "retriever"]
    assert [step.parent_id for step in retrievals] == [None, None]


def test_an_agent_whose_tool_is_a_query_engine(captured: Captured) -> None:
    """The agent's turn has the engine's context. The engine's question is a retrieval query."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage

    @tool
    def search(query: str) -> str:
        """Search the facts."""
        return str(engine("It was 2019.").query(query))

    def script(messages: Any) -> Any:
        if messages[-1].type == "tool":
            return ANSWER
        calls = [{"name": "search", "args": {"query": "pier year"}, "id": "1"}]
        return AIMessage("", tool_calls=calls, usage_metadata=langchain.USAGE)

    agent = create_agent(langchain.model(script), [search])
    agent.invoke({"messages": [("user", QUESTION)]})

    turn = captured.turn
    assert turn.framework == "langchain"
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert turn.retrieval_queries == ("pier year",)
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("n1", True), ("n2", True)]
    assert kinds(turn) == ["llm", "tool", "retriever", "llm", "llm"]
    called = next(step for step in turn.steps if step.kind == "tool")
    assert [step.parent_id for step in turn.steps] == [None, None, called.id, called.id, None]
    assert turn.usage is not None
    assert turn.usage.input_tokens == 120


def test_an_error_in_the_inner_framework(captured: Captured) -> None:
    """The inner step and the turn have the error."""
    failing = engine(llama_index.OutOfOrderError("overloaded"))
    with pytest.raises(llama_index.OutOfOrderError):
        (RunnableLambda(lambda question: str(failing.query(question))) | StrOutputParser()).invoke(QUESTION)

    turn = captured.turn
    assert turn.status == "error"
    assert [passage.id for passage in turn.passages] == ["n1", "n2"]
    assert [(step.kind, step.error.type) for step in turn.steps if step.error] == [("llm", "OutOfOrderError")]


def test_a_stream_of_the_inner_framework(captured: Captured) -> None:
    """A chain passes on the stream of a query engine."""

    def pieces(questions: Any) -> Any:
        for question in questions:
            yield from engine(streaming=True).query(question).response_gen

    from langchain_core.runnables import RunnableGenerator

    assert "".join(RunnableGenerator(pieces).stream(QUESTION)) == ANSWER

    turn = captured.turn
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert [passage.id for passage in turn.passages] == ["n1", "n2"]
    assert kinds(turn) == ["retriever", "llm"]
    assert turn.timing is not None
    assert turn.timing.time_to_first_token is not None


def test_a_handler_for_one_chain_gets_the_whole_turn(captured: Captured) -> None:
    """The turn includes what LlamaIndex does inside the chain."""
    own = InMemoryExporter()
    handler = CallbackHandler(metrics=[], exporters=[own])
    RunnableLambda(lambda question: str(engine().query(question))).invoke(QUESTION, {"callbacks": [handler]})
    assert handler.flush(10)

    [evaluation] = own.evaluations
    assert [passage.id for passage in evaluation.turn.passages] == ["n1", "n2"]
    assert captured.turns == []


# --------------------------------------------------------------------------- LlamaIndex around LangChain


class LangChainModel(CustomLLM):
    """LlamaIndex's model class around a chat model of LangChain, as in LlamaIndex's own integration."""

    model: Any

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.model.invoke(prompt).text)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return self._pieces(prompt)

    def _pieces(self, prompt: str) -> Any:
        text = ""
        for chunk in self.model.stream(prompt):
            text += chunk.text
            yield CompletionResponse(text=text, delta=chunk.text)


@pytest.mark.parametrize("way", ["query", "aquery", "stream"])
def test_a_query_engine_with_a_model_of_langchain(captured: Captured, way: str) -> None:
    """The call counts once, with the tokens and the name that only the inner class knows."""
    asked = RetrieverQueryEngine.from_args(
        llama_index.ScriptedRetriever(nodes),
        llm=LangChainModel(model=langchain.model(ANSWER)),
        streaming=way == "stream",
    )
    asyncio.run(asked.aquery(QUESTION)) if way == "aquery" else str(asked.query(QUESTION))

    turn = captured.turn
    assert turn.framework == "llama_index"
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert kinds(turn) == ["retriever", "llm"]
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.source) == (40, "provider")
    assert turn.model == "scripted-1-2026"
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("n1", True), ("n2", True)]


class ChainFlow(Workflow):
    """A workflow of LlamaIndex whose step runs a chain of LangChain."""

    chain: Any = None

    @step
    async def answer(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await self.chain.ainvoke(ev.question))


def test_a_workflow_that_runs_a_chain(captured: Captured) -> None:
    """The workflow is the turn, with the chain's documents and model call."""

    async def main() -> None:
        flow = ChainFlow()
        flow.chain = langchain.lcel(ANSWER)
        await flow.run(question=QUESTION)

    asyncio.run(main())

    turn = captured.turn
    assert turn.framework == "llama_index"
    assert turn.name == "ChainFlow"
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True), ("d2", True)]
    assert kinds(turn) == ["retriever", "llm"]
    assert turn.prompt[-1].content == QUESTION


def test_three_layers(captured: Captured) -> None:
    """A function of LlamaIndex around a chain of LangChain around a query engine with a model of LangChain."""
    model = LangChainModel(model=langchain.model(ANSWER))
    asked = RetrieverQueryEngine.from_args(llama_index.ScriptedRetriever(nodes), llm=model)
    chain = RunnableLambda(lambda question: str(asked.query(question))) | StrOutputParser()

    @get_dispatcher().span
    def answer(question: str) -> str:
        return chain.invoke(question)

    answer(QUESTION)

    turn = captured.turn
    assert turn.name == "answer"
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert kinds(turn) == ["retriever", "llm"]
    assert turn.usage is not None
    assert turn.usage.input_tokens == 40
    assert turn.model == "scripted-1-2026"


# --------------------------------------------------------------------------- side by side


SIDE_BY_SIDE: list[Callable[[], Any]] = [
    lambda: langchain.lcel(ANSWER).invoke(QUESTION),
    lambda: engine().query(QUESTION),
]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["LangChain first", "LlamaIndex first"])
def test_one_after_the_other(captured: Captured, order: tuple[int, int]) -> None:
    """Calls that are not nested are two turns."""
    for position in order:
        SIDE_BY_SIDE[position]()

    names = ["langchain", "llama_index"]
    assert [turn.framework for turn in captured.turns] == [names[position] for position in order]
    assert len(shared_recorder()) == 0


def test_steps_of_every_kind(captured: Captured) -> None:
    """With ``spans="all"`` all runs of both frameworks are steps, each below the run around it."""
    import rageval_hooks

    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], spans="all") as handle:
        (RunnableLambda(lambda question: str(engine().query(question))) | StrOutputParser()).invoke(QUESTION)
        handle.flush(10)

    [evaluation] = exporter.evaluations
    steps = {step.name: step for step in evaluation.turn.steps}
    assert steps["RetrieverQueryEngine"].parent_id == steps["RunnableLambda"].id
    assert {"ScriptedRetriever", "CompactAndRefine", "StrOutputParser"} <= steps.keys()
    known = {step.id for step in evaluation.turn.steps}
    assert all(step.parent_id is None or step.parent_id in known for step in evaluation.turn.steps)
