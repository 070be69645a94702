"""The passages of a turn: the documents in the final prompt, wherever they came from, and the retrieved ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_classic.chains import load_summarize_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.chains.question_answering import load_qa_chain
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import FACTS, PROMPT, join, model, retriever

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


@pytest.fixture(params=["at once", "later"])
def captured(request: pytest.FixtureRequest) -> Iterator[Captured]:
    """An instrumented process whose turns are built at once, or later from copies."""
    exporter = InMemoryExporter()
    asked = {"on_evaluation": lambda evaluation: None} if request.param == "at once" else {}
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], **asked) as handle:  # type: ignore[arg-type]
        yield Captured(handle, exporter)
        handle.flush(10)
    assert len(shared_recorder()) == 0, "runs are left in the table"
    assert handle.stats()["internal_errors"] == 0


def marks(turn: Turn) -> dict[str | None, bool | None]:
    return {passage.id or passage.text: passage.in_prompt for passage in turn.passages}


class TestHandedIn:
    """The application has searched before it calls the chain."""

    def test_documents_in_the_input(self, captured: Captured) -> None:
        """A prompt and a model are called with documents."""
        (PROMPT | model() | StrOutputParser()).invoke({"context": FACTS, "question": QUESTION})

        turn = captured.turn
        assert (turn.query, turn.response, marks(turn)) == (QUESTION, ANSWER, {"d1": True, "d2": True})
        assert turn.is_rag

    def test_create_stuff_documents_chain(self, captured: Captured) -> None:
        """The chain is called directly."""
        create_stuff_documents_chain(model(), PROMPT).invoke({"context": FACTS, "question": QUESTION})

        assert marks(captured.turn) == {"d1": True, "d2": True}

    @pytest.mark.filterwarnings("ignore:This class is deprecated", "ignore:This function is deprecated")
    @pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
    def test_load_qa_chain(self, captured: Captured) -> None:
        """The legacy chain has the documents under ``input_documents``."""
        load_qa_chain(model()).invoke({"input_documents": FACTS, "question": QUESTION})

        turn = captured.turn
        assert (turn.query, turn.response, marks(turn)) == (QUESTION, ANSWER, {"d1": True, "d2": True})

    def test_documents_that_are_handed_in_but_not_used(self, captured: Captured) -> None:
        """A state may have documents of an earlier turn, which the model did not see."""
        old = Document(id="old", page_content="Cows like clover, as everyone knows.")
        chain = RunnablePassthrough.assign(context=lambda given: retriever().invoke(given["question"]))
        (chain | PROMPT | model()).invoke({"documents": [old], "question": QUESTION})

        assert marks(captured.turn) == {"d1": True, "d2": True}

    def test_a_prompt_alone_is_not_a_rag_turn(self, captured: Captured) -> None:
        """A prompt without a model has no answer."""
        PROMPT.invoke({"context": FACTS, "question": QUESTION})

        assert not captured.turn.is_rag


class Corrective(TypedDict, total=False):
    question: str
    documents: list[Document]
    web: Document
    answer: str


def corrective(*nodes: Any) -> Any:
    return StateGraph(Corrective).add_sequence(list(nodes)).add_edge(START, nodes[0].__name__).compile()


def retrieve(state: Corrective) -> Any:
    return {"documents": retriever().invoke(state["question"])}


def grade(state: Corrective) -> Any:
    for document in state["documents"]:
        model('{"score": "no"}').invoke(f"Is this relevant? {document.page_content}")
    return {"documents": []}


WEB = Document(page_content="The town's site: the pier was opened in 2019 by the mayor.", metadata={"url": "https://x"})


def test_documents_that_are_graded_away_and_replaced(captured: Captured) -> None:
    """Corrective RAG: the web page is in the prompt; the dropped documents are kept and marked."""

    def search_web(state: Corrective) -> Any:
        return {"documents": [*state["documents"], WEB]}

    def generate(state: Corrective) -> Any:
        prompt = PROMPT.invoke({"context": join(state["documents"]), "question": state["question"]})
        return {"answer": model().invoke(prompt).text}

    corrective(retrieve, grade, search_web, generate).invoke({"question": QUESTION})

    turn = captured.turn
    assert marks(turn) == {"d1": False, "d2": False, WEB.page_content: True}
    assert [passage.text for passage in turn.prompt_passages] == [WEB.page_content]


def test_a_single_document_in_a_field_of_the_state(captured: Captured) -> None:
    """A field may hold one document instead of a list."""

    def search_web(state: Corrective) -> Any:
        return {"web": WEB}

    def generate(state: Corrective) -> Any:
        prompt = PROMPT.invoke({"context": state["web"].page_content, "question": state["question"]})
        return {"answer": model().invoke(prompt).text}

    corrective(search_web, generate).invoke({"question": QUESTION})

    assert marks(captured.turn) == {WEB.page_content: True}


@pytest.mark.parametrize("kind", ["map_reduce", "refine"])
@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
def test_passages_that_only_intermediate_calls_saw(captured: Captured, kind: str) -> None:
    """In map-reduce and refine chains, passages count as shown if the text of their call reached the final prompt."""

    def summarize(messages: list[Any]) -> str:
        text = messages[-1].content
        if "ferry" in text and "pier was opened" not in text:
            return "Summary: the ferry takes 18 minutes."
        return "Summary: the pier was opened in 2019." if "pier was opened in 2019." in text else "All in all: both."

    chain: Any = load_summarize_chain(model(summarize, custom_get_token_ids=lambda text: [1, 2]), chain_type=kind)
    chain.invoke({"input_documents": FACTS})

    assert marks(captured.turn) == {"d1": True, "d2": True}


def test_a_grader_has_not_contributed(captured: Captured) -> None:
    """Passages that only a grader saw are not marked as shown."""

    def keep_relevant(documents: list[Document]) -> list[Document]:
        grader = model(lambda messages: "yes" if "pier" in messages[-1].content else "no")
        return [one for one in documents if grader.invoke(one.page_content).text == "yes"]

    chain: Any = {"context": retriever() | keep_relevant | join, "question": RunnablePassthrough()}
    (chain | PROMPT | model()).invoke(QUESTION)

    assert marks(captured.turn) == {"d1": True, "d2": False}


QUOTES = Document(id="q", page_content="The mayor's note says \"opened in 2019\".\nIt isn't signed.")


@pytest.mark.parametrize(
    "write",
    [
        lambda documents: documents,
        lambda documents: str(documents[0].page_content.__repr__()),
        lambda documents: documents[0].model_dump_json(),
        lambda documents: f"<doc>{documents[0].page_content.replace('&', '&amp;')}</doc>",
    ],
    ids=["raw documents", "repr", "JSON", "XML"],
)
def test_documents_however_they_are_written_into_the_prompt(captured: Captured, write: Any) -> None:
    """``{"context": retriever}`` writes the ``repr`` of the documents, with escaped quotes."""
    ({"context": retriever([QUOTES]) | write, "question": RunnablePassthrough()} | PROMPT | model()).invoke(QUESTION)

    assert marks(captured.turn) == {"q": True}


@pytest.mark.parametrize("score_first", [False, True])
def test_the_order_and_scores_of_a_reranking_function(captured: Captured, score_first: bool) -> None:
    """A function after the retriever returns (document, score) pairs, or (score, document) pairs."""

    def rerank(documents: list[Document]) -> list[Any]:
        pairs = [(documents[1], 0.99), (documents[0], 0.12)]
        return [pair[::-1] for pair in pairs] if score_first else pairs

    def show(pairs: list[Any]) -> str:
        return join([one for pair in pairs for one in pair if isinstance(one, Document)])

    ({"context": retriever() | rerank | show, "question": RunnablePassthrough()} | PROMPT | model()).invoke(QUESTION)

    assert [(passage.id, passage.score) for passage in captured.turn.passages] == [("d2", 0.99), ("d1", 0.12)]


def test_a_copy_that_gets_an_id_is_the_same_passage(captured: Captured) -> None:
    """A function numbers the documents that the retriever returned without ids."""

    def number(documents: list[Document]) -> list[Document]:
        return [Document(id=str(at), page_content=one.page_content) for at, one in enumerate(documents)]

    found = [Document(fact.page_content) for fact in FACTS]
    chain = {"context": retriever(found) | number | join, "question": RunnablePassthrough()} | PROMPT | model()
    chain.invoke(QUESTION)

    assert [passage.text for passage in captured.turn.passages] == [fact.page_content for fact in FACTS]


def test_scores_that_a_function_writes_into_the_documents(captured: Captured) -> None:
    """The documents are those that the retriever returned, without scores."""

    def rerank(documents: list[Document]) -> list[Document]:
        documents[0].metadata["score"] = 0.12
        documents[1].metadata["score"] = 0.99
        return documents[::-1]

    found = [Document(id=fact.id, page_content=fact.page_content) for fact in FACTS]
    chain = {"context": retriever(found) | rerank | join, "question": RunnablePassthrough()} | PROMPT | model()
    chain.invoke(QUESTION)

    assert [(passage.id, passage.score) for passage in captured.turn.passages] == [("d2", 0.99), ("d1", 0.12)]


@tool
def search(query: str) -> str:
    """Search the handbook."""
    return join(retriever().invoke(query))


@tool(response_format="content_and_artifact")
def search_with_artifact(query: str) -> Any:
    """Search the handbook."""
    return join(FACTS), FACTS


def call(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-of-{name}"}])


def searching_agent(search: Any, answer: str = ANSWER, **fields: Any) -> Any:
    """Return an agent that searches for the first question of a conversation only."""

    def script(messages: list[Any]) -> Any:
        if any(isinstance(message, ToolMessage) for message in messages):
            return answer
        return call(search.name, query="pier opening")

    return create_agent(model(script), [search], **fields)


def test_a_sub_agent_that_is_a_tool(captured: Captured) -> None:
    """The passages of the inner agent's prompt are the passages of the turn."""
    inner = searching_agent(search, "The handbook says that it was in 2019.")

    @tool
    def ask_expert(question: str) -> str:
        """Ask the expert."""
        return str(inner.invoke({"messages": [("human", question)]})["messages"][-1].text)

    def script(messages: list[Any]) -> Any:
        if isinstance(messages[-1], ToolMessage):
            return "My expert is sure: 2019."
        return call("ask_expert", question=QUESTION)

    create_agent(model(script), [ask_expert]).invoke({"messages": [("human", QUESTION)]})

    turn = captured.turn
    assert turn.response == "My expert is sure: 2019."
    assert marks(turn) == {"d1": True, "d2": True}


