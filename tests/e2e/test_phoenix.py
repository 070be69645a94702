"""A chain, the one line, a judge, and a real Phoenix: what the person who opens the trace sees."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from rageval_hooks.runtime.threads import wait_until
from tests.e2e.phoenix_server import Phoenix
from tests.judges.server import JudgeServer, Received, Reply, answer

PROJECT = "harbour"
QUESTION = "How long is the new pier on Hallay and what did it cost?"

APPLICATION = """
import sys
import rageval_hooks
from rageval_hooks.demo.chain import ExtractiveModel, build_chain
from rageval_hooks.demo.handbook import load_handbook
from rageval_hooks.models import Models
from rageval_hooks.settings import ModelSettings

metrics = ["groundedness", "faithfulness", "unsupported_facts", "verdict", "context_relevance", "trace"]
handle = rageval_hooks.instrument(metrics=metrics, judge="openai:judge-model")
embedder = Models(ModelSettings()).embedder(wait=True)
build_chain(load_handbook(), embedder, ExtractiveModel()).invoke({"question": sys.argv[1]})
assert handle.flush(120)
stats = handle.stats()
assert stats["internal_errors"] == stats["export_errors"] == stats["failed"] == 0, stats
assert stats["exporters"]["phoenix-auto"]["queued"] == 0, stats
"""


BESIDE_OPENINFERENCE = """
import sys
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider(resource=Resource({"openinference.project.name": "openinference"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(sys.argv[1] + "/v1/traces")))
trace.set_tracer_provider(provider)
LangChainInstrumentor().instrument()

import rageval_hooks
from rageval_hooks.demo.chain import ExtractiveModel, build_chain
from rageval_hooks.demo.handbook import load_handbook
from rageval_hooks.models import Models
from rageval_hooks.settings import ModelSettings

handle = rageval_hooks.instrument(models="lexical")
lexical = ModelSettings(embedder="lexical", cross_encoder="lexical", nlp="lexical")
build_chain(load_handbook(), Models(lexical).embedder(), ExtractiveModel()).invoke({"question": sys.argv[2]})
assert handle.flush(60)
"""


def labels(request: Received) -> Reply:
    """Judge the first passage relevant, and the last sentence of the answer not supported."""
    question = str(request.body["messages"][-1]["content"])
    keys = re.findall(r"^([a-z]): ", question, re.MULTILINE)
    support = [
        {
            "response_sentence_key": key,
            "explanation": "the passage gives another sum" if key == keys[-1] else "as the passage says",
            "supporting_sentence_keys": [] if key == keys[-1] else ["0a"],
            "fully_supported": key != keys[-1],
        }
        for key in keys
    ]
    return answer(
        {
            "relevance_explanation": "The first passage describes the pier.",
            "all_relevant_sentence_keys": ["0a", "0b"],
            "sentence_support_information": support,
            "all_utilized_sentence_keys": ["0a"],
            "overall_supported": False,
        }
    )


def query(phoenix: Phoenix, text: str, **variables: str) -> dict[str, Any]:
    """Ask the server as its own pages do."""
    response = httpx.post(f"{phoenix.url}/graphql", json={"query": text, "variables": variables}, timeout=30)
    body = response.raise_for_status().json()
    assert "errors" not in body, body["errors"]
    return dict(body["data"])


@dataclass
class Trace:
    """A trace as the server has it.

    Attributes:
        id: 32 hex digits.
        node_id: the server's own id of it.
        project_id: the server's own id of the project.
        latency_ms: as the server shows it.
        spans: by name.
    """

    id: str
    node_id: str
    project_id: str
    latency_ms: float
    spans: dict[str, dict[str, Any]] = field(default_factory=dict)


_TRACE = """
query ($trace: String!) {
  getTraceByOtelId(traceId: $trace) {
    id latencyMs project { id }
    spans(first: 100) { edges { node {
      name spanId parentId spanKind statusCode latencyMs startTime attributes
      spanAnnotations { name score label explanation annotatorKind }
      documentEvaluations { name score documentPosition annotatorKind }
    } } }
  }
}
"""


@pytest.fixture(scope="module")
def trace(phoenix: Phoenix) -> Trace:
    """One turn of an application in another process that sends its spans to the server."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_", "OPENAI_"))}
    with JudgeServer() as judge:
        judge.otherwise(labels)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", APPLICATION, QUESTION],
            capture_output=True,
            text=True,
            timeout=300,
            env={
                **clean,
                "HF_HUB_OFFLINE": "1",
                "OPENAI_API_KEY": "sk-test",
                "OPENAI_BASE_URL": judge.url,
                "OTEL_EXPORTER_OTLP_ENDPOINT": phoenix.url,
                "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={PROJECT},service.name={PROJECT}",
                "RAGEVAL_MODELS": json.dumps({"cross_encoder": "lexical", "nlp": "lexical"}),
                "RAGEVAL_THRESHOLDS": "trace.adherence=1",
            },
        )
    assert done.returncode == 0, done.stderr
    stored = httpx.get(f"{phoenix.url}/v1/projects/{PROJECT}/spans", params={"limit": 100}, timeout=30).json()["data"]
    [trace_id] = {span["context"]["trace_id"] for span in stored}
    found = _read(phoenix, trace_id)
    # Phoenix stores annotations after it has answered.
    wait_until(lambda: any(_read(phoenix, trace_id).spans[name]["spanAnnotations"] for name in _evaluations(found)), 60)
    return _read(phoenix, trace_id)


