"""What a LlamaIndex model was asked besides its messages, and the tool calls that it asked for."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core import MockEmbedding, PromptTemplate, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, CompletionResponse, MessageRole
from llama_index.core.instrumentation.events.llm import LLMCompletionEndEvent, LLMCompletionStartEvent
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.tools import QueryEngineTool
from llama_index_instrumentation import get_dispatcher

from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.llama_index.passages import collection_of, top_k_of
from rageval_hooks.integrations.llama_index.values import messages_of, tool_call
from rageval_hooks.turn import ToolCall, Turn
from tests.integrations.llama_index.fakes import NestingLLM, ScriptedLLM, llm, nodes, step_of_call

QUESTION = "When was the pier opened?"
CALL = ToolCall(name="search", arguments='{"query": "pier"}', id="call_1")
FUNCTION = {"name": "search", "arguments": '{"query": "pier"}'}


@pytest.mark.parametrize(
    "given",
    [
        ToolSelection(tool_id="call_1", tool_name="search", tool_kwargs={"query": "pier"}),
        SimpleNamespace(tool_call_id="call_1", tool_name="search", tool_kwargs={"query": "pier"}),
        SimpleNamespace(id="call_1", function=SimpleNamespace(**FUNCTION)),
        {"id": "call_1", "type": "function", "function": FUNCTION},
        {"id": "call_1", "name": "search", "input": {"query": "pier"}},
    ],
    ids=["LlamaIndex", "block", "OpenAI's object", "OpenAI's mapping", "Anthropic"],
)
def test_tool_calls_in_every_form(given: Any) -> None:
    assert tool_call(given) == CALL


def test_messages_of_tools_name_the_call() -> None:
    calls = [{"id": "call_1", "type": "function", "function": FUNCTION}]
    answered = {"tool_call_id": "call_1", "name": "search"}
    asking, answering = messages_of(
        [
            ChatMessage(role=MessageRole.ASSISTANT, content=None, additional_kwargs={"tool_calls": calls}),
            ChatMessage(role=MessageRole.TOOL, content="In 2019.", additional_kwargs=answered),
        ]
    )
    assert asking.tool_calls == (CALL,)
    assert json.loads(asking.content) == calls
    assert (answering.role, answering.tool_call_id, answering.name) == ("tool", "call_1", "search")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"choices": [{"finish_reason": "length"}]}, "length"),
        (SimpleNamespace(choices=[SimpleNamespace(finish_reason="stop")]), "stop"),
        ({"stop_reason": "end_turn"}, "end_turn"),
        ({"choices": []}, None),
        (None, None),
    ],
)
def test_why_the_model_stopped(raw: Any, reason: str | None) -> None:
    assert step_of_call(SimpleNamespace(raw=raw)).finish_reason == reason


@pytest.mark.parametrize(
    "response",
    [
        SimpleNamespace(raw={"choices": [{"message": {"content": None, "refusal": "I can't."}}]}),
        SimpleNamespace(raw=SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(refusal="I can't."))])),
        SimpleNamespace(raw=None, additional_kwargs={"refusal": "I can't.", "built_in_tool_calls": []}),
    ],
    ids=["mapping", "object", "Responses API"],
)
def test_a_refusal_of_the_model(response: Any) -> None:
    """OpenAI's APIs have a field for it."""
    assert step_of_call(response).output == "I can't."


def test_no_refusal() -> None:
    assert step_of_call(SimpleNamespace(raw={"choices": [{"message": {"refusal": None}}]})).output == ""
    assert step_of_call(None).output == ""


def test_parameters_have_neither_prompts_nor_credentials() -> None:
    description = {"model": "m", "temperature": 0.1, "system_prompt": "Be kind.", "api_key": "sk-1", "_kind": "x"}
    options = {"tool_choice": "auto", "tools": [{}]}
    parameters = step_of_call(None, model=description, options=options).parameters
    assert parameters == {"model": "m", "temperature": 0.1, "tool_choice": "auto"}


class ToolPassingLLM(ScriptedLLM):
    """Passes the tools on to its call, as the models of providers do."""

    def _prepare_chat_with_tools(self, tools: Any, **kwargs: Any) -> dict[str, Any]:
        prepared = super()._prepare_chat_with_tools(tools, **kwargs)
        return {**prepared, "tools": [one.metadata.to_openai_tool() for one in tools], "tool_choice": "auto"}


