"""Where ours is the only instrumentor, spans have what OpenInference's instrumentors write for the same application."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import QueryEngineTool
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from tests.integrations.langchain.fakes import PROMPT, join, retriever
from tests.integrations.llama_index import fakes as llama_index_fakes
from tests.judges.server import JudgeServer, answer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SPANS_PAGE = Path(__file__).parents[3] / "docs" / "spans.md"
QUESTION = "When was the pier opened?"

MESSAGE_PARTS = (
    "content",
    "role",
    "name",
    "tool_call_id",
    "tool_calls.N.tool_call.function.arguments",
    "tool_calls.N.tool_call.function.name",
    "tool_calls.N.tool_call.id",
)
LEFT_OUT: dict[str, set[str]] = {
    "LLM": {
        "metadata",
        "llm.tools.N.tool.json_schema",
        *(f"llm.{side}_messages.N.message.{part}" for side in ("input", "output") for part in MESSAGE_PARTS),
    },
    "RETRIEVER": {"metadata"},
    "TOOL": {"metadata"},
    "ROOT": {"llm.input_messages.N.message.content", "llm.input_messages.N.message.role", "metadata"},
}
"""Attributes that OpenInference writes and we do not, by the kind of span; docs/spans.md says why."""

WRITTEN_DIFFERENTLY = {
    "input.mime_type",
    "input.value",
    "llm.invocation_parameters",
    "llm.model_name",
    "llm.prompt_template.template",
    "llm.prompt_template.variables",
    "openinference.span.kind",
    "output.mime_type",
    "output.value",
    "retrieval.documents.N.document.metadata",
}
"""Attributes with other values than OpenInference's; docs/spans.md says why."""


@tool
def search(query: str) -> str:
    """Search the harbour's handbook."""
    return join(retriever().invoke(query))


def langchain_application() -> None:
    """An agent with a tool that searches, and a chain with a prompt template."""
    with JudgeServer() as server:
        server.otherwise(_reply)
        llm = ChatOpenAI(model="gpt-5-mini", base_url=server.url, api_key="sk-test", temperature=1, max_tokens=100)
        agent = create_agent(llm, [search], system_prompt="Use the tool.")
        agent.invoke({"messages": [("user", QUESTION)]})
        chain = {"context": retriever() | join, "question": RunnablePassthrough()} | PROMPT | llm | StrOutputParser()
        chain.invoke(QUESTION)


def _reply(request: Any) -> Any:
    asked = any(message["role"] == "tool" for message in request.body["messages"])
    if request.body.get("tools") and not asked:
        return answer({"query": "pier opened"}, tool="search")
    return answer("It was opened in 2019.")


def llama_index_application() -> None:
    """A query engine, and an agent with the engine as its tool."""
    index = VectorStoreIndex(llama_index_fakes.nodes(), embed_model=MockEmbedding(embed_dim=8))
    engine = index.as_query_engine(llm=llama_index_fakes.llm(), similarity_top_k=2)
    engine.query(QUESTION)
    engine_tool = QueryEngineTool.from_defaults(engine, name="search", description="Search the harbour's handbook.")

    def script(messages: Iterable[Any]) -> Any:
        if any(message.role.value == "tool" for message in messages):
            return "It was opened in 2019."
        return [ToolSelection(tool_id="call_1", tool_name="search", tool_kwargs={"input": "pier opened"})]

    agent = FunctionAgent(tools=[engine_tool], llm=llama_index_fakes.ScriptedLLM(script=script), streaming=False)

    async def ask() -> None:
        await agent.run(QUESTION)

    asyncio.run(ask())


APPLICATIONS: dict[str, tuple[Callable[[], None], Callable[[], Any]]] = {
    "langchain": (langchain_application, LangChainInstrumentor),
    "llama_index": (llama_index_application, LlamaIndexInstrumentor),
}

Attributes = Mapping[str, set[str]]
"""The values of each attribute, by its name with N in place of numbers."""


def by_kind(spans: Iterable[ReadableSpan]) -> dict[str, Attributes]:
    """Return the attributes of the spans of each kind. ROOT are those of whole turns; building an index is not one."""
    found: dict[str, dict[str, set[str]]] = {}
    for span in spans:
        attributes = span.attributes or {}
        kind = str(attributes["openinference.span.kind"])
        if span.parent is None and kind in ("CHAIN", "AGENT"):
            kind = "ROOT"
        for name, value in attributes.items():
            general = re.sub(r"\.\d+\.", ".N.", name)
            # LlamaIndex's instrumentor writes empty texts for messages that are tool calls.
            if value != "":
                found.setdefault(kind, {}).setdefault(general, set()).add(_comparable(value))
    return found


def _comparable(value: Any) -> str:
    """Return a value as text; JSON regardless of its spaces and the order of its keys."""
    try:
        return json.dumps(json.loads(value), sort_keys=True)
    except (TypeError, ValueError):
        return str(value)


@pytest.fixture(scope="module", params=list(APPLICATIONS))
def compared(request: pytest.FixtureRequest) -> tuple[dict[str, Attributes], dict[str, Attributes]]:
    """The spans of one application, as OpenInference writes them and as we do."""
    application, instrumentor = APPLICATIONS[request.param]
    theirs, ours = _recording_provider(), _recording_provider()
    active = instrumentor()
    active.instrument(tracer_provider=theirs[0])
    try:
        application()
    finally:
        active.uninstrument()
    with rageval_hooks.instrument(metrics=[], tracer_provider=ours[0]) as handle:
        application()
        assert handle.flush(30)
    return by_kind(theirs[1].get_finished_spans()), by_kind(ours[1].get_finished_spans())


def _recording_provider() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, span_limits=SpanLimits(max_span_attributes=4096))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@pytest.mark.parametrize("kind", list(LEFT_OUT))
def test_every_attribute_is_there(compared: Any, kind: str) -> None:
    """But those that docs/spans.md lists."""
    theirs, ours = compared
    assert theirs[kind].keys() - ours[kind].keys() <= LEFT_OUT[kind]


@pytest.mark.parametrize("kind", list(LEFT_OUT))
def test_values_are_the_same(compared: Any, kind: str) -> None:
    """But those that docs/spans.md lists."""
    theirs, ours = compared
    for name in theirs[kind].keys() & ours[kind].keys() - WRITTEN_DIFFERENTLY:
        assert theirs[kind][name] <= ours[kind][name], name


def test_what_differs_is_documented() -> None:
    page = SPANS_PAGE.read_text()
    for name in {*WRITTEN_DIFFERENTLY, *(name for names in LEFT_OUT.values() for name in names)}:
        message, dot, _ = name.partition(".message.")
        assert f"`{f'{message}.message.*' if dot else name}`" in page, name