def _read(phoenix: Phoenix, trace_id: str) -> Trace:
    node = query(phoenix, _TRACE, trace=trace_id)["getTraceByOtelId"]
    spans = {edge["node"]["name"]: edge["node"] for edge in node["spans"]["edges"]}
    return Trace(trace_id, node["id"], node["project"]["id"], node["latencyMs"], spans)


def _evaluations(trace: Trace) -> list[str]:
    return [name for name in trace.spans if name.startswith("evaluate")]


def test_the_verdict_is_alone_on_the_turns_span(trace: Trace) -> None:
    """The judge's, which took the place of the local one. Without a number, so that lists show the label."""
    [found] = trace.spans["rag handbook"]["spanAnnotations"]

    assert (found["name"], found["label"], found["score"]) == ("verdict", "bad", None)
    assert found["annotatorKind"] == "LLM"
    assert "the passage gives another sum" in found["explanation"]


def test_the_spans_of_the_evaluation_have_the_other_main_scores(trace: Trace) -> None:
    """And no other span has any."""
    found = [
        (name.split()[0], score["name"], score["label"])
        for name, span in trace.spans.items()
        for score in span["spanAnnotations"]
        if name != "rag handbook"
    ]

    assert sorted(found) == [("evaluate", "faithfulness", "fail"), ("evaluate", "unsupported_facts", "fail")]


def test_the_output_of_an_evaluation_begins_with_the_reason(trace: Trace) -> None:
    """In the words of the verdict."""
    outputs = [
        json.loads(span["attributes"])["output"]["value"] for name, span in trace.spans.items() if "evaluate" in name
    ]

    assert any(output.startswith("bad: unsupported: “") for output in outputs)


def test_the_trace_has_the_verdict_alone(phoenix: Phoenix, trace: Trace) -> None:
    """Lists show the first annotation by name."""
    url = f"{phoenix.url}/v1/projects/{PROJECT}/trace_annotations"
    found = httpx.get(url, params={"trace_ids": trace.id, "limit": 100}, timeout=30).raise_for_status().json()["data"]

    assert [(item["name"], item["result"]["label"], item["result"]["score"]) for item in found] == [
        ("verdict", "bad", 0)
    ]


def test_scores_have_direction_and_bounds(phoenix: Phoenix, trace: Trace) -> None:
    """Annotation configs of the project, so that the pages colour them."""
    url = f"{phoenix.url}/v1/projects/{PROJECT}/annotation_configs"
    found = httpx.get(url, timeout=30).raise_for_status().json()["data"]

    directions = {item["name"]: item["optimization_direction"] for item in found}
    assert directions["verdict"] == directions["faithfulness"] == "MAXIMIZE"
    assert directions["unsupported_facts"] == "MINIMIZE"


