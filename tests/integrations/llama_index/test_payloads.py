"""Questions, answers, messages, nodes, models and tools are read from values of every shape."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core.agent.workflow.workflow_events import AgentOutput, AgentWorkflowStartEvent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ImageBlock,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.base.response.schema import PydanticResponse, Response
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import ImageNode, MediaResource, Node, NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import ToolOutput
from llama_index.core.workflow import StartEvent, StopEvent
from pydantic import BaseModel

from rageval_hooks.integrations.llama_index import passages as reading_nodes
from rageval_hooks.integrations.llama_index import values
from rageval_hooks.integrations.llama_index import values as reading_messages
from rageval_hooks.turn import Message, Passage
from tests.integrations.llama_index.fakes import step_of_call


class Fact(BaseModel):
    year: int
    place: str


class Asked(StartEvent):
    question: str
    top_k: int = 3


class Answered(StopEvent):
    text: str
    sources: tuple[str, ...] = ()


USER = ChatMessage(role=MessageRole.USER, content="When?")


@pytest.mark.parametrize(
    ("value", "query"),
    [
        ("When?", "When?"),
        (QueryBundle("When?"), "When?"),
        (USER, "When?"),
        ([ChatMessage(role="system", content="Be brief."), USER, ChatMessage(role="assistant", content="?")], "When?"),
        ({"str_or_query_bundle": QueryBundle("When?")}, "When?"),
        ({"message": "When?", "chat_history": [USER]}, "When?"),
        ({"args": ("When?",), "kwargs": {}}, "When?"),
        ({"args": (), "kwargs": {"input": "When?"}}, "When?"),
        ({"prompt": PromptTemplate("Say {thing}"), "prompt_args": {"thing": "When?"}}, "When?"),
        ({"init_state": object(), "start_event": StartEvent(question="When?", k=3), "tags": {"a": "b"}}, "When?"),
        ({"start_event": StartEvent(topic="When?", k=3)}, "When?"),
        ({"start_event": Asked(question="When?")}, "When?"),
        ({"start_event": AgentWorkflowStartEvent(user_msg="When?")}, "When?"),
        ({"start_event": AgentWorkflowStartEvent(user_msg=USER)}, "When?"),
        ({"start_event": AgentWorkflowStartEvent(chat_history=[USER])}, "When?"),
        ({"question": "When?", "style": "brief"}, "When?"),
        ({"one": "When?"}, "When?"),
        ({"one": "When?", "two": "Where?"}, ""),
        ({"start_event": AgentWorkflowStartEvent(user_msg=None, early_stopping_method="force")}, ""),
        ({"start_event": None}, ""),
        (None, ""),
        (7, ""),
        ([], ""),
    ],
)
def test_the_question(value: Any, query: str) -> None:
    """The question is found in the input of a component."""
    assert values.query_of(value) == query


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("2019.", "2019."),
        (Response("2019."), "2019."),
        (Response(None), ""),
        (PydanticResponse(Fact(year=2019, place="Quern")), '{"year": 2019, "place": "Quern"}'),
        (AgentChatResponse("2019."), "2019."),
        (ChatResponse(message=ChatMessage(role="assistant", content="2019.")), "2019."),
        (CompletionResponse(text="2019."), "2019."),
        (ChatMessage(role="assistant", blocks=[TextBlock(text="20"), TextBlock(text="19")]), "20\n19"),
        (ToolOutput(tool_name="t", content="2019.", raw_input={}, raw_output=1), "2019."),
        (StopEvent(result="2019."), "2019."),
        (StopEvent(result=Response("2019.")), "2019."),
        (StopEvent(result={"answer": "2019.", "sources": ["a"]}), "2019."),
        (StopEvent(result=Fact(year=2019, place="Quern")), '{"year": 2019, "place": "Quern"}'),
        # Without a warning that a field has a value of another type.
        (StopEvent(result=Fact.model_construct(year="2019", place="Quern")), '{"year": "2019", "place": "Quern"}'),
        (Answered(text="2019."), "2019."),
        (
            StopEvent(
                result=AgentOutput(
                    response=ChatMessage(role="assistant", content="2019."), current_agent_name="a", raw={"text": "x"}
                )
            ),
            "2019.",
        ),
        (StopEvent(result=AgentOutput(response=ChatMessage(role="assistant"), current_agent_name="a")), ""),
        ({"place": "Quern"}, "Quern"),
        ({"place": "Quern", "year": "2019"}, ""),
        ([NodeWithScore(node=TextNode(text="x"))], ""),
        ([0.1, 0.2], ""),
        (values.Streamed(1), ""),
        (None, ""),
        (object(), ""),
    ],
)
def test_the_answer(value: Any, answer: str) -> None:
    """The answer is found in the output of a component."""
    assert values.answer_of(value) == answer


@pytest.mark.parametrize(
    ("prompt", "messages"),
    [
        ("When?", [("user", "When?")]),
        ([ChatMessage(role=MessageRole.CHATBOT, content="x")], [("assistant", "x")]),
        ([ChatMessage(role=MessageRole.DEVELOPER, content="x")], [("system", "x")]),
        ([ChatMessage(role=MessageRole.FUNCTION, content="x")], [("tool", "x")]),
        ([ChatMessage(role="user", blocks=[ImageBlock(image=b"x"), TextBlock(text="What is it?")])], None),
        (
            [ChatMessage(role="assistant", blocks=[ToolCallBlock(tool_name="find", tool_kwargs={"q": "x"})])],
            None,
        ),
        (None, []),
    ],
)
def test_the_prompt(prompt: Any, messages: list[tuple[str, str]] | None) -> None:
    """Messages have the usual role names; tool calls become JSON, and images are skipped."""
    found = reading_messages.messages_of(prompt)
    if messages is not None:
        assert found == tuple(Message(role=role, content=content) for role, content in messages)
    else:
        [message] = found
        assert message.content == "What is it?" or '"tool_name": "find"' in message.content


def test_nodes() -> None:
    """Nodes of every kind keep the store's metadata. A score that is not a number becomes None."""
    nodes = [
        NodeWithScore(node=TextNode(id_="a", text="one", metadata={"page": 3}), score=0.5),
        NodeWithScore(node=TextNode(id_="b", text="two"), score=float("nan")),
        NodeWithScore(node=Node(id_="c", text_resource=MediaResource(text="three"))),
        NodeWithScore(node=ImageNode(id_="d", text="", image="aGk=")),
        "not a node",
    ]

    assert list(reading_nodes.nodes_in(nodes)) == [
        Passage(text="one", id="a", score=0.5, metadata={"page": 3}),
        Passage(text="two", id="b"),
        Passage(text="three", id="c"),
        Passage(text="", id="d"),
    ]


