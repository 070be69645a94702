"""Search results that are text: of tools, of functions and in fields of a state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware, wrap_tool_call
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, StateGraph
from langgraph.types import Command

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import FACTS, PROMPT, model, retriever

QUESTION = "When was the pier opened?"
PAGE = "1. Brighton pier - The pier was opened in 2019, says the town's site."
PIER = {"title": "Pier", "url": "https://a", "content": "The pier was opened in 2019.", "score": 0.8}
FERRY = {"title": "Ferry", "url": "https://b", "content": "The ferry to Quern takes 18 minutes."}
BLOCKS = [{"type": "text", "text": PIER["content"]}, {"type": "text", "text": FERRY["content"]}]


def tool_that_returns(result: Any, **options: Any) -> Any:
    @tool(**options)
    def lookup(query: str) -> Any:
        """Look it up."""
        return result() if callable(result) else result

    return lookup


def agent(*tools: Any, answer: str = "It was opened in 2019.", **options: Any) -> Any:
    """An agent that calls each tool once, then answers."""

    def script(messages: list[Any]) -> Any:
        if isinstance(messages[-1], ToolMessage):
            return answer
        calls = [
            {
                "name": one.name,
                "args": dict.fromkeys(one.tool_call_schema.model_fields, "pier"),
                "id": f"call_{one.name}",
            }
            for one in tools
        ]
        return AIMessage("", tool_calls=calls)

    return create_agent(model(script), list(tools), **options)


def ask(app: Any) -> None:
    app.invoke({"messages": [("human", QUESTION)]})


def texts(turn: Turn) -> list[str]:
    return [passage.text for passage in turn.passages]


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (PAGE, [(PAGE, None, None)]),
        ([PIER, FERRY], [(PIER["content"], "https://a", 0.8), (FERRY["content"], "https://b", None)]),
        ({"query": "pier", "results": [PIER], "response_time": 0.4}, [(PIER["content"], "https://a", 0.8)]),
        (
            {"id": 7, "text": "The pier was opened in 2019, on a Monday."},
            [("The pier was opened in 2019, on a Monday.", "7", None)],
        ),
        (
            [{"snippet": "Opened in 2019, on a Monday.", "link": "https://c"}],
            [("Opened in 2019, on a Monday.", "https://c", None)],
        ),
        (BLOCKS, [(PIER["content"], None, None), (FERRY["content"], None, None)]),
        ([{"type": "text", "text": PAGE}], [(PAGE, None, None)]),
        ([PIER["content"], FERRY["content"]], [(PIER["content"], None, None), (FERRY["content"], None, None)]),
        (["Pier", "Ferry"], [('["Pier", "Ferry"]', None, None)]),
    ],
    ids=["text", "list", "mapping", "one result", "snippets", "blocks of MCP", "one block", "texts", "names"],
)
def test_results_of_a_tool(captured: Captured, result: Any, found: list[Any]) -> None:
    """Without a setting; each result or block is a passage with its id and score."""
    ask(agent(tool_that_returns(result)))

    turn = captured.turn
    assert [(passage.text, passage.id, passage.score) for passage in turn.passages] == found
    assert turn.is_rag
    assert {passage.in_prompt for passage in turn.passages} == {True}
    assert turn.retrieval_queries == ("pier",)
    [step] = [step for step in turn.steps if step.kind == "tool"]
    assert [passage.text for passage in step.passages] == texts(turn)


def test_what_cannot_be_told_apart_is_marked(captured: Captured) -> None:
    """The metadata says which tool returned it, and that the passage is its whole output."""
    ask(agent(tool_that_returns(PAGE)))

    assert [passage.metadata for passage in captured.turn.passages] == [{"tool": "lookup", "whole_output": True}]


def test_results_in_an_artifact(captured: Captured) -> None:
    """The model saw a text that was made of them."""
    ask(agent(tool_that_returns((f"Pier: {PIER['content']}", [PIER]), response_format="content_and_artifact")))

    [passage] = captured.turn.passages
    assert (passage.text, passage.id, passage.metadata["title"]) == (PIER["content"], "https://a", "Pier")


@pytest.mark.parametrize("result", [3.1415, True, {"ok": True}, [], "", "No results found."])
def test_what_has_no_text_is_no_result(captured: Captured, result: Any) -> None:
    ask(agent(tool_that_returns(result)))

    assert (captured.turn.passages, captured.turn.is_rag) == ((), False)


def test_a_short_result_is_a_result(captured: Captured) -> None:
    ask(agent(tool_that_returns("In 2019.")))

    assert (texts(captured.turn), captured.turn.is_rag) == (["In 2019."], True)


def command(text: str, **update: Any) -> Any:
    """A tool's result that also changes the state."""

    def make(tool_call_id: str) -> Any:
        return Command(update={**update, "messages": [ToolMessage(text, tool_call_id=tool_call_id)]})

    return make