@pytest.mark.parametrize(
    "searching",
    [search, search_with_artifact, create_retriever_tool(retriever(), "find", "Search.")],
    ids=["text", "artifact", "retriever tool"],
)
def test_a_follow_up_that_is_answered_from_an_earlier_tool_message(captured: Captured, searching: Any) -> None:
    """The passages of the earlier search are in the prompt, so the follow-up has them too."""
    agent = searching_agent(searching, checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke({"messages": [("human", QUESTION)]}, config)
    agent.invoke({"messages": [("human", "Are you sure?")]}, config)

    first, follow_up = captured.turns
    assert marks(first) == {"d1": True, "d2": True}
    assert (follow_up.query, marks(follow_up)) == ("Are you sure?", {"d1": True, "d2": True})
    assert follow_up.retrieval_queries == ()


def test_the_queries_of_tools_that_return_artifacts(captured: Captured) -> None:
    """The arguments of such tools are retrieval queries."""
    searching_agent(search_with_artifact).invoke({"messages": [("human", QUESTION)]})

    assert captured.turn.retrieval_queries == ("pier opening",)


def test_a_tool_that_answers_directly(captured: Captured) -> None:
    """Without a final prompt, its passages stay unmarked."""

    @tool(return_direct=True)
    def direct(query: str) -> str:
        """Answer from the handbook."""
        return "As it says there: " + join(retriever().invoke(query))

    create_agent(model(call("direct", query="pier")), [direct]).invoke({"messages": [("human", QUESTION)]})

    assert marks(captured.turn) == {"d1": None, "d2": None}


def test_a_search_tool_that_returns_only_text() -> None:
    """The text of a tool that is named in ``search_tools`` is a passage."""

    @tool
    def web_search(query: str) -> str:
        """Search the web."""
        return "The pier was opened in 2019, says the town's site."

    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], search_tools=["web_search"]) as handle:
        searching_agent(web_search).invoke({"messages": [("human", QUESTION)]})
        assert handle.flush(10)

    [turn] = [evaluation.turn for evaluation in exporter.evaluations]
    assert marks(turn) == {"The pier was opened in 2019, says the town's site.": True}
    assert turn.retrieval_queries == ("pier opening",)


