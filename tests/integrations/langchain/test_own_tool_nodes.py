"""Graphs that call their tools by themselves, and make the messages of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import model

LENGTH = {"url": "https://e.org/len", "content": "Hallay pier is 120 metres long and was opened in September 2019."}
COST = {"url": "https://e.org/cost", "content": "The pier of Hallay cost 41 million crowns, which the county paid."}
TEXTS = [LENGTH["content"], COST["content"]]
ANSWER = "It is 120 metres long."


@tool
def search(query: str) -> list[dict[str, str]]:
    """Search the web."""
    return [LENGTH, COST]


def _message(results: Any, call: Any) -> ToolMessage:
    return ToolMessage(str(results), tool_call_id=call["id"], name="search")


RUN: dict[str, Callable[[Any], Any]] = {
    "with the tool call": search.invoke,
    "with its arguments": lambda call: _message(search.invoke(call["args"]), call),
    "with its arguments, another id": lambda call: _message(search.invoke(call["args"]), {"id": "other"}),
    "joined by the node": lambda call: _message(
        "\n\n".join(one["content"] for one in search.invoke(call["args"])), call
    ),
}


def graph(run: Callable[[Any], Any], *, instruction: str = "", **options: Any) -> Any:
    """An agent with an own tool node. An instruction may follow the results in the prompt."""

    def script(messages: list[Any]) -> Any:
        last_question = max(at for at, one in enumerate(messages) if one.type == "human" and one.content != instruction)
        if any(one.type == "tool" for one in messages[last_question:]):
            return ANSWER
        return AIMessage("", tool_calls=[{"name": "search", "args": {"query": "pier length"}, "id": "call_1"}])

    def agent(state: MessagesState) -> Any:
        extra = [HumanMessage(instruction)] if instruction and isinstance(state["messages"][-1], ToolMessage) else []
        return {"messages": [model(script).invoke([*state["messages"], *extra])]}

    def tools(state: MessagesState) -> Any:
        return {"messages": [run(call) for call in state["messages"][-1].tool_calls]}  # type: ignore[union-attr]

    def next_node(state: MessagesState) -> str:
        return "tools" if state["messages"][-1].tool_calls else END  # type: ignore[union-attr]

    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    builder.add_conditional_edges("agent", next_node, ["tools", END])
    return builder.compile(**options)


def ask(app: Any, **config: Any) -> None:
    app.invoke({"messages": [HumanMessage("How long is the pier?")]}, {"configurable": config} if config else None)


def found(turn: Turn) -> list[tuple[str, str | None]]:
    return [(passage.text, passage.from_turn) for passage in turn.passages]


@pytest.mark.parametrize("instruction", ["", "Now answer from the results above."], ids=["", "then an instruction"])
@pytest.mark.parametrize("run", RUN.values(), ids=RUN)
def test_results_count_once_and_are_of_this_turn(captured: Captured, run: Any, instruction: str) -> None:
    ask(graph(run, instruction=instruction))

    turn = captured.turn
    assert found(turn) == [(text, None) for text in TEXTS]
    assert (turn.is_rag, turn.retrieval_queries) == (True, ("pier length",))


@pytest.mark.parametrize("instruction", ["", "Now answer from the results above."], ids=["", "then an instruction"])
def test_functions_that_are_called_without_langchain(captured: Captured, instruction: str) -> None:
    """The model of this turn requested the call: its result is of this turn, whatever follows in the prompt."""
    ask(graph(lambda call: _message(LENGTH["content"], call), instruction=instruction))

    assert found(captured.turn) == [(LENGTH["content"], None)]


def test_a_conversation_whose_calls_have_the_same_id(captured: Captured) -> None:
    """The second turn answers from the result of the first, without a search."""

    def run(call: Any) -> Any:
        return _message(LENGTH["content"], call)

    saver = InMemorySaver()
    ask(graph(run, checkpointer=saver), thread_id="1")
    quiet: Any = StateGraph(MessagesState)
    quiet.add_node("agent", lambda state: {"messages": [model(ANSWER).invoke(state["messages"])]})
    quiet.add_edge(START, "agent")
    ask(quiet.compile(checkpointer=saver), thread_id="1")

    first, second = captured.turns
    assert found(first) == [(LENGTH["content"], None)]
    assert [text for text, _ in found(second)] == [LENGTH["content"]]
    assert all(earlier for _, earlier in found(second))


def test_a_handled_error_is_an_error_of_the_step(captured: Captured) -> None:
    """The agent goes on, and the span of the tool says that it failed."""

    @tool
    def lookup(query: str) -> str:
        """Search the index."""
        raise ToolException("index offline")

    lookup.handle_tool_error = True
    script = iter(
        [AIMessage("", tool_calls=[{"name": "lookup", "args": {"query": "pier"}, "id": "1"}]), "I cannot say."]
    )
    create_agent(model(lambda messages: next(script)), [lookup]).invoke({"messages": [("human", "How long is it?")]})

    [step] = [step for step in captured.turn.steps if step.kind == "tool"]
    assert step.error is not None
    assert (step.error.type, step.error.message, step.output) == ("ToolError", "index offline", "index offline")
    assert (captured.turn.status, captured.turn.passages) == ("ok", ())
