"""What was searched for: questions and keywords, in whatever form a search receives them."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph

from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import model

QUESTION = "How long is the pier?"
PAGE = "Hallay pier is 120 metres long and was opened in September 2019 by the mayor."
ANSWER = "It is 120 metres long."


@tool
def search(
    query: str = "",
    queries: Any = None,
    searchTerms: Any = None,
    article_id: str = "",
    query_type: str = "",
    reflection: str = "",
    limit: int = 3,
) -> str:
    """Search the archive."""
    return PAGE


@pytest.mark.parametrize(
    ("arguments", "queries"),
    [
        ({"query": "pier length", "limit": 5}, ("pier length",)),
        ({"queries": ["pier length", "pier cost"]}, ("pier length", "pier cost")),
        ({"queries": [{"query": "pier length", "weight": 2}]}, ("pier length",)),
        ({"searchTerms": "pier length"}, ("pier length",)),
        ({"query": "pier length", "query_type": "news only"}, ("pier length",)),
        ({"query": QUESTION}, ()),
        ({"article_id": "a0"}, ()),
        ({"reflection": "I should look for the length."}, ()),
    ],
    ids=["a text", "a list", "a list of objects", "camel case", "with a type", "the question", "an id", "a thought"],
)
def test_arguments_of_a_tool(captured: Captured, arguments: dict[str, Any], queries: tuple[str, ...]) -> None:
    request = AIMessage("", tool_calls=[{"name": "search", "args": arguments, "id": "1"}])
    script = iter([request, ANSWER])
    create_agent(model(lambda messages: next(script)), [search]).invoke({"messages": [("human", QUESTION)]})

    turn = captured.turn
    assert [passage.text for passage in turn.passages] == [PAGE]
    assert turn.retrieval_queries == queries


class State(TypedDict, total=False):
    question: str
    search_query: str
    sub_queries: list[str]
    thread_id: str
    search_results: list[str]
    answer: str


@pytest.mark.parametrize(
    ("rewritten", "queries"),
    [
        ({"search_query": "pier length"}, ("pier length",)),
        ({"sub_queries": ["pier length", "pier cost"]}, ("pier length", "pier cost")),
        ({"thread_id": "t1"}, ()),
    ],
    ids=["a query", "several", "none"],
)
def test_state_of_a_graph(captured: Captured, rewritten: Any, queries: tuple[str, ...]) -> None:
    """A node whose search LangChain does not report reads the query from the state."""

    def say(state: State) -> Any:
        return {"answer": model(ANSWER).invoke(state["search_results"][0] + state["question"]).text}

    builder: Any = StateGraph(State)
    builder.add_node("rewrite", lambda state: rewritten)
    builder.add_node("web_search", lambda state: {"search_results": [PAGE]})
    builder.add_node("say", say)
    for before, after in ((START, "rewrite"), ("rewrite", "web_search"), ("web_search", "say")):
        builder.add_edge(before, after)
    builder.compile().invoke({"question": QUESTION})

    assert captured.turn.retrieval_queries == queries