def test_documents_in_a_prompt_that_middleware_writes(captured: Captured) -> None:
    """This is the RAG chain of LangChain's tutorial, with a retriever."""

    @dynamic_prompt
    def with_context(request: Any) -> str:
        return "Use this:\n" + join(retriever().invoke(request.state["messages"][-1].text))

    create_agent(model(), [], middleware=[with_context]).invoke({"messages": [HumanMessage(QUESTION)]})

    assert marks(captured.turn) == {"d1": True, "d2": True}


def test_a_function_that_searches_and_answers(captured: Captured) -> None:
    """The function returns its documents together with the answer."""

    def answer(question: str) -> Any:
        documents = [document.model_copy() for document in FACTS]
        text = model().invoke(f"{question} {join(documents)}").text
        return {"answer": text, "sources": documents}

    RunnableLambda(answer).invoke(QUESTION)

    turn = captured.turn
    assert (turn.response, marks(turn)) == (ANSWER, {"d1": True, "d2": True})


def test_an_answer_in_a_message_that_a_graph_takes_for_a_persons(captured: Captured) -> None:
    """A graph makes a human message of the text in ``{"messages": [text]}``."""
    from langgraph.graph import MessagesState
    from langgraph.prebuilt import ToolNode

    def decide(state: Any) -> Any:
        return {"messages": [model(call("search", query="pier")).invoke(state["messages"])]}

    def generate(state: Any) -> Any:
        prompt = ChatPromptTemplate.from_template("Use this: {context}. {question}")
        chain = prompt | model() | StrOutputParser()
        messages = state["messages"]
        return {"messages": [chain.invoke({"context": messages[-1].content, "question": messages[0].content})]}

    builder: Any = StateGraph(MessagesState).add_node("decide", decide).add_node("tools", ToolNode([search]))
    builder.add_node("generate", generate).add_edge(START, "decide").add_edge("decide", "tools")
    builder.add_edge("tools", "generate")
    builder.compile().invoke({"messages": [("human", QUESTION)]})

    turn = captured.turn
    assert (turn.query, turn.response, marks(turn)) == (QUESTION, ANSWER, {"d1": True, "d2": True})