def test_documents_carry_their_scores(trace: Trace) -> None:
    """Each passage stands on the retriever's span, and has its relevance there."""
    retriever = trace.spans["retrieval HandbookRetriever"]
    documents = json.loads(retriever["attributes"])["retrieval"]["documents"]

    assert documents[0]["document"]["id"] == "hallay-harbour"
    assert documents[0]["document"]["score"] == pytest.approx(0.80, abs=0.01)
    scores = {
        item["documentPosition"]: item["score"]
        for item in retriever["documentEvaluations"]
        if item["name"] == "context_relevance"
    }
    assert sorted(scores) == [0, 1, 2, 3]
    assert scores[0] == max(scores.values())


def test_the_model_call_shows_its_conversation(trace: Trace) -> None:
    """The prompt with the passages, and the answer: the server reads the messages of GenAI's conventions."""
    [chat] = [json.loads(span["attributes"]) for name, span in trace.spans.items() if name.startswith("chat ")]
    asked = [item["message"] for item in chat["llm"]["input_messages"]]
    [answered] = [item["message"] for item in chat["llm"]["output_messages"]]
    documents = json.loads(trace.spans["retrieval HandbookRetriever"]["attributes"])["retrieval"]["documents"]
    prompt = "\n".join(message["content"] for message in asked)

    assert asked[-1]["role"] == "user"
    assert QUESTION in prompt
    assert all(item["document"]["content"] in prompt for item in documents)
    assert answered["role"] == "assistant"
    assert answered["content"] == json.loads(chat["output"]["value"])["choices"][0]["message"]["content"]


def test_the_traces_latency_is_the_turns(trace: Trace) -> None:
    """Spans that came late do not stretch it."""
    turn = trace.spans["rag handbook"]

    assert turn["parentId"] is None
    assert trace.latency_ms == pytest.approx(turn["latencyMs"], abs=0.01)
    evaluators = {name for name, span in trace.spans.items() if span["spanKind"] == "evaluator"}
    # What is ready in time depends on the machine: the first turn of a process also loads what it needs.
    assert "evaluate trace" in evaluators
    assert all(name.startswith("evaluate") for name in evaluators)
    assert {span["statusCode"] for span in trace.spans.values()} <= {"OK", "UNSET"}


