"""Chains, retrievers within retrievers, agents and graphs, as applications build them."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever, MultiQueryRetriever
from langchain_classic.retrievers.document_compressors.base import BaseDocumentCompressor
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import FACTS, PROMPT, ScriptedRetriever, join, lcel, model, retriever

QUESTION = "When was the pier opened?"


def ids(turn: Turn) -> list[str | None]:
    return [passage.id for passage in turn.passages]


def kinds(turn: Turn) -> list[str]:
    return [step.kind for step in turn.steps]


class KeepFirst(BaseDocumentCompressor):
    """Keep the best document, with a new score."""

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> list[Document]:
        first = documents[0]
        return [Document(id=first.id, page_content=first.page_content, metadata={"relevance_score": 0.99})]


class TestChains:
    def test_create_retrieval_chain(self, captured: Captured) -> None:
        """The chain has the question under ``input`` and the answer under ``answer``."""
        prompt = ChatPromptTemplate.from_messages([("system", "Use this:\n{context}"), ("human", "{input}")])
        chain = create_retrieval_chain(retriever(), create_stuff_documents_chain(model("In 2019."), prompt))
        chain.invoke({"input": QUESTION})

        turn = captured.turn
        assert (turn.query, turn.response, turn.name) == (QUESTION, "In 2019.", "retrieval_chain")
        assert ids(turn) == ["d1", "d2"]
        assert kinds(turn) == ["retriever", "llm"]

    def test_two_retrievers_in_parallel(self, captured: Captured) -> None:
        """Both retrievers contribute passages; a document that both found is one passage."""
        other = retriever([FACTS[0], Document(id="d3", page_content="Bus 14 runs to the quay.")])
        chain = (
            RunnableParallel(
                context=RunnableParallel(a=retriever() | join, b=other | join)
                | (lambda found: found["a"] + found["b"]),
                question=RunnablePassthrough(),
            )
            | PROMPT
            | model("In 2019.")
        )
        chain.invoke(QUESTION)

        turn = captured.turn
        assert sorted(map(str, ids(turn))) == ["d1", "d2", "d3"]
        assert kinds(turn).count("retriever") == 2

    def test_a_function_that_calls_a_retriever(self, captured: Captured) -> None:
        """A retriever that a function calls belongs to the turn."""

        def answer(question: str) -> str:
            documents = retriever().invoke(question)
            return (PROMPT | model("In 2019.")).invoke({"context": join(documents), "question": question}).text

        assert RunnableLambda(answer).invoke(QUESTION) == "In 2019."

        turn = captured.turn
        assert ids(turn) == ["d1", "d2"]
        assert turn.response == "In 2019."

    def test_a_function_that_searches_by_itself(self, captured: Captured) -> None:
        """A function that returns documents is a retrieval. A later one may reorder them."""
        chain = (
            {
                "context": RunnableLambda(lambda question: FACTS) | RunnableLambda(lambda found: found[::-1]) | join,
                "question": RunnablePassthrough(),
            }
            | PROMPT
            | model("In 2019.")
        )
        chain.invoke(QUESTION)

        turn = captured.turn
        assert ids(turn) == ["d2", "d1"]
        assert kinds(turn) == ["retriever", "llm"]

    def test_a_chain_without_retrieval(self, captured: Captured) -> None:
        """The turn is traced, and counted as not evaluated."""
        chain = ChatPromptTemplate.from_template("Say hello to {name}") | model("Hello!") | StrOutputParser()
        chain.invoke({"name": "Marta"})

        turn = captured.turn
        assert not turn.has_retrieval
        assert kinds(turn) == ["llm"]
        assert captured.handle.stats()["without_retrieval"] == 1
        assert captured.handle.stats()["evaluated"] == 0

    def test_a_retriever_on_its_own_is_no_turn_that_is_evaluated(self, captured: Captured) -> None:
        """A retriever that is called directly has no answer to evaluate."""
        retriever().invoke(QUESTION)

        turn = captured.turn
        assert ids(turn) == ["d1", "d2"]
        assert not turn.is_rag
        assert captured.handle.stats()["evaluated"] == 0

    def test_a_search_tool_on_its_own_is_no_turn_that_is_evaluated(self, captured: Captured) -> None:
        """What a tool returns to the application's own code is not an answer."""

        @tool
        def search(query: str) -> str:
            """Search."""
            return "\n".join(document.page_content for document in retriever().invoke(query))

        search.invoke(QUESTION)

        turn = captured.turn
        assert ids(turn) == ["d1", "d2"]
        assert turn.response == ""
        assert captured.handle.stats()["evaluated"] == 0

    def test_a_retrieval_without_results_is_a_turn(self, captured: Captured) -> None:
        """A turn counts as RAG even if its retriever found nothing."""
        lcel("I do not know.", documents=[]).invoke(QUESTION)

        assert captured.turn.passages == ()
        assert captured.turn.is_rag


