"""Model calls as chats: tool calls and their results, tools, parameters and templates; and how they are hidden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks import Evaluation, Passage, Step, Turn, Usage
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.exporters.otel.turn_attributes import step_attributes
from rageval_hooks.judges.token_counts import usage_from
from tests.integrations.langchain.fakes import FACTS, join, lcel, model, retriever
from tests.judges.server import JudgeServer, answer

SECRETS = ("pier", "Quern", "ferry", "handbook")


@tool
def search(query: str) -> str:
    """Search the handbook."""
    return join(retriever().invoke(query))


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    """Asks for the tool first, and then answers."""

    def reply(request: Any) -> Any:
        if any(message["role"] == "tool" for message in request.body["messages"]):
            return answer("The pier opened in 2019.", finish_reason="length")
        return answer({"query": "the pier"}, tool="search", signed=False, finish_reason="tool_calls")

    with JudgeServer() as server:
        server.otherwise(reply)
        yield server


def spans_of(application: Any, given: Any, **settings: Any) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with rageval_hooks.instrument(metrics=[], tracer_provider=provider, **settings) as handle:
        application.invoke(given)
        assert handle.flush(30)
    return sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def of_kind(spans: list[ReadableSpan], kind: str) -> list[dict[str, Any]]:
    found = [dict(span.attributes or {}) for span in spans]
    return [attributes for attributes in found if attributes["openinference.span.kind"] == kind]


def agent(server: JudgeServer, **options: Any) -> Any:
    llm = ChatOpenAI(model="gpt-5-mini", base_url=server.url, api_key="sk-test", max_tokens=100, **options)
    return create_agent(llm, [search], system_prompt="Use the handbook.")


ASKED = {"messages": [("user", "When did the pier open?")]}


def test_a_call_of_a_tool_is_a_part_of_the_conversation(server: JudgeServer) -> None:
    """In the model's answer, and with its result in the next prompt; not as a text."""
    first, second = of_kind(spans_of(agent(server), ASKED), "LLM")
    call = {"type": "tool_call", "id": "call_1", "name": "search", "arguments": {"query": "the pier"}}
    found = "The pier was opened in 2019.\nThe ferry to Quern takes 18 minutes."

    assert json.loads(first["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [call], "finish_reason": "tool_calls"}
    ]
    assert json.loads(second["gen_ai.input.messages"])[1:] == [
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": found}]},
    ]


@pytest.fixture
def for_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-mlflow-experiment-id=0")


@pytest.mark.usefixtures("for_mlflow")
def test_input_and_output_have_the_form_of_openais_api(server: JudgeServer) -> None:
    """MLflow and Langfuse draw a conversation from it."""
    first, second = of_kind(spans_of(agent(server), ASKED), "LLM")
    [choice] = json.loads(first["output.value"])["choices"]
    messages = json.loads(second["input.value"])["messages"]

    assert first["output.mime_type"] == second["input.mime_type"] == "application/json"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "search"
    assert choice["finish_reason"] == "tool_calls"
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
    assert messages[3]["tool_call_id"] == "call_1"


def test_why_the_model_stopped(server: JudgeServer) -> None:
    first, second = of_kind(spans_of(agent(server), ASKED), "LLM")
    assert [first["llm.finish_reason"], second["llm.finish_reason"]] == ["tool_calls", "length"]
    assert first["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert json.loads(second["gen_ai.output.messages"])[0]["finish_reason"] == "length"


def test_the_tools_that_the_model_could_call(server: JudgeServer) -> None:
    first, _ = of_kind(spans_of(agent(server), ASKED), "LLM")
    [definition] = json.loads(first["gen_ai.tool.definitions"])
    assert (definition["type"], definition["name"]) == ("function", "search")
    assert definition["description"] == "Search the handbook."


def test_the_tool_says_which_call_it_answers(server: JudgeServer) -> None:
    [called] = of_kind(spans_of(agent(server), ASKED), "TOOL")
    assert called["gen_ai.tool.call.id"] == "call_1"
    assert called["gen_ai.tool.type"] == "function"
    assert called["tool.description"] == "Search the handbook."


def test_parameters_without_credentials(server: JudgeServer) -> None:
    """A header of the application may be a key."""
    body = {"api_key": "sk-secret", "user": "u1"}
    asking = agent(server, top_p=0.5, extra_body=body, model_kwargs={"extra_headers": {"X-Api": "sk-secret"}})
    first, _ = of_kind(spans_of(asking, ASKED), "LLM")
    parameters = json.loads(first["llm.invocation_parameters"])
    assert (first["gen_ai.request.top_p"], first["gen_ai.request.max_tokens"]) == (0.5, 100)
    assert parameters["top_p"] == 0.5
    assert parameters["extra_body"] == {"user": "u1"}
    assert "sk-" not in json.dumps(first)


def test_the_template_of_the_prompt() -> None:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Use this:\n{context}"), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    chain = (
        RunnablePassthrough.assign(context=lambda given: join(retriever().invoke(given["question"])))
        | prompt
        | model("In 2019.")
        | StrOutputParser()
    )
    [call] = of_kind(spans_of(chain, {"question": "When?", "history": [("user", "Hello")]}), "LLM")
    assert call["llm.prompt_template.template"] == ("system: Use this:\n{context}\n\n{history}\n\nhuman: {question}")
    variables = json.loads(call["llm.prompt_template.variables"])
    assert variables["question"] == "When?"
    assert variables["context"].startswith("The pier was opened")


def test_a_template_belongs_to_the_model_after_it() -> None:
    """Another model of the turn may have a prompt that the application wrote itself."""
    rewrite = ChatPromptTemplate.from_template("Rewrite: {question}") | model("When did it open?") | StrOutputParser()
    chain = RunnableLambda(lambda given: join(retriever().invoke(rewrite.invoke(given)))) | model("In 2019.")
    rewriting, answering = of_kind(spans_of(chain, {"question": "When?"}), "LLM")
    assert rewriting["llm.prompt_template.template"] == "human: Rewrite: {question}"
    assert "llm.prompt_template.template" not in answering


@pytest.mark.parametrize(("passages", "length"), [(20, 3000), (5, 8000), (50, 600)])
def test_a_turn_leaves_its_texts_at_most_three_times(passages: int, length: int) -> None:
    """Question, passages, prompt and answer; nothing else on its spans is long."""
    texts = [f"{number} " + "The ferry is slow. " * (length // 19) for number in range(passages)]
    documents = [Document(page_content=text) for text in texts]
    prompt = ChatPromptTemplate.from_messages([("system", "Use this:\n{context}"), ("human", "{question}")])
    found = RunnableLambda(lambda _: join(retriever(documents).invoke("When?")))
    chain = {"context": found, "question": RunnablePassthrough()} | prompt | model("It is slow.") | StrOutputParser()
    spans = spans_of(chain, "When?")
    sent = encode_spans(spans).ByteSize()
    once = sum(map(len, texts))

    assert 2 * once < sent < 3 * once


@pytest.mark.parametrize("direct", [True, False], ids=["the store itself", "its retriever"])
def test_how_many_passages_were_asked_for(direct: bool) -> None:
    """And of which store."""
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents([document.model_copy() for document in FACTS])
    found = store.as_retriever(search_kwargs={"k": 1})
    search = (lambda question: store.similarity_search(question, k=1)) if direct else found.invoke
    chain = (lambda question: join(search(question))) | model("In 2019.")
    [retrieval] = of_kind(spans_of(chain, "When?"), "RETRIEVER")
    assert retrieval["gen_ai.retrieval.top_k"] == 1
    assert retrieval["gen_ai.data_source.id"] == "InMemoryVectorStore"


def test_other_backends_get_no_second_copy(server: JudgeServer) -> None:
    """The input of a model call is the beginning of its last message, and a retriever's output that of its passages."""
    spans = spans_of(agent(server), ASKED)
    first, second = of_kind(spans, "LLM")
    [retrieval] = of_kind(spans, "RETRIEVER")

    assert (first["input.value"], first["input.mime_type"]) == ("When did the pier open?", "text/plain")
    assert second["input.value"].startswith("The pier was opened in 2019.")
    assert retrieval["output.value"] == "The pier was opened in 2019.\nThe ferry to Quern takes 18 minutes."


@pytest.mark.usefixtures("for_mlflow")
def test_a_retrievers_output_is_its_documents() -> None:
    """Backends without a view of documents show the output of a span."""
    [retrieval] = of_kind(spans_of(lcel(), "When?"), "RETRIEVER")
    assert [document["page_content"] for document in json.loads(retrieval["output.value"])] == [
        document.page_content for document in FACTS
    ]
    assert retrieval["output.mime_type"] == "application/json"


@pytest.mark.parametrize(
    ("framework", "conventions"),
    [
        ("openai", "openai"),
        ("azure", "azure.ai.openai"),
        ("azure_openai", "azure.ai.openai"),
        ("azure_inference", "azure.ai.inference"),
        ("google_vertexai", "gcp.vertex_ai"),
        ("vertex", "gcp.vertex_ai"),
        ("google_genai", "gcp.gemini"),
        ("amazon_bedrock", "aws.bedrock"),
        ("bedrock_converse", "aws.bedrock"),
        ("mistralai", "mistral_ai"),
        ("xai", "x_ai"),
        ("ibm", "ibm.watsonx.ai"),
        ("groq", "groq"),
        ("acme", "acme"),
    ],
)
def test_providers_have_the_names_of_the_conventions(framework: str, conventions: str) -> None:
    """OpenInference's attribute has the framework's own."""
    step = Step(id="1", kind="llm", name="Chat", provider=framework, started_at=0, ended_at=1)
    found = step_attributes(step, Turn(), draws_values=False)
    assert (found["gen_ai.provider.name"], found["llm.provider"]) == (conventions, framework)


@pytest.mark.parametrize(
    "stored",
    [
        {"cache_creation": 60},
        # As langchain-anthropic has them.
        {"cache_creation": 0, "ephemeral_5m_input_tokens": 45, "ephemeral_1h_input_tokens": 15},
        {"cache_creation": 0, "ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": None},
    ],
)
def test_tokens_that_were_stored_and_those_of_thoughts(stored: dict[str, int | None]) -> None:
    usage = usage_from(
        {
            "input_tokens": 120,
            "output_tokens": 50,
            "input_token_details": {"cache_read": 20, **stored},
            "output_token_details": {"reasoning": 40},
        }
    )
    step = Step(id="1", kind="llm", name="Chat", usage=Usage.sum([usage, usage]), started_at=0, ended_at=1)
    found = step_attributes(step, Turn(), draws_values=False)
    assert found["gen_ai.usage.input_tokens"] == 240
    assert found["gen_ai.usage.cache_read.input_tokens"] == 40
    assert found["gen_ai.usage.cache_creation.input_tokens"] == 120
    assert found["gen_ai.usage.reasoning.output_tokens"] == 80


@pytest.mark.parametrize(
    ("steps", "passages", "name", "attribute"),
    [
        ((), (), "invoke_workflow handbook", "gen_ai.workflow.name"),
        (("tool",), (), "invoke_agent handbook", "gen_ai.agent.name"),
        ((), ("The pier opened.",), "rag handbook", "gen_ai.workflow.name"),
    ],
)
def test_the_names_of_roots(steps: Any, passages: Any, name: str, attribute: str) -> None:
    """A turn with retrieval keeps the name by which lists and searches find it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    turn = Turn(
        name="handbook",
        response="Yes.",
        steps=tuple(Step(id=kind, kind=kind, name="T", started_at=0, ended_at=1) for kind in steps),
        passages=tuple(Passage(text=text) for text in passages),
    )
    OtelExporter(provider, log_events=False, score_metrics=False).export(Evaluation(turn=turn))
    [root] = [span for span in exporter.get_finished_spans() if span.parent is None]

    assert root.name == name
    assert (root.attributes or {})[attribute] == "handbook"


class TestHidden:
    def test_no_text_of_an_agent_is_left(self, server: JudgeServer) -> None:
        """Neither in arguments and results of tools, nor in what tools and templates say."""
        spans = spans_of(agent(server), ASKED, capture_content=False)
        text = " ".join(span.to_json() for span in spans)
        assert [secret for secret in SECRETS if secret in text] == []
        assert of_kind(spans, "LLM")[0]["gen_ai.request.max_tokens"] == 100

    def test_no_template_is_left(self) -> None:
        text = " ".join(span.to_json() for span in spans_of(lcel(), "When?", capture_content=False))
        assert "Use this" not in text
        assert "page_content" not in text

    @pytest.mark.parametrize(
        ("variable", "hidden"),
        [
            ("OPENINFERENCE_HIDE_LLM_TOOLS", "gen_ai.tool.definitions"),
            ("OPENINFERENCE_HIDE_LLM_INVOCATION_PARAMETERS", "llm.invocation_parameters"),
            ("OPENINFERENCE_HIDE_INPUTS", "gen_ai.tool.definitions"),
        ],
    )
    def test_the_switches_of_openinference(
        self, server: JudgeServer, monkeypatch: pytest.MonkeyPatch, variable: str, hidden: str
    ) -> None:
        assert hidden in of_kind(spans_of(agent(server), ASKED), "LLM")[0]
        monkeypatch.setenv(variable, "true")
        assert hidden not in of_kind(spans_of(agent(server), ASKED), "LLM")[0]