def test_spans_of_openinference_get_scores_where_the_endpoint_is_in_the_code(phoenix: Phoenix) -> None:
    """No variable names the server: it is found in the provider. The retriever's documents have their scores."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PHOENIX_"))}
    command = [sys.executable, "-W", "ignore", "-c", BESIDE_OPENINFERENCE, phoenix.url, QUESTION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean)
    assert done.returncode == 0, done.stderr
    url = f"{phoenix.url}/v1/projects/openinference/spans"
    found = httpx.get(url, params={"limit": 100}, timeout=30).raise_for_status().json()["data"]
    [trace_id] = {span["context"]["trace_id"] for span in found}
    node = query(phoenix, _TRACE, trace=trace_id)["getTraceByOtelId"]
    spans = {edge["node"]["name"]: edge["node"] for edge in node["spans"]["edges"]}

    assert [(item["name"], item["label"]) for item in spans["handbook"]["spanAnnotations"]] == [("verdict", "bad")]
    assert len(spans["HandbookRetriever"]["documentEvaluations"]) == 4


def test_the_page_shows_the_scores(phoenix: Phoenix, trace: Trace, browser: Any, out: Path) -> None:
    """In a browser: the verdict in the list, alone; the turn, and its annotations."""
    page = browser.new_page(viewport={"width": 2200, "height": 560})
    page.set_default_timeout(90_000)
    try:
        page.goto(f"{phoenix.url}/projects/{trace.project_id}/spans")
        page.get_by_role("table").get_by_text("verdict").first.wait_for()
        listed = page.get_by_role("table").first.inner_text()
        page.screenshot(path=str(out / "phoenix-list.png"))
        page.set_viewport_size({"width": 1600, "height": 1000})
        page.goto(f"{phoenix.url}/projects/{trace.project_id}/traces/{trace.id}")
        page.get_by_text(re.compile("^Annotations")).first.click()
        page.locator("text=41.2 million >> visible=true").first.wait_for()
        text = page.inner_text("body")
    finally:
        page.screenshot(path=str(out / "phoenix.png"))
        page.close()

    assert re.search(r"verdict\s+bad", listed), listed
    assert "faithfulness" not in listed
    assert "rag handbook" in text
    for name in ("verdict", "faithfulness", "unsupported_facts"):
        assert name in text
    # The colour, as it is said to screen readers.
    assert re.search(r"verdict\s+Unfavorable score:\s+(μ\s+)?0", text), text


_FILTERED = """
query ($project: ID!, $spans: String, $traces: String) {
  node(id: $project) { ... on Project {
    spans(first: 100, filterCondition: $spans, traceFilterCondition: $traces) {
      edges { node { name parentId input { value } } }
    }
  } }
}
"""


@pytest.mark.parametrize(
    ("tab", "text"),
    [
        ("traces", 'trace_annotations["verdict"].label == "bad"'),
        ("spans", 'annotations["verdict"].label == "bad"'),
    ],
)
def test_the_filters_of_the_documentation_find_the_wrong_answer(phoenix: Phoenix, tab: str, text: str) -> None:
    """As the tabs of a project apply them, to the demo."""
    assert f"`{text}`" in (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PHOENIX_", "RAGEVAL_"))
    }
    script = "import sys; from rageval_hooks.cli import main; sys.argv[0] = 'rageval-hooks'; main()"
    command = [sys.executable, "-c", script, "demo", "--to", "phoenix", "--models", "lexical"]
    environment = {**clean, "PHOENIX_ENDPOINT": phoenix.url, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment)
    assert done.returncode == 0, done.stderr
    edges = query(phoenix, "{ projects { edges { node { id name } } } }")["projects"]["edges"]
    [project] = [edge["node"]["id"] for edge in edges if edge["node"]["name"] == "rageval-demo"]
    found = query(phoenix, _FILTERED, project=project, **{tab: text})["node"]["spans"]["edges"]

    roots = [edge["node"] for edge in found if edge["node"]["parentId"] is None]
    assert {root["input"]["value"] for root in roots} == {QUESTION}


def test_scores_of_a_conversation_are_annotations_of_its_session(phoenix: Phoenix) -> None:
    """Each turn's, beside those of its trace."""
    script = """
import sys
import rageval_hooks
from rageval_hooks.demo.chain import ExtractiveModel, build_chain
from rageval_hooks.demo.handbook import load_handbook
from rageval_hooks.models import Models
from rageval_hooks.settings import ModelSettings

handle = rageval_hooks.instrument(models="lexical")
lexical = ModelSettings(embedder="lexical", cross_encoder="lexical", nlp="lexical")
chain = build_chain(load_handbook(), Models(lexical).embedder(), ExtractiveModel())
for question in sys.argv[1:]:
    chain.invoke({"question": question}, config={"metadata": {"session_id": "monday"}})
assert handle.flush(60), handle.stats()
"""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PHOENIX_", "RAGEVAL_"))
    }
    environment = {**clean, "PHOENIX_COLLECTOR_ENDPOINT": phoenix.url, "PHOENIX_PROJECT_NAME": "sessions"}
    command = [sys.executable, "-W", "ignore", "-c", script, QUESTION, "Can I take my dog on the night boat?"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr

    url = f"{phoenix.url}/v1/projects/sessions/session_annotations"
    found = httpx.get(url, params={"session_ids": "monday", "limit": 100}, timeout=30).raise_for_status().json()["data"]
    assert sorted((item["name"], item["result"]["label"]) for item in found) == [
        ("verdict", "bad"),
        ("verdict", "good"),
    ]