class TestRetrieversWithinRetrievers:
    def test_compression(self, captured: Captured) -> None:
        """The context is what the outer retriever let through. The step of the inner one keeps all that it found."""
        outer = ContextualCompressionRetriever(base_retriever=retriever(), base_compressor=KeepFirst())
        (
            RunnablePassthrough() | {"context": outer | join, "question": RunnablePassthrough()} | PROMPT | model()
        ).invoke(QUESTION)

        turn = captured.turn
        assert [(passage.id, passage.score) for passage in turn.passages] == [("d1", 0.99)]
        assert [[passage.id for passage in step.passages] for step in turn.steps if step.kind == "retriever"] == [
            ["d1"],
            ["d1", "d2"],
        ]

    def test_ensemble(self, captured: Captured) -> None:
        """The context is the merged list of the ensemble."""
        third = Document(id="d3", page_content="Bus 14 runs to the quay.")
        outer = EnsembleRetriever(retrievers=[retriever([FACTS[1]]), retriever([FACTS[1], third])], weights=[0.5, 0.5])
        ({"context": outer | join, "question": RunnablePassthrough()} | PROMPT | model()).invoke(QUESTION)

        turn = captured.turn
        assert ids(turn) == ["d2", "d3"]
        assert kinds(turn).count("retriever") == 3

    def test_multi_query(self, captured: Captured) -> None:
        """The rewritten queries are kept. The model that wrote them is not the one that answered."""
        rewriting = model("opening date of the pier\nyear when the pier opened")
        outer = MultiQueryRetriever.from_llm(retriever=retriever(), llm=rewriting)
        ({"context": outer | join, "question": RunnablePassthrough()} | PROMPT | model("In 2019.")).invoke(QUESTION)

        turn = captured.turn
        assert turn.query == QUESTION
        assert set(turn.retrieval_queries) == {"opening date of the pier", "year when the pier opened"}
        assert turn.response == "In 2019."
        assert ids(turn) == ["d1", "d2"]
        assert [message.role for message in turn.prompt] == ["system", "user"]
        # The call inside the retriever is part of the search.
        answering = turn.steps[-1]
        assert (answering.kind, kinds(turn).count("llm")) == ("llm", 2)
        assert turn.timing is not None
        assert turn.timing.generation == pytest.approx((answering.ended_at - answering.started_at) / 1e9)

    def test_a_rewritten_query(self, captured: Captured) -> None:
        """The query of the retriever is kept if it differs from the question."""
        rewrite = RunnableLambda(lambda question: "pier opening year")
        ({"context": rewrite | retriever() | join, "question": RunnablePassthrough()} | PROMPT | model()).invoke(
            QUESTION
        )

        assert captured.turn.query == QUESTION
        assert captured.turn.retrieval_queries == ("pier opening year",)


class TestWhatTheModelWasShown:
    LONG = Document(id="long", page_content=" ".join(f"word{number}" for number in range(400)))

    def run(self, captured: Captured, show: Any, documents: Any = None) -> Turn:
        documents = documents or [*FACTS, self.LONG]
        ({"context": retriever(documents) | show, "question": RunnablePassthrough()} | PROMPT | model()).invoke(
            QUESTION
        )
        return captured.turn

    def test_all(self, captured: Captured) -> None:
        """A passage whose whole text is in the prompt is marked as shown."""
        turn = self.run(captured, join)

        assert [(passage.in_prompt, passage.prompt_share) for passage in turn.passages] == [(True, 1.0)] * 3

    def test_dropped(self, captured: Captured) -> None:
        """A passage that was dropped before the prompt is marked as not shown."""
        turn = self.run(captured, lambda documents: documents[0].page_content)

        assert [passage.in_prompt for passage in turn.passages] == [True, False, False]
        assert [passage.prompt_share for passage in turn.passages] == [1.0, 0.0, 0.0]

    @pytest.mark.parametrize("cut", [slice(0, 800), slice(-800, None)], ids=["its beginning", "its end"])
    def test_cut(self, captured: Captured, cut: slice) -> None:
        """A passage that was cut has the share of its text that is in the prompt."""
        turn = self.run(captured, lambda documents: documents[0].page_content[cut], [self.LONG])

        [passage] = turn.passages
        assert passage.in_prompt is False
        assert passage.prompt_share == pytest.approx(800 / len(self.LONG.page_content), abs=0.005)

    def test_white_space_does_not_matter(self, captured: Captured) -> None:
        """A template may indent and wrap the text of a passage."""
        turn = self.run(
            captured, lambda documents: "\n\n".join(d.page_content.replace(" ", "\n   ") for d in documents)
        )

        assert all(passage.in_prompt for passage in turn.passages)

    def test_no_model_no_mark(self, captured: Captured) -> None:
        """Without a model call the passages are not marked."""
        (retriever() | RunnableLambda(lambda documents: "In 2019.")).invoke(QUESTION)

        assert [passage.in_prompt for passage in captured.turn.passages] == [None, None]