def test_a_snapshot_stays_as_it_was() -> None:
    """Rerankers change scores and texts of nodes in place."""
    node = NodeWithScore(node=TextNode(id_="a", text="before"), score=0.5)
    taken = reading_nodes.nodes_in([node])
    node.score = 9.0
    node.node.set_content("after")

    [passage] = taken
    assert (passage.text, passage.score) == ("before", 0.5)


@pytest.mark.parametrize(
    ("raw", "asked", "name"),
    [
        ({"model": "m-1-2026"}, {"model_name": "m-1"}, "m-1-2026"),
        (SimpleNamespace(model="m-1-2026"), {}, "m-1-2026"),
        (SimpleNamespace(model_version="g-2"), {}, "g-2"),
        ({"model": {"not": "a name"}}, {"model_name": "m-1"}, "m-1"),
        (None, {"model": "m-1"}, "m-1"),
        (None, {"model_name": "unknown"}, None),
        (None, {}, None),
    ],
)
def test_the_models_name(raw: Any, asked: dict[str, Any], name: str | None) -> None:
    """The provider's name comes first, then the requested one. LlamaIndex's default is not a name."""
    assert step_of_call(SimpleNamespace(raw=raw), model=asked).model == name


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"args": (), "kwargs": {"input": "pier"}}, "pier"),
        ({"args": ("pier",), "kwargs": {}}, "pier"),
        ({"input": "pier"}, "pier"),
        ({"args": (), "kwargs": {"a": 1, "b": "x"}}, '{"a": 1, "b": "x"}'),
        ({"args": (1, 2), "kwargs": {}}, "[1, 2]"),
        ({}, "[]"),
    ],
)
def test_a_tools_input(arguments: dict[str, Any], text: str) -> None:
    """A single text is unchanged; anything else becomes JSON."""
    assert values.tool_input(arguments) == text


def test_what_has_no_json() -> None:
    """A value that JSON does not know becomes its ``str``."""

    class Odd(BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        thing: Any

    assert reading_messages.as_json({"type": Odd, "fact": Fact(year=1, place="x")}) == (
        f'{{"type": "{Odd}", "fact": {{"year": 1, "place": "x"}}}}'
    )
    assert "object object" in reading_messages.as_json(Odd(thing=object()))


def test_names_and_kinds_of_spans() -> None:
    """A span without an instance has the name of its function."""
    uuid = "-" + "0" * 36

    def local() -> None: ...

    assert values.name_of(f"{local.__qualname__}{uuid}", None) == "local"
    assert values.name_of(f"ingest{uuid}", None) == "ingest"
    assert values.kind_of(f"ingest{uuid}", None) == "chain"
    assert values.method_of(f"Engine.query{uuid}") == "query"


def test_who_serves_a_model() -> None:
    """The provider is read from the package of the model's class."""
    served = type("Claude", (), {"__module__": "llama_index.llms.anthropic.base"})()

    assert values.provider_of(served) == "anthropic"
    assert values.provider_of(object()) is None
