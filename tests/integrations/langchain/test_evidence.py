"""What a model of the turn wrote is no evidence, however it is handed on; what was there before it stays evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import PROMPT, model, retriever

QUESTION = "What did the pier on Hallay cost and how long is it?"
PAGE = "The pier on Hallay was opened in September 2019 and is used by two ferries every day."
FERRIES = "Ferries leave Hallay for Sund three times a day, and the crossing takes 40 minutes."
COST, LENGTH = "The pier on Hallay cost 41.2 million crowns.", "It is 380 metres long."
FOUND = f"{COST} {LENGTH}"
ANSWER = "The pier cost 41.2 million crowns, and it is 380 metres long."


def texts(turn: Turn) -> list[str]:
    return [passage.text for passage in turn.passages]


def calls(*requests: tuple[str, dict[str, Any]]) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": name} for name, args in requests])


def run_agent(tools: list[Any], *written: Any) -> None:
    """Run an agent whose model writes these messages, one after another."""
    left = iter(written)
    create_agent(model(lambda messages: next(left)), tools).invoke({"messages": [("human", QUESTION)]})


SEARCH = calls(("web_search", {"query": "pier"}))


@tool
def web_search(query: str) -> str:
    """Search the web."""
    return PAGE


class Findings(BaseModel):
    cost: str = COST
    length: str = LENGTH
    confidence: float = 0.8


HANDED_ON: dict[str, Callable[[str], Any]] = {
    "unchanged": lambda text: text,
    "after a few words": lambda text: f"Reflection recorded: {text}",
    "within a sentence": lambda text: f"The model has noted that {text} and goes on with its plan.",
    "in a list": lambda text: "\n".join(f"- {one}" for one in text.split(". ")),
    "dumped as JSON": lambda text: json.dumps({"status": "recorded", "note": text, "number": 3}),
    "dumped as JSON with line breaks": lambda text: json.dumps({"note": text.replace(". ", ".\n")}, indent=2),
    "as XML": lambda text: f"<note><text>{text}</text></note>",
    "as repr": lambda text: repr({"note": text, "tags": ["pier"]}),
    "in capitals": lambda text: text.upper(),
    "a part of it": lambda text: text[: text.index(" long")],
}


@pytest.mark.parametrize("hand_on", HANDED_ON.values(), ids=HANDED_ON)
def test_a_tool_that_repeats_its_argument(captured: Captured, hand_on: Callable[[str], Any]) -> None:
    """The model's thought does not support its answer."""

    @tool
    def look_up_thoughts(reflection: str) -> Any:
        """Search the thoughts."""
        return hand_on(reflection)

    run_agent([web_search, look_up_thoughts], SEARCH, calls(("look_up_thoughts", {"reflection": FOUND})), ANSWER)

    assert texts(captured.turn) == [PAGE]


WRITTEN: dict[str, Any] = {
    "text": FOUND,
    "content blocks": AIMessage([{"type": "text", "text": FOUND}]),
    "thoughts": AIMessage([{"type": "thinking", "thinking": FOUND}, {"type": "text", "text": "Ready."}]),
    "JSON": json.dumps({"findings": FOUND, "confidence": 0.8}),
    "JSON in a fence": f"Here it is:\n```json\n{json.dumps({'findings': FOUND})}\n```",
    "two fields of JSON": Findings().model_dump_json(),
    "an argument of a tool call": calls(("Findings", {"findings": FOUND})),
    "a list in an argument": calls(("Findings", {"findings": [{"text": COST}, {"text": LENGTH}]})),
    "JSON in an argument": calls(("Findings", {"findings": json.dumps({"cost": COST, "length": LENGTH})})),
}
PUT: dict[str, Callable[[], Any]] = {
    "a list": lambda: [FOUND],
    "a text": lambda: f"Answer of the expert:\n{FOUND}",
    "bullets": lambda: f"# Notes\n* {COST}\n* {LENGTH}",
    "pydantic's repr": lambda: repr(Findings()),
    "model_dump_json": lambda: Findings().model_dump_json(indent=1),
    "a document": lambda: [Document(page_content=FOUND)],
    "results": lambda: [{"content": COST, "source": "expert"}, {"content": LENGTH, "source": "expert"}],
}


class State(TypedDict, total=False):
    question: str
    context: Any
    answer: str


def run_graph(*nodes: Any) -> None:
    builder: Any = StateGraph(State).add_sequence([*nodes, write])
    builder.add_edge(START, nodes[0].__name__).compile().invoke({"question": QUESTION})


def write(state: State) -> Any:
    return {"answer": model(ANSWER).invoke(f"{_text_of(state['context'])}\n{state['question']}").text}


