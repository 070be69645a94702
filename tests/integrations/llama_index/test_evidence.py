"""What a model of the turn wrote is no evidence, however it is handed on; what was found stays evidence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from llama_index.core import VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.schema import TextNode
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step

from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import model as chat_model
from tests.integrations.llama_index.fakes import index, llm

# workflows looks for its steps with inspect.getmembers, which touches what pydantic has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211"),
]

QUESTION = "What did the pier on Hallay cost and how long is it?"
PAGE = "The pier on Hallay was opened in September 2019 and is used by two ferries every day."
COST, LENGTH = "The pier on Hallay cost 41.2 million crowns.", "It is 380 metres long."
FOUND = f"{COST} {LENGTH}"
ANSWER = "The pier cost 41.2 million crowns, and it is 380 metres long."


def texts(turn: Turn) -> list[str]:
    return [passage.text for passage in turn.passages]


def scripted(*written: Any) -> Any:
    """A model that writes these texts and tool calls, one after another."""
    left = iter(written)
    return llm(lambda messages: next(left))


def call(name: str, **arguments: Any) -> list[ToolSelection]:
    return [ToolSelection(tool_id=name, tool_name=name, tool_kwargs=arguments)]


def function(name: str, run: Callable[..., Any]) -> FunctionTool:
    return FunctionTool.from_defaults(run, name=name, description=name)


SEARCH = call("web_search", query="pier opening")
web_search = function("web_search", lambda query: PAGE)


def run(agent: Any, **given: Any) -> None:
    async def main() -> None:
        await agent.run(**given)

    asyncio.run(main())


def ask(tools: list[FunctionTool], *written: Any) -> None:
    run(FunctionAgent(tools=tools, llm=scripted(*written)), user_msg=QUESTION)


HANDED_ON: dict[str, Callable[[str], Any]] = {
    "unchanged": lambda text: text,
    "within a sentence": lambda text: f"The model has noted that {text} and goes on with its plan.",
    "dumped as JSON": lambda text: json.dumps({"status": "recorded", "note": text}),
    "a mapping": lambda text: {"status": "recorded", "note": text},
    "a list": lambda text: [f"- {one}" for one in text.split(". ")],
}


@pytest.mark.parametrize("hand_on", HANDED_ON.values(), ids=HANDED_ON)
def test_a_tool_that_repeats_its_argument(captured: Captured, hand_on: Callable[[str], Any]) -> None:
    think = function("look_up_thoughts", lambda reflection: hand_on(reflection))
    ask([web_search, think], SEARCH, call("look_up_thoughts", reflection=FOUND), ANSWER)

    assert texts(captured.turn) == [PAGE]


@pytest.mark.parametrize("written", [FOUND, json.dumps({"answer": FOUND, "confidence": 0.8})], ids=["text", "JSON"])
@pytest.mark.parametrize("form", ["{}", "Answer of the expert:\n{}"])
def test_a_sub_agent_as_a_tool(captured: Captured, form: str, written: str) -> None:
    """What it searched is evidence. Its summary is none."""

    async def expert(question: str) -> str:
        await FunctionAgent(tools=[web_search], llm=scripted(SEARCH, written)).run(question)
        return form.format(FOUND)

    ask([function("expert", expert)], call("expert", question=QUESTION), ANSWER)

    assert texts(captured.turn) == [PAGE]


def test_a_tool_with_a_model_of_another_framework(captured: Captured) -> None:
    """The model is one of LangChain."""
    expert = function("expert", lambda question: "It says: " + chat_model(FOUND).invoke(question).text)
    ask([web_search, expert], SEARCH, call("expert", question=QUESTION), ANSWER)

    assert texts(captured.turn) == [PAGE]


class Noted(Event):
    nodes: list[Any]


class Research(Workflow):
    """A model writes findings, a step puts them into nodes, and another model answers from these."""

    @step
    async def research(self, event: StartEvent) -> Noted:
        written = json.loads(scripted(json.dumps({"findings": [COST, LENGTH]})).complete("Think.").text)["findings"]
        return Noted(nodes=[TextNode(text=one) for one in written])

    @step
    async def answer(self, event: Noted) -> StopEvent:
        context = "\n".join(node.get_content() for node in event.nodes)
        return StopEvent(result=scripted(ANSWER).complete(f"{context}\n{QUESTION}").text)


def test_a_step_that_makes_nodes_of_findings(captured: Captured) -> None:
    run(Research(), query=QUESTION)

    assert (captured.turn.passages, captured.turn.is_rag) == ((), False)


def test_a_store_of_notes(captured: Captured) -> None:
    """The model writes down what it believes, and reads it again."""
    store = VectorStoreIndex([TextNode(text=PAGE, id_="d1")], embed_model=index()._embed_model)

    def take_note(note: str) -> str:
        store.insert_nodes([TextNode(text=note, id_="note")])
        return "Noted."

    def read(query: str) -> str:
        return "\n".join(node.get_content() for node in store.as_retriever(similarity_top_k=2).retrieve(query))

    tools = [function("take_note", take_note), function("search", read)]
    ask(tools, call("take_note", note=FOUND), call("search", query="pier"), ANSWER)

    assert [passage.id for passage in captured.turn.passages] == ["d1"]


@pytest.mark.parametrize("answer", [PAGE, f"According to the site: {PAGE}"])
def test_an_answer_that_quotes_a_result(captured: Captured, answer: str) -> None:
    ask([web_search], SEARCH, answer)

    assert texts(captured.turn) == [PAGE]


QUERIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a query": ({"query": "pier opening"}, ("pier opening",)),
    "a list": ({"queries": ["pier opening", "pier cost"], "limit": 3}, ("pier opening", "pier cost")),
    "an id": ({"article_id": "a0"}, ()),
    "the question itself": ({"query": QUESTION}, ()),
}


@pytest.mark.parametrize(("arguments", "queries"), QUERIES.values(), ids=QUERIES)
def test_the_queries_of_tools_that_return_text(
    captured: Captured, arguments: dict[str, Any], queries: tuple[str, ...]
) -> None:
    def search(query: str = "", queries: list[str] | None = None, article_id: str = "", limit: int = 1) -> str:
        return PAGE

    ask([function("search", search)], call("search", **arguments), ANSWER)

    turn = captured.turn
    assert turn.retrieval_queries == queries
    assert texts(turn) == [PAGE]
    assert turn.timing is not None
    assert turn.timing.retrieval is not None


def test_a_tool_of_langchain_with_a_model_of_llama_index(captured: Captured) -> None:
    """What the model inside the tool wrote is no evidence, although another framework reports it."""
    from langchain.agents import create_agent

    @tool
    def expert(question: str) -> str:
        """Ask the expert."""
        return f"It says: {scripted(FOUND).complete(question).text}"

    request = AIMessage("", tool_calls=[{"name": "expert", "args": {"question": QUESTION}, "id": "1"}])
    left = iter([request, ANSWER])
    create_agent(chat_model(lambda messages: next(left)), [expert]).invoke({"messages": [("human", QUESTION)]})

    assert captured.turn.passages == ()