SENT = "The e-mail to Bob was sent at 10:42 and has the id 2f8c77."
CART = {"status": "ok", "cart": {"items": ["lamp"], "delivery": "within three working days"}}


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("send_mail", SENT),
        ("add_to_cart", CART),
        ("save_memory", command("Stored in long-term memory under the key user_profile: likes tea")),
        ("transfer_to_booking", command("Successfully transferred to the agent that books rooms")),
        ("calculate_total", "The sum of the two amounts is 129.00 EUR, taxes included."),
        ("get_weather", "It is sunny in Quern, with 18 degrees and a light breeze."),
    ],
)
def test_actions_and_values_are_no_results(captured: Captured, name: str, result: Any) -> None:
    """However long their texts are. The step says why, and so do the counters."""
    ask(agent(named(name, result)))

    turn = captured.turn
    assert (turn.passages, turn.is_rag) == ((), False)
    [reason] = [step.left_out for step in turn.steps if step.kind == "tool"]
    stats = captured.handle.stats()
    assert stats["tool_results_left_out"] == {f"{name}: {reason}": 1}
    assert stats["without_passages_by_reason"]["text_only_tool"] == 1


def test_a_search_may_return_a_command(captured: Captured) -> None:
    ask(agent(named("search_handbook", command(PAGE))))

    assert (texts(captured.turn), captured.turn.is_rag) == ([PAGE], True)


def named(name: str, result: Any) -> Any:
    """A tool without an argument that is a query, and without a description that tells."""

    @tool(name, description="Use it when it is needed.")
    def run(item: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        return result(tool_call_id) if callable(result) else result

    return run


def test_planning_is_no_search(captured: Captured) -> None:
    """LangChain's own middleware."""
    todo = {"name": "write_todos", "args": {"todos": [{"content": "Greet", "status": "pending"}]}, "id": "1"}
    script = [AIMessage("", tool_calls=[todo]), AIMessage("Hello! How can I help you today?")]
    chat: Any = model(lambda messages: script[isinstance(messages[-1], ToolMessage)])
    create_agent(chat, [], middleware=[TodoListMiddleware()]).invoke({"messages": [("human", "Hi, I am Ann")]})

    assert (captured.turn.passages, captured.turn.is_rag) == ((), False)


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_a_supervisor(captured: Captured) -> None:
    """The messages of its hand-offs are no results."""
    langgraph_supervisor = pytest.importorskip("langgraph_supervisor")
    greeter = create_agent(model("Hello Ann, nice to meet you."), [], name="greeter")
    call = AIMessage("", tool_calls=[{"name": "transfer_to_greeter", "args": {}, "id": "1"}])
    chat: Any = model(lambda messages: "How can I help?" if isinstance(messages[-1], ToolMessage) else call)
    langgraph_supervisor.create_supervisor([greeter], model=chat).compile().invoke({"messages": [("human", "Hi")]})

    assert (captured.turn.passages, captured.turn.is_rag) == ((), False)


def test_an_error_is_no_result(captured: Captured) -> None:
    @wrap_tool_call
    def explain(request: Any, handler: Callable[[Any], Any]) -> ToolMessage:
        text = "The search server could not be reached, please try again later."
        return ToolMessage(text, tool_call_id=request.tool_call["id"], status="error")

    ask(agent(tool_that_returns(PAGE), middleware=[explain]))

    assert captured.turn.passages == ()


def test_a_text_next_to_documents_is_no_passage(captured: Captured) -> None:
    """The weather was not searched."""

    @tool
    def search(query: str) -> str:
        """Search the handbook."""
        return "\n".join(document.page_content for document in retriever().invoke(query))

    ask(agent(search, named("get_weather", "The weather in Quern is sunny, with a light breeze from the west.")))

    assert {passage.id for passage in captured.turn.passages} == {"d1", "d2"}


def test_a_search_next_to_documents(captured: Captured) -> None:
    """A tool that searches the web found passages, too."""

    @tool
    def search(query: str) -> str:
        """Search the handbook."""
        return "\n".join(document.page_content for document in retriever().invoke(query))

    ask(agent(search, tool_that_returns(PAGE)))

    assert {passage.id or passage.text for passage in captured.turn.passages} == {"d1", "d2", PAGE}


@pytest.mark.parametrize(
    ("search_tools", "result", "found"),
    [
        ("lookup", "In 2019.", ["In 2019."]),
        ("!lookup", PAGE, []),
        ("web_search", PAGE, []),
        ("!calculator", PAGE, [PAGE]),
    ],
    ids=["named", "excluded", "another tool is named", "another tool is excluded"],
)
def test_the_setting_search_tools(search_tools: str, result: str, found: list[str]) -> None:
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], search_tools=[search_tools]) as handle:
        ask(agent(tool_that_returns(result)))
        assert handle.flush(10)

    [evaluation] = exporter.evaluations
    assert texts(evaluation.turn) == found