@pytest.mark.parametrize("schema", ["pydantic", "mapping"])
def test_a_structured_response_that_the_provider_writes_as_json(captured: Captured, schema: str) -> None:
    """The response is the field ``answer``, not the whole JSON."""
    from langchain.agents.structured_output import ProviderStrategy
    from pydantic import BaseModel
    from typing_extensions import TypedDict as CheckedDict

    class Reply(BaseModel):
        """The reply."""

        answer: str
        sources: list[str]

    class ReplyMapping(CheckedDict):
        """The reply."""

        answer: str
        sources: list[str]

    reply = '{"answer": "It was opened in 2019.", "sources": ["d1"]}'
    wanted: Any = Reply if schema == "pydantic" else ReplyMapping
    agent: Any = searching_agent(search, reply, response_format=ProviderStrategy(wanted))
    agent.invoke({"messages": [("human", QUESTION)]})

    turn = captured.turn
    assert (turn.response, marks(turn)) == (ANSWER, {"d1": True, "d2": True})


def test_a_chain_that_only_searches_has_no_answer(captured: Captured) -> None:
    """A model writes the query (HyDE, multi-query), and the chain returns documents."""
    (PROMPT | model("pier opening year") | StrOutputParser() | retriever()).invoke(
        {"context": "", "question": QUESTION}
    )

    turn = captured.turn
    assert (turn.query, turn.response, turn.retrieval_queries) == (QUESTION, "", ("pier opening year",))