def _text_of(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(_text_of, value))
    if isinstance(value, dict):
        return str(value["content"])
    return str(getattr(value, "page_content", value))


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_node_that_writes_its_findings_with_a_model(captured: Captured, written: Any, put: Callable[[], Any]) -> None:
    def research(state: State) -> Any:
        model(written).invoke(f"Think about: {state['question']}")
        return {"context": put()}

    run_graph(research)

    assert (captured.turn.passages, captured.turn.is_rag) == ((), False)


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
def test_a_sub_agent_as_a_tool(captured: Captured, put: Callable[[], Any]) -> None:
    """What it searched is evidence. Its summary is none."""

    @tool
    def expert(question: str) -> Any:
        """Ask the expert."""
        run_agent([web_search], SEARCH, Findings().model_dump_json())
        result = put()
        return _text_of(result) if isinstance(result, list) else result

    run_agent([expert], calls(("expert", {"question": QUESTION})), ANSWER)

    assert texts(captured.turn) == [PAGE]


def test_a_sub_agent_that_quotes(captured: Captured) -> None:
    """The page counts once, although the sub-agent's answer has it, too."""

    @tool
    def expert(question: str) -> str:
        """Ask the expert."""
        run_agent([web_search], SEARCH, f"The site says: {PAGE}")
        return f"The expert answers that the site says: {PAGE}"

    run_agent([expert], calls(("expert", {"question": QUESTION})), ANSWER)

    assert texts(captured.turn) == [PAGE]


def test_an_answer_that_is_the_argument_of_a_tool(captured: Captured) -> None:
    """The tool returns it to the user. Its prompt has the passages."""

    @tool(return_direct=True)
    def submit(answer: str) -> str:
        """Submit the answer."""
        return answer

    run_agent([web_search, submit], SEARCH, calls(("submit", {"answer": ANSWER})))

    turn = captured.turn
    assert (turn.response, [(one.text, one.in_prompt) for one in turn.passages]) == (ANSWER, [(PAGE, True)])
    assert turn.prompt[-1].content == PAGE


def test_notes_about_passages(captured: Captured) -> None:
    """The passages are evidence, also if the answer was written from the notes only. The notes are none."""

    def research(state: State) -> Any:
        found = retriever([Document(page_content=PAGE, id="d1")]).invoke(state["question"])
        return {
            "context": model(f"Seit September 2019 offen. {COST}").invoke(f"Translate: {found[0].page_content}").text
        }

    run_graph(research)

    assert [(passage.text, passage.in_prompt) for passage in captured.turn.passages] == [(PAGE, True)]


@pytest.mark.parametrize("form", ["text", "documents"])
def test_a_store_of_notes(captured: Captured, form: str) -> None:
    """The model writes down what it believes, and reads it again."""
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    notes: list[str] = []

    @tool
    def take_note(note: str) -> str:
        """Note it down."""
        notes.append(note)
        store.add_texts([note])
        return "Noted."

    @tool
    def read_notes(query: str) -> Any:
        """Read the notes."""
        if form == "text":
            return f"Here are your notes of this session: (1) {notes[0]}"
        return "\n".join(one.page_content for one in store.as_retriever().invoke(query))

    run_agent(
        [take_note, read_notes], calls(("take_note", {"note": FOUND})), calls(("read_notes", {"query": "pier"})), ANSWER
    )

    assert captured.turn.passages == ()


RESULTS = json.dumps({"results": [{"url": "a", "content": PAGE}, {"url": "b", "content": FERRIES}]})


@pytest.mark.parametrize("answer", [PAGE, f"According to the site: {PAGE}", RESULTS, f"{PAGE} {FERRIES}"])
@pytest.mark.parametrize("before", [None, PAGE], ids=["", "and a thought about it"])
def test_an_answer_that_quotes_a_result(captured: Captured, before: str | None, answer: str) -> None:
    """The result was there before the model repeated it."""

    @tool
    def look_up_thoughts(reflection: str) -> str:
        """Search the thoughts."""
        return f"Reflection recorded: {reflection}"

    @tool
    def search(query: str) -> str:
        """Search."""
        return RESULTS

    thoughts = [calls(("look_up_thoughts", {"reflection": before}))] if before else []
    run_agent([search, look_up_thoughts], calls(("search", {"query": "pier"})), *thoughts, answer)

    assert texts(captured.turn)[:2] == [PAGE, FERRIES]


@pytest.mark.parametrize("found", [PAGE, [PAGE, FERRIES]], ids=["a text", "a list"])
def test_an_answer_that_quotes_what_a_function_found(captured: Captured, found: Any) -> None:
    chain: Any = {"context": RunnableLambda(lambda _: found), "question": RunnablePassthrough()} | PROMPT | model(PAGE)
    chain.invoke(QUESTION)

    assert texts(captured.turn) == ([found] if isinstance(found, str) else found)