def test_a_sub_agent_is_no_search(captured: Captured) -> None:
    """The tool's text was written by a model. What that model read is the passage."""
    inner = agent(tool_that_returns(PAGE), answer="The site of the town says that the pier was opened in 2019.")

    def expert() -> str:
        return str(inner.invoke({"messages": [("human", QUESTION)]})["messages"][-1].text)

    ask(agent(tool(expert.__name__)(_documented(expert))))

    assert texts(captured.turn) == [PAGE]


def _documented(answer: Callable[[], str]) -> Callable[..., str]:
    def expert(query: str) -> str:
        """Ask the expert."""
        return answer()

    return expert


def search(question: str) -> str:
    return PAGE


@pytest.mark.parametrize("function", [search, lambda question: PAGE], ids=["by its name", "by the key"])
def test_functions_that_return_text(captured: Captured, function: Callable[[str], str]) -> None:
    """Their text is in the prompt of the answer."""
    chain: Any = {"context": RunnableLambda(function), "question": RunnablePassthrough()} | PROMPT | model()
    chain.invoke(QUESTION)

    turn = captured.turn
    assert (turn.query, texts(turn), turn.is_rag) == (QUESTION, [PAGE], True)
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]


def test_text_in_the_input(captured: Captured) -> None:
    """The application has searched before it calls the chain."""
    (PROMPT | model()).invoke({"context": PAGE, "question": QUESTION})

    assert (texts(captured.turn), captured.turn.is_rag) == ([PAGE], True)


class State(TypedDict, total=False):
    question: str
    content: list[str]
    context: str
    answer: str


def generate(state: State) -> Any:
    prompt = PROMPT.invoke({"context": state["context"], "question": state["question"]})
    return {"answer": model().invoke(prompt).text}


def run_graph(*nodes: Any) -> None:
    builder: Any = StateGraph(State).add_sequence([*nodes, generate])
    builder.add_edge(START, nodes[0].__name__).compile().invoke({"question": QUESTION})


def test_texts_in_the_state_of_a_graph(captured: Captured) -> None:
    """Each text of a list is a passage. The text that joins them is none."""

    def research(state: State) -> Any:
        return {"content": [PAGE, FERRY["content"]]}

    def merge(state: State) -> Any:
        return {"context": "\n\n".join(state["content"])}

    run_graph(research, merge)

    assert texts(captured.turn) == [PAGE, FERRY["content"]]


def test_web_results_that_a_node_joins_into_one_document(captured: Captured) -> None:
    """The prompt has each result once, and so has the turn."""

    def search(question: str) -> Any:
        results = tool_that_returns([PIER, FERRY]).invoke("pier")
        return {"documents": [Document("\n".join(one["content"] for one in results))], "question": question}

    chain = RunnableLambda(search) | RunnableLambda(lambda found: f"{found['documents'][0].page_content} {QUESTION}")
    (chain | model()).invoke(QUESTION)

    assert texts(captured.turn) == [PIER["content"], FERRY["content"]]
    assert {passage.from_turn for passage in captured.turn.passages} == {None}


