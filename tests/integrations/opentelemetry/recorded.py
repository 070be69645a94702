"""Recorded traces of real applications, and small ones written by hand in the form of each convention."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

QUESTION = "When was the Tessel canal lock rebuilt?"
PASSAGE = "The Tessel canal lock was rebuilt in 1934 and is 64 metres long."
OTHER = "In May 2018 the gates of the lock were replaced after 84 years."
ANSWER = "It was last rebuilt in 1934."
PROMPT = f"Answer from the context only.\n\nContext:\n{PASSAGE}\n\n{OTHER}\n\nQuestion: {QUESTION}"
DSPY_PROMPT = f"[[ ## context ## ]]\n[1] «{PASSAGE}»\n[2] «{OTHER}»\n\n[[ ## question ## ]]\n{QUESTION}\n"
SEARCH = "Tessel canal lock rebuilt"


OWN = Path(__file__).with_name("recordings")
"""Recordings that scripts/record_traces.py made."""


def _folders() -> list[Path]:
    """Return the folders with recordings of real applications; a machine may have more than the own ones."""
    given = os.environ.get("RAGEVAL_TEST_TRACES")
    others = [Path(given)] if given else [up / "shared/data/traced" for up in Path(__file__).resolve().parents]
    return [OWN, *[folder for folder in others if folder.is_dir()][:1]]


def load(name: str) -> dict[str, Any]:
    """Return a recording."""
    path = next(folder / name for folder in _folders() if (folder / name).exists())
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def names() -> list[str]:
    """Return the names of the recordings."""
    return sorted(path.name for folder in _folders() for path in folder.glob("*.json"))


def span(number: int, parent: int, name: str, attributes: dict[str, Any] | None = None, **about: Any) -> dict[str, Any]:
    """Return a span as the SDK writes it. Spans start by their numbers; one ends after those inside it."""
    end = about.pop("end", None) or (90 - parent if number == 1 else number * 10 + 5)
    return {
        "name": name,
        "context": {"trace_id": "0x" + "5" * 32, "span_id": f"0x{number:016x}"},
        "parent_id": f"0x{parent:016x}" if parent else None,
        "start_time": f"2026-11-28T05:00:00.{number * 10:06d}Z",
        "end_time": f"2026-11-28T05:00:00.{end * 10 if number == 1 else end:06d}Z",
        "status": {"status_code": "UNSET"},
        "attributes": attributes or {},
        "events": [],
        **about,
    }


def text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value)


def said(role: str, content: str) -> dict[str, Any]:
    """Return a message of the GenAI conventions."""
    return {"role": role, "parts": [{"type": "text", "content": content}]}


_TOOL_MESSAGES = [
    said("user", QUESTION),
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c1", "name": "search_guide", "arguments": {"q": SEARCH}}],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": PASSAGE}]},
]
_OPENAI_TOOL_MESSAGES = [
    {"role": "user", "content": QUESTION},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": {"name": "search_guide", "arguments": text({"query": SEARCH})}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": PASSAGE},
]

CONVENTIONS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "GenAI, tool calls by hand": (
        [
            span(1, 0, "ask"),
            span(
                2,
                1,
                "chat m",
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.input.messages": text(_TOOL_MESSAGES[:1]),
                    "gen_ai.output.messages": text(_TOOL_MESSAGES[1:2]),
                },
            ),
            span(
                3,
                1,
                "chat m",
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.input.messages": text(_TOOL_MESSAGES),
                    "gen_ai.output.messages": text([said("assistant", ANSWER)]),
                },
            ),
        ],
        [PASSAGE],
    ),
    "GenAI, span events of earlier versions": (
        [
            span(
                1,
                0,
                "chat m",
                {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"},
                events=[
                    {"name": "gen_ai.user.message", "attributes": {"content": PROMPT}},
                    {
                        "name": "gen_ai.choice",
                        "attributes": {"message": text({"role": "assistant", "content": ANSWER})},
                    },
                ],
            )
        ],
        [PASSAGE, OTHER],
    ),
    "GenAI, events with all messages": (
        [
            span(
                1,
                0,
                "chat m",
                {"gen_ai.operation.name": "chat"},
                events=[
                    {
                        "name": "gen_ai.content.prompt",
                        "attributes": {"gen_ai.prompt": text([{"role": "user", "content": PROMPT}])},
                    },
                    {
                        "name": "gen_ai.content.completion",
                        "attributes": {"gen_ai.completion": text([{"role": "assistant", "content": ANSWER}])},
                    },
                ],
            )
        ],
        [PASSAGE, OTHER],
    ),
    "GenAI, the event of the details": (
        [
            span(
                1,
                0,
                "chat m",
                {"gen_ai.operation.name": "chat"},
                events=[
                    {
                        "name": "gen_ai.client.inference.operation.details",
                        "attributes": {
                            "gen_ai.input.messages": text([said("user", PROMPT)]),
                            "gen_ai.output.messages": text([said("assistant", ANSWER)]),
                        },
                    }
                ],
            )
        ],
        [PASSAGE, OTHER],
    ),
    "OpenLLMetry, client": (
        [
            span(
                1,
                0,
                "openai.chat",
                {
                    "llm.request.type": "chat",
                    "gen_ai.prompt.0.role": "system",
                    "gen_ai.prompt.0.content": "You help.",
                    "gen_ai.prompt.1.role": "user",
                    "gen_ai.prompt.1.content": PROMPT,
                    "gen_ai.completion.0.role": "assistant",
                    "gen_ai.completion.0.content": ANSWER,
                },
            )
        ],
        [PASSAGE, OTHER],
    ),
    "OpenLLMetry, tool messages": (
        [
            span(
                1,
                0,
                "openai.chat",
                {
                    "llm.request.type": "chat",
                    "gen_ai.prompt.0.role": "user",
                    "gen_ai.prompt.0.content": QUESTION,
                    "gen_ai.prompt.1.role": "assistant",
                    "gen_ai.prompt.1.tool_calls.0.id": "c1",
                    "gen_ai.prompt.1.tool_calls.0.name": "search_guide",
                    "gen_ai.prompt.1.tool_calls.0.arguments": text({"query": SEARCH}),
                    "gen_ai.prompt.2.role": "tool",
                    "gen_ai.prompt.2.tool_call_id": "c1",
                    "gen_ai.prompt.2.content": PASSAGE,
                    "gen_ai.completion.0.role": "assistant",
                    "gen_ai.completion.0.content": ANSWER,
                },
            )
        ],
        [PASSAGE],
    ),
    "OpenLLMetry, workflow": (
        [
            span(
                1,
                0,
                "RunnableSequence.workflow",
                {
                    "traceloop.span.kind": "workflow",
                    "traceloop.entity.input": text({"inputs": QUESTION, "kwargs": {"name": "RunnableSequence"}}),
                    "traceloop.entity.output": text({"outputs": ANSWER, "kwargs": {"tags": []}}),
                },
            ),
            span(
                2,
                1,
                "retrieve.task",
                {
                    "traceloop.span.kind": "task",
                    "traceloop.entity.name": "CanalRetriever",
                    "traceloop.entity.input": text({"query": QUESTION}),
                    "traceloop.entity.output": text([{"page_content": PASSAGE, "metadata": {"id": "canal-1"}}]),
                },
            ),
        ],
        [PASSAGE],
    ),
    "Pydantic AI, version 2": (
        [
            span(
                1,
                0,
                "agent run",
                {
                    "agent_name": "agent",
                    "all_messages_events": text(
                        [
                            {"event.name": "gen_ai.user.message", "role": "user", "content": QUESTION},
                            {
                                "event.name": "gen_ai.assistant.message",
                                "role": "assistant",
                                "tool_calls": [{"id": "c1", "function": {"name": "search_guide", "arguments": "{}"}}],
                            },
                            {
                                "event.name": "gen_ai.tool.message",
                                "role": "tool",
                                "id": "c1",
                                "name": "search_guide",
                                "content": PASSAGE,
                            },
                            {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": ANSWER},
                        ]
                    ),
                    "final_result": ANSWER,
                    "logfire.msg": "agent run",
                },
            ),
            span(
                2,
                1,
                "running tool",
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "search_guide",
                    "tool_arguments": text({"query": SEARCH}),
                    "tool_response": PASSAGE,
                },
            ),
        ],
        [PASSAGE],
    ),
    "Vercel": (
        [
            span(
                1,
                0,
                "ai.generateText",
                {
                    "ai.operationId": "ai.generateText",
                    "ai.prompt": text({"system": "You help.", "prompt": QUESTION}),
                    "ai.response.text": ANSWER,
                },
            ),
            span(
                2,
                1,
                "ai.toolCall",
                {
                    "ai.operationId": "ai.toolCall",
                    "ai.toolCall.name": "searchGuide",
                    "ai.toolCall.id": "c1",
                    "ai.toolCall.args": text({"query": SEARCH}),
                    "ai.toolCall.result": text([{"id": "canal-1", "text": PASSAGE, "score": 1}]),
                },
            ),
            span(
                3,
                1,
                "ai.generateText.doGenerate",
                {
                    "ai.operationId": "ai.generateText.doGenerate",
                    "ai.prompt.messages": text(
                        [
                            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
                            {
                                "role": "tool",
                                "content": [
                                    {
                                        "type": "tool-result",
                                        "toolCallId": "c1",
                                        "toolName": "searchGuide",
                                        "output": {"type": "text", "value": PASSAGE},
                                    }
                                ],
                            },
                        ]
                    ),
                    "ai.response.text": ANSWER,
                },
            ),
        ],
        [PASSAGE],
    ),
    "MLflow": (
        [
            span(
                1,
                0,
                "predict",
                {
                    "mlflow.spanType": text("CHAIN"),
                    "mlflow.spanInputs": text({"question": QUESTION}),
                    "mlflow.spanOutputs": text(ANSWER),
                },
            ),
            span(
                2,
                1,
                "search",
                {
                    "mlflow.spanType": text("RETRIEVER"),
                    "mlflow.spanInputs": text(QUESTION),
                    "mlflow.spanOutputs": text(
                        [{"page_content": PASSAGE, "metadata": {"doc_uri": "guide.md"}, "id": "1"}]
                    ),
                },
            ),
        ],
        [PASSAGE],
    ),
    "Google ADK": (
        [
            span(1, 0, "invocation"),
            span(
                2,
                1,
                "invoke_agent canal",
                {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "canal"},
                end=85,
            ),
            span(
                3,
                2,
                "execute_tool search_guide",
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "search_guide",
                    "gcp.vertex.agent.tool_call_args": text({"query": SEARCH}),
                    "gcp.vertex.agent.tool_response": text({"result": [{"id": "canal-1", "text": PASSAGE}]}),
                    "gcp.vertex.agent.llm_request": "{}",
                },
            ),
            span(
                4,
                2,
                "call_llm",
                {
                    "gcp.vertex.agent.llm_request": text(
                        {
                            "model": "m",
                            "config": {"system_instruction": "You help."},
                            "contents": [
                                {"role": "user", "parts": [{"text": QUESTION}]},
                                {"role": "model", "parts": [{"function_call": {"name": "search_guide", "args": {}}}]},
                                {
                                    "role": "user",
                                    "parts": [
                                        {
                                            "function_response": {
                                                "name": "search_guide",
                                                "response": {"result": [{"id": "canal-1", "text": PASSAGE}]},
                                            }
                                        }
                                    ],
                                },
                            ],
                        }
                    ),
                    "gcp.vertex.agent.llm_response": text({"content": {"role": "model", "parts": [{"text": ANSWER}]}}),
                },
            ),
        ],
        [PASSAGE],
    ),
    "DSPy, OpenInference": (
        [
            span(
                1,
                0,
                "Rag.forward",
                {
                    "openinference.span.kind": "CHAIN",
                    "input.value": text({"question": QUESTION}),
                    "output.value": f"Prediction(\n    reasoning='It says so.',\n    answer={ANSWER!r}\n)",
                },
            ),
            span(
                2,
                1,
                "ChainOfThought.forward",
                {
                    "openinference.span.kind": "CHAIN",
                    "input.value": text({"context": [PASSAGE, OTHER], "question": QUESTION}),
                    "output.value": text({"reasoning": "It says so.", "answer": ANSWER}),
                },
            ),
            span(
                3,
                2,
                "LM",
                {
                    "openinference.span.kind": "LLM",
                    "llm.input_messages.0.message.role": "user",
                    "llm.input_messages.0.message.content": (DSPY_PROMPT),
                    "llm.output_messages.0.message.role": "assistant",
                    "llm.output_messages.0.message.content": (
                        f"[[ ## reasoning ## ]]\nIt says so.\n\n[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]"
                    ),
                },
            ),
        ],
        [PASSAGE, OTHER],
    ),
    "DSPy, GenAI": (
        [
            span(
                1,
                0,
                "chat m",
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.input.messages": text(
                        [
                            said(
                                "user",
                                DSPY_PROMPT,
                            )
                        ]
                    ),
                    "gen_ai.output.messages": text(
                        [said("assistant", f"[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]")]
                    ),
                },
            )
        ],
        [PASSAGE, OTHER],
    ),
    "CrewAI, OpenInference": (
        [
            span(
                1,
                0,
                "Crew.kickoff",
                {
                    "openinference.span.kind": "CHAIN",
                    "crew_inputs": text({"question": QUESTION}),
                    "output.value": ANSWER,
                },
            ),
            span(2, 1, "Task._execute_core", {"openinference.span.kind": "AGENT", "output.value": ANSWER}, end=80),
            span(
                3,
                2,
                "search_guide",
                {
                    "openinference.span.kind": "TOOL",
                    "tool.name": "search_guide",
                    "input.value": text({"query": SEARCH}),
                    "output.value": PASSAGE,
                },
            ),
        ],
        [PASSAGE],
    ),
    "smolagents, OpenInference": (
        [
            span(
                1,
                0,
                "ToolCallingAgent.run",
                {
                    "openinference.span.kind": "AGENT",
                    "input.value": text({"task": QUESTION, "stream": False, "additional_args": None}),
                    "output.value": ANSWER,
                },
            ),
            span(
                2,
                1,
                "SearchTool",
                {
                    "openinference.span.kind": "TOOL",
                    "tool.name": "search_guide",
                    "input.value": text({"args": [], "kwargs": {"query": SEARCH}}),
                    "output.value": PASSAGE,
                },
            ),
        ],
        [PASSAGE],
    ),
    "Semantic Kernel": (
        [
            span(
                1,
                0,
                "invoke_agent canal",
                {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.input.messages": text([said("user", QUESTION)]),
                    "gen_ai.output.messages": text([said("assistant", ANSWER)]),
                },
            ),
            span(
                2,
                1,
                "execute_tool Guide-search",
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "Guide-search",
                    "gen_ai.tool.call.arguments": text({"query": SEARCH}),
                    "gen_ai.tool.call.result": PASSAGE,
                },
            ),
        ],
        [PASSAGE],
    ),
    "LlamaIndex, OpenInference": (
        [
            span(
                1,
                0,
                "RetrieverQueryEngine.query",
                {"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": ANSWER},
            ),
            span(
                2,
                1,
                "VectorIndexRetriever._retrieve",
                {
                    "openinference.span.kind": "RETRIEVER",
                    "input.value": QUESTION,
                    "retrieval.documents.0.document.content": PASSAGE,
                    "retrieval.documents.0.document.id": "canal-1",
                    "retrieval.documents.0.document.score": 0.9,
                },
            ),
        ],
        [PASSAGE],
    ),
}
"""By convention: spans of a turn with :data:`QUESTION` and :data:`ANSWER`, and the texts of its passages."""