QUERIES = {
    "a question": (
        "When was the pier on Hallay opened?",
        "When was the pier on Hallay opened? In September 2019, says the town.",
    ),
    "keywords": (
        "opening of the pier on Hallay",
        "Results for opening of the pier on Hallay: it was in September 2019.",
    ),
    "a guess": (PAGE, f"Chronicle of Hallay: {PAGE}"),
}


@pytest.mark.parametrize(("query", "page"), QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize("kind", ["tool", "retriever"])
def test_a_result_that_has_the_query(captured: Captured, kind: str, query: str, page: str) -> None:
    """A model wrote the query. The page is evidence all the same."""
    page = page.format(query)

    @tool
    def search(query: str) -> str:
        """Search."""
        return page if kind == "tool" else retriever([Document(page_content=page)]).invoke(query)[0].page_content

    run_agent([search], calls(("search", {"query": query})), ANSWER)

    assert texts(captured.turn) == [page]


def test_parallel_tools(captured: Captured) -> None:
    """One message asks for a search and for a thought."""

    @tool
    def look_up_thoughts(reflection: str) -> str:
        """Search the thoughts."""
        return f"Noted: {reflection}"

    run_agent(
        [web_search, look_up_thoughts],
        calls(("web_search", {"query": "pier"}), ("look_up_thoughts", {"reflection": FOUND})),
        ANSWER,
    )

    assert texts(captured.turn) == [PAGE]


def test_a_second_agent_that_reads_the_answer_of_the_first(captured: Captured) -> None:
    """The passages of the first agent are those of the turn. Its answer is none."""

    def pipeline(question: str) -> str:
        run_agent([web_search], SEARCH, f"My findings: {FOUND}")
        return str(model(ANSWER).invoke(f"Context: My findings: {FOUND}\nQuestion: {question}").text)

    RunnableLambda(pipeline).invoke(QUESTION)

    assert [(passage.text, passage.in_prompt) for passage in captured.turn.passages] == [(PAGE, True)]


def test_quotes_that_a_model_selected(captured: Captured) -> None:
    """They were in its prompt: they are evidence, in an application whose search is not captured."""

    def research(state: State) -> Any:
        chosen = model(json.dumps({"quotes": [PAGE]})).invoke(f"Select from: {PAGE}\n{FERRIES}").text
        return {"context": json.loads(chosen)["quotes"]}

    run_graph(research)

    assert texts(captured.turn) == [PAGE]


@pytest.mark.parametrize("thinks", [False, True])
def test_the_verdict_about_an_invented_figure(thinks: bool) -> None:
    """It is bad, also after the model has written the figure down."""

    @tool
    def look_up_thoughts(reflection: str) -> str:
        """Search the thoughts."""
        return f"Reflection recorded: {reflection}"

    exporter = InMemoryExporter()
    thoughts = [calls(("look_up_thoughts", {"reflection": FOUND}))] if thinks else []
    with rageval_hooks.instrument(models="lexical", exporters=[exporter]) as handle:
        run_agent([web_search, look_up_thoughts], SEARCH, *thoughts, ANSWER)
        assert handle.flush(20)

    labels = {score.name: score.label for one in exporter.evaluations for score in one.turn_scores()}
    assert labels["verdict"] == "bad"


@tool
def raw_search(query: str) -> list[dict[str, str]]:
    """Search the web."""
    return [{"url": "https://a", "content": PAGE}]


def summary_of(page: str) -> str:
    return model("Its pier was opened in 2019, says the page.").invoke(f"Summarize: {page}").text


@tool
def summarizing_search(query: str) -> str:
    """Search the web and summarize the pages."""
    return summary_of(raw_search.invoke(query)[0]["content"])


@tool(response_format="content_and_artifact")
def summarizing_search_with_pages(query: str) -> Any:
    """Search the web and summarize the pages."""
    return summary_of(PAGE), [{"url": "https://a", "content": PAGE}]


@pytest.mark.parametrize("search", [summarizing_search, summarizing_search_with_pages])
def test_pages_that_a_tool_lets_a_model_summarize(captured: Captured, search: Any) -> None:
    """The pages are the passages, since the model that summarized them saw them. Its summary is none."""
    run_agent([search], calls((search.name, {"query": "pier"})), "It was opened in 2019.")

    [passage] = captured.turn.passages
    assert (passage.text, passage.id, passage.in_prompt) == (PAGE, "https://a", True)