# llama-index-workflows inspects its own objects.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")
@pytest.mark.filterwarnings("ignore:is_running called from within a step")
def test_an_agents_call_has_its_tools(captured: Any) -> None:
    """And the tool says what it is."""
    index = VectorStoreIndex(nodes(), embed_model=MockEmbedding(embed_dim=8))
    engine = index.as_query_engine(llm=llm(), similarity_top_k=1)
    search = QueryEngineTool.from_defaults(engine, name="search", description="Search the handbook.")

    def script(messages: Any) -> Any:
        if messages[-1].role.value == "tool":
            return "In 2019."
        return [ToolSelection(tool_id="call_1", tool_name="search", tool_kwargs={"input": "pier"})]

    async def ask() -> None:
        await FunctionAgent(tools=[search], llm=ToolPassingLLM(script=script), streaming=False).run(QUESTION)

    asyncio.run(ask())

    turn: Turn = captured.turn
    first = next(step for step in turn.steps if step.kind == "llm")
    [called] = [step for step in turn.steps if step.kind == "tool"]
    assert json.loads(first.tools[0])["function"]["name"] == "search"
    assert first.parameters["tool_choice"] == "auto"
    assert [call.name for call in first.tool_calls] == ["search"]
    assert called.description == "Search the handbook."
    assert json.loads(called.tool_schema or "{}")["required"] == ["input"]


def test_a_query_engines_template_and_its_retrievers_request(captured: Any) -> None:
    index = VectorStoreIndex(nodes(), embed_model=MockEmbedding(embed_dim=8))
    template = PromptTemplate("Use {context_str} for {query_str}")
    index.as_query_engine(llm=llm(), similarity_top_k=2, text_qa_template=template).query(QUESTION)

    turn: Turn = captured.turn
    [call] = [step for step in turn.steps if step.kind == "llm"]
    [retrieval] = [step for step in turn.steps if step.kind == "retriever"]
    assert call.template is not None
    assert call.template.text == "Use {context_str} for {query_str}"
    assert call.template.variables["query_str"] == QUESTION
    assert call.template.variables["context_str"].startswith("source: ")
    assert (retrieval.top_k, retrieval.data_source) == (2, "SimpleVectorStore")


def test_a_model_that_only_sends_events_is_a_step(captured: Any) -> None:
    """A component may call a model by itself."""
    dispatcher = get_dispatcher("application")

    class Engine(CustomQueryEngine):
        def custom_query(self, query_str: str) -> str:
            asked: Any = {"model_dict": {"model": "own-1"}, "additional_kwargs": {}}
            dispatcher.event(LLMCompletionStartEvent(prompt=query_str, **asked))
            response = CompletionResponse(text="In 2019.")
            dispatcher.event(LLMCompletionEndEvent(prompt=query_str, response=response))
            return response.text

    Engine().query(QUESTION)

    turn = captured.turn
    assert (turn.response, turn.model, turn.prompt[0].content) == ("In 2019.", "own-1", QUESTION)
    assert [(step.kind, step.name, step.output) for step in turn.steps] == [("llm", "llm", "In 2019.")]


def own_call(query_str: str) -> str:
    """Call a model that only sends events."""
    dispatcher = get_dispatcher("application")
    asked: Any = {"model_dict": {"model": "own-1"}, "additional_kwargs": {}}
    dispatcher.event(LLMCompletionStartEvent(prompt=query_str, **asked))
    dispatcher.event(LLMCompletionEndEvent(prompt=query_str, response=CompletionResponse(text="In 2019.")))
    return "In 2019."


def test_a_model_whose_call_sends_events_again_is_one_step(captured: Any) -> None:
    """A wrapper of another model, for example: it is the same call."""

    class Wrapper(NestingLLM):
        @llm_completion_callback()
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
            return CompletionResponse(text=own_call(prompt))

    index = VectorStoreIndex(nodes(), embed_model=MockEmbedding(embed_dim=8))
    index.as_query_engine(llm=Wrapper()).query(QUESTION)

    assert [step.output for step in captured.turn.steps if step.kind == "llm"] == ["In 2019."]


def test_a_call_that_is_no_longer_recorded_does_not_end_the_turn(
    captured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn may have too many runs: the end of a call that was left out is not the end of its caller."""

    class Engine(CustomQueryEngine):
        def custom_query(self, query_str: str) -> str:
            monkeypatch.setattr(shared_recorder(), "max_runs", 1)
            own_call(query_str)
            return "In 2020."

    Engine().query(QUESTION)

    assert captured.turn.response == "In 2020."


def test_a_stream_of_pieces_alone() -> None:
    """Some models send no whole text with the last piece."""
    assert step_of_call(None, tokens=["It was ", "in 2019."]).output == "It was in 2019."


def test_a_collection_has_a_name() -> None:
    """Only fields are read: a property may send a request to the store's server."""

    class Store:
        def __init__(self) -> None:
            self.collection_name = "handbook"

    retriever = SimpleNamespace(_vector_store=Store(), _similarity_top_k=7)
    assert (collection_of(retriever), top_k_of(retriever)) == ("handbook", 7)
    assert (collection_of(object()), top_k_of(object())) == (None, None)