def searching_agent(search: Any, **fields: Any) -> Any:
    """An agent that searches once and then answers."""

    def script(messages: list[Any]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("In 2019.", usage_metadata={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7})
        call = {"name": "search", "args": {"query": "pier opening"}, "id": "call-1"}
        return AIMessage(
            "", tool_calls=[call], usage_metadata={"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
        )

    return create_agent(model(script), [search], **fields)


@tool(response_format="content_and_artifact")
def search(query: str) -> Any:
    """Search the handbook."""
    return join(FACTS), FACTS


class TestAgents:
    @pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
    def test_an_agent_with_a_retriever_tool(self, captured: Captured, way: str) -> None:
        """The turn has the question, the passages, the last answer and the tokens of both model calls."""
        if way.startswith("a") and sys.version_info < (3, 11):
            pytest.skip("on Python 3.10 LangChain's own retriever tool does not know its parent: see docs/capture.md")
        agent = searching_agent(create_retriever_tool(retriever(), "search", "Search the handbook."))
        state = {"messages": [("human", QUESTION)]}

        async def read() -> None:
            async for _ in agent.astream(state):
                pass

        if way == "invoke":
            agent.invoke(state)
        elif way == "stream":
            list(agent.stream(state))
        else:
            asyncio.run(agent.ainvoke(state) if way == "ainvoke" else read())

        turn = captured.turn
        assert (turn.query, turn.response) == (QUESTION, "In 2019.")
        assert ids(turn) == ["d1", "d2"]
        assert all(passage.in_prompt for passage in turn.passages)
        assert turn.retrieval_queries == ("pier opening",)
        assert kinds(turn) == ["llm", "tool", "retriever", "llm"]
        assert turn.usage is not None
        assert (turn.usage.input_tokens, turn.usage.output_tokens) == (8, 3)
        names = {step.id: step.kind for step in turn.steps}
        assert [names.get(str(step.parent_id)) for step in turn.steps] == [None, None, "tool", None]

    def test_a_tool_that_returns_documents_beside_its_text(self, captured: Captured) -> None:
        """A tool that searches a vector store and returns the documents as its artifact is a retrieval."""
        searching_agent(search).invoke({"messages": [("human", QUESTION)]})

        turn = captured.turn
        assert ids(turn) == ["d1", "d2"]
        assert [step.kind for step in turn.steps if step.passages] == ["tool"]
        assert turn.is_rag

    def test_an_agent_whose_stream_is_closed_early(self, captured: Captured) -> None:
        """The turn has the status ``cancelled``."""
        stream = searching_agent(search).stream({"messages": [("human", QUESTION)]})
        next(stream)
        stream.close()

        assert captured.turn.status == "cancelled"

    def test_a_thread_is_a_session(self, captured: Captured) -> None:
        """The ``thread_id`` of a checkpointed graph is the session id. Each message is one turn of the session."""
        agent = searching_agent(search, checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "thread-7"}, "metadata": {"user_id": "marta"}}
        for question in (QUESTION, "And the ferry?"):
            agent.invoke({"messages": [("human", question)]}, config)

        assert [(turn.session_id, turn.user_id, turn.query) for turn in captured.turns] == [
            ("thread-7", "marta", QUESTION),
            ("thread-7", "marta", "And the ferry?"),
        ]

    @pytest.mark.filterwarnings("ignore:The v3 streaming protocol")  # LangGraph's own word on its new interface
    def test_protocol_events(self, captured: Captured) -> None:
        """``stream_events(version="v3")`` streams protocol events. The first text gives the first token."""
        stream = searching_agent(search).stream_events({"messages": [("human", QUESTION)]}, version="v3")
        assert stream.output["messages"][-1].text == "In 2019."

        turn = captured.turn
        assert turn.response == "In 2019."
        assert turn.timing is not None
        assert turn.timing.time_to_first_token is not None


class State(TypedDict):
    question: str
    documents: list[Document]
    answer: str


def graph(approve: Any = None) -> Any:
    """A graph of three nodes: retrieve, perhaps ask a person, answer."""

    def find(state: State) -> Any:
        return {"documents": retriever().invoke(state["question"])}

    def wait(state: State) -> Any:
        interrupt("go on?")
        return {}

    def write(state: State) -> Any:
        prompt = PROMPT.invoke({"context": join(state["documents"]), "question": state["question"]})
        return {"answer": model("In 2019.").invoke(prompt).text}

    builder = StateGraph(State)
    builder.add_node("find", find)
    builder.add_node("write", write)
    builder.add_edge(START, "find")
    if approve:
        builder.add_node("wait", wait)
        builder.add_edge("find", "wait")
        builder.add_edge("wait", "write")
    else:
        builder.add_edge("find", "write")
    builder.add_edge("write", END)
    return builder.compile(checkpointer=InMemorySaver() if approve else None)


class TestGraphs:
    def test_a_graph(self, captured: Captured) -> None:
        """The question, the passages and the answer are read from the graph's state."""
        graph().invoke({"question": QUESTION})

        turn = captured.turn
        assert (turn.query, turn.response) == (QUESTION, "In 2019.")
        assert ids(turn) == ["d1", "d2"]

    def test_an_interrupt_is_no_error(self, captured: Captured) -> None:
        """A graph that waits for a person has no error, and neither do its steps."""
        compiled = graph(approve=True)
        config: Any = {"configurable": {"thread_id": "1"}}
        compiled.invoke({"question": QUESTION}, config)

        turn = captured.turn
        assert (turn.status, turn.error, turn.response) == ("interrupted", None, "")
        assert not [step for step in turn.steps if step.error]


def test_a_retriever_that_is_asked_again_and_again(captured: Captured) -> None:
    """A passage that is retrieved several times counts once."""
    counting = ScriptedRetriever(find=lambda query: FACTS)

    def ask(question: str) -> str:
        for number in range(5):
            counting.invoke(f"{question} {number}")
        return "In 2019."

    RunnableLambda(ask).invoke(QUESTION)

    assert ids(captured.turn) == ["d1", "d2"]
    assert len(captured.turn.retrieval_queries) == 5


def test_the_call_that_wrote_most_of_the_answer_had_its_passages(captured: Captured) -> None:
    """A later call has added a line, and the last one has only graded the result."""

    def ask(question: str) -> str:
        given = {"context": join(retriever().invoke(question)), "question": question}
        body = (PROMPT | model("The pier was opened in 2019, and the ferry takes 18 minutes.")).invoke(given).text
        closing = model("Have a pleasant trip to the islands!").invoke("Say goodbye").text
        model("Fully supported.").invoke("Grade it")
        return f"{body}\n\n{closing}"

    RunnableLambda(ask).invoke(QUESTION)

    assert [(passage.id, passage.in_prompt) for passage in captured.turn.passages] == [("d1", True), ("d2", True)]


def test_what_a_later_node_proposes_to_read_is_no_passage(captured: Captured) -> None:
    """Nor is what the state has of earlier turns, where a function searches and answers at once."""

    class State(TypedDict, total=False):
        question: str
        answer: str
        documents: list[Document]
        earlier: list[Document]
        proposals: list[Document]

    def respond(state: State) -> State:
        found = FACTS if state["question"] == QUESTION else [Document(id="d3", page_content="Tickets cost two euros.")]
        reply = model("In 2019.").invoke(f"{join(found)} {state['question']}").text
        return {"answer": reply, "documents": found, "earlier": state.get("documents", [])[:1]}

    def propose(state: State) -> State:
        return {"proposals": [Document(id="d4", page_content="Bus 14 runs to the quay.")]}

    builder: Any = StateGraph(State)
    builder.add_node("respond", respond).add_node("propose", propose)
    builder.add_edge(START, "respond").add_edge("respond", "propose").add_edge("propose", END)
    compiled = builder.compile(checkpointer=InMemorySaver())
    for question in (QUESTION, "What does a ticket cost?"):
        compiled.invoke({"question": question}, {"configurable": {"thread_id": "1"}})

    assert [ids(turn) for turn in captured.turns] == [["d1", "d2"], ["d3"]]