def test_what_a_model_wrote_is_no_search_result(captured: Captured) -> None:
    """A node writes background for the answer with a model."""

    def imagine(state: State) -> Any:
        return {"context": model("Piers are usually opened in summer, with a brass band.").invoke(QUESTION).text}

    run_graph(imagine)

    assert (captured.turn.passages, captured.turn.is_rag) == ((), False)


@pytest.mark.parametrize(
    "given",
    [
        {"question": QUESTION, "style": "Answer like a friendly harbour master who has seen it all."},
        {"question": QUESTION, "context": "Cows like clover, as everyone knows who has met a cow."},
    ],
    ids=["another key", "not in the prompt"],
)
def test_other_texts_are_no_passages(captured: Captured, given: dict[str, str]) -> None:
    template = "{style} {question}" if "style" in given else "{question}"
    (ChatPromptTemplate.from_template(template) | model()).invoke(given)

    assert (captured.turn.passages, captured.turn.is_rag) == ((), False)


def test_a_tool_that_a_function_calls(captured: Captured) -> None:
    """Its output is an object in which no results can be told apart: all of it is one passage."""
    lookup = tool_that_returns({"opened": "The pier was opened in 2019.", "length in metres": 312})
    RunnableLambda(lambda question: model().invoke(json.dumps(lookup.invoke("pier")) + question)).invoke(QUESTION)

    [passage] = captured.turn.passages
    assert "The pier was opened in 2019." in passage.text
    assert (passage.in_prompt, passage.metadata) == (True, {"tool": "lookup", "whole_output": True})


def test_a_prompt_that_a_function_writes_is_no_search_result(captured: Captured) -> None:
    """Its name has a word of a search, but its text has the question."""

    def build_rag_prompt(question: str) -> str:
        return f"Answer in one friendly sentence, like a harbour master: {question}"

    (RunnableLambda(build_rag_prompt) | model()).invoke(QUESTION)

    assert (captured.turn.passages, captured.turn.is_rag) == ((), False)


def test_tools_that_are_called_without_langchain(captured: Captured) -> None:
    """A loop of the application's own appends the results after the question."""

    def loop(question: str) -> Any:
        call = AIMessage("", tool_calls=[{"name": "lookup", "args": {"query": "pier"}, "id": "1"}])
        return model().invoke([("human", question), call, ToolMessage(PAGE, tool_call_id="1", name="lookup")]).text

    RunnableLambda(loop).invoke(QUESTION)

    [passage] = captured.turn.passages
    assert (passage.text, passage.from_turn, passage.metadata["tool"]) == (PAGE, None, "lookup")


def test_documents_are_preferred(captured: Captured) -> None:
    """The chain has a text under a key of a search result, and documents."""
    chain: Any = RunnablePassthrough.assign(documents=lambda _: FACTS) | (
        lambda given: {"context": "\n".join(one.page_content for one in given["documents"]), **given}
    )
    (chain | PROMPT | model()).invoke({"question": QUESTION})

    assert {passage.id for passage in captured.turn.passages} == {"d1", "d2"}


@pytest.mark.parametrize(
    "text", ["data:image/png;base64,iVBORw0KGgo=", "/9j/" + "4AAQSkZJRgABAQ" * 8], ids=["url", "base64"]
)
def test_images_have_no_text_scores(text: str) -> None:
    """A retriever of a multi-modal application returns images as text."""
    exporter = InMemoryExporter()
    metrics = ["context_relevance", "groundedness", "unsupported_facts"]
    with rageval_hooks.instrument(models="lexical", metrics=metrics, exporters=[exporter]) as handle:
        chain: Any = RunnablePassthrough.assign(
            context=lambda given: retriever([Document(page_content=text)]).invoke(given["question"])[0].page_content
        )
        (chain | PROMPT | model()).invoke({"question": QUESTION})
        assert handle.flush(20)

    reasons = {
        result.name: getattr(result, "reason", "scored")
        for evaluation in exporter.evaluations
        for result in evaluation.results
    }
    assert set(reasons) == set(metrics)
    assert all("images, which have no text" in reason for reason in reasons.values()), reasons
