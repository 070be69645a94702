"""Where each convention for spans of language models keeps what, as tables. Every foreign attribute name is here.

Read from the instrumentors named in docs/traced-applications.md. The first attribute of a list that a span has counts.
"""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal["model", "search", "rerank", "tool", "agent", "chain", "embedding", "evaluation"]

KINDS: Final[tuple[tuple[str, dict[str, Kind]], ...]] = (
    (  # OpenInference
        "openinference.span.kind",
        {
            "LLM": "model",
            "RETRIEVER": "search",
            "RERANKER": "rerank",
            "TOOL": "tool",
            "AGENT": "agent",
            "CHAIN": "chain",
            "PROMPT": "chain",
            "GUARDRAIL": "chain",
            "EMBEDDING": "embedding",
            "EVALUATOR": "evaluation",
        },
    ),
    (  # OpenTelemetry's GenAI conventions
        "gen_ai.operation.name",
        {
            "chat": "model",
            "text_completion": "model",
            "generate_content": "model",
            "completion": "model",
            "acompletion": "model",
            "retrieval": "search",
            "execute_tool": "tool",
            "invoke_agent": "agent",
            "invoke_workflow": "chain",
            "embeddings": "embedding",
        },
    ),
    (  # OpenLLMetry
        "llm.request.type",
        {"chat": "model", "completion": "model", "rerank": "rerank", "embedding": "embedding"},
    ),
    ("traceloop.span.kind", {"workflow": "chain", "task": "chain", "agent": "agent", "tool": "tool"}),
    (  # MLflow
        "mlflow.spanType",
        {
            "CHAT_MODEL": "model",
            "LLM": "model",
            "RETRIEVER": "search",
            "RERANKER": "rerank",
            "TOOL": "tool",
            "AGENT": "agent",
            "CHAIN": "chain",
            "WORKFLOW": "chain",
            "PARSER": "chain",
            "EMBEDDING": "embedding",
            "EVALUATOR": "evaluation",
        },
    ),
    (  # LangSmith
        "langsmith.span.kind",
        {"LLM": "model", "RETRIEVER": "search", "TOOL": "tool", "CHAIN": "chain", "PROMPT": "chain", "PARSER": "chain"},
    ),
    (
        "langfuse.observation.type",
        {
            "GENERATION": "model",
            "RETRIEVER": "search",
            "TOOL": "tool",
            "AGENT": "agent",
            "CHAIN": "chain",
            "SPAN": "chain",
            "EMBEDDING": "embedding",
            "EVALUATOR": "evaluation",
        },
    ),
    (  # Vercel's AI SDK
        "ai.operationId",
        {
            "ai.generateText": "agent",
            "ai.streamText": "agent",
            "ai.generateObject": "agent",
            "ai.streamObject": "agent",
            "ai.generateText.doGenerate": "model",
            "ai.streamText.doStream": "model",
            "ai.generateObject.doGenerate": "model",
            "ai.streamObject.doStream": "model",
            "ai.toolCall": "tool",
            "ai.embed": "embedding",
            "ai.embedMany": "embedding",
        },
    ),
)

NAMES: Final[dict[str, Kind]] = {
    "haystack.pipeline.run": "chain",
    "haystack.async_pipeline.run": "chain",
    "haystack.agent.run": "agent",
    "haystack.component.run": "chain",
    "invocation": "chain",  # Google ADK
    "call_llm": "model",
}
"""Kinds by the name of a span, where no attribute says it."""

COMPONENT: Final = "haystack.component.type"
COMPONENTS: Final[tuple[tuple[str, Kind], ...]] = (
    ("Retriever", "search"),
    ("Ranker", "rerank"),
    ("Generator", "model"),
    ("ToolInvoker", "tool"),
    ("Agent", "agent"),
    ("Embedder", "embedding"),
)
"""How the types of Haystack's components end."""

INPUTS: Final = (
    "input.value",
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "traceloop.entity.input",
    "mlflow.spanInputs",
    "haystack.pipeline.input_data",
    "haystack.agent.input",
    "haystack.component.input",
    "langfuse.observation.input",
    "gen_ai.prompt",
    "crew_inputs",
    "gcp.vertex.agent.tool_call_args",
    "ai.toolCall.args",
    "ai.toolCall.input",
)
OUTPUTS: Final = (
    "final_result",
    "gen_ai.tool.call.result",
    "tool_response",
    "output.value",
    "crew.result",
    "crewai.crew.result",
    "traceloop.entity.output",
    "mlflow.spanOutputs",
    "langfuse.observation.output",
    "gen_ai.completion",
    "haystack.agent.output",
    "haystack.component.output",
    "haystack.pipeline.output_data",
    "gcp.vertex.agent.tool_response",
    "ai.toolCall.result",
    "ai.toolCall.output",
    "ai.response.text",
    "ai.response.object",
)
MESSAGES_IN: Final = (
    "gen_ai.input.messages",
    "pydantic_ai.all_messages",
    "all_messages_events",
    "gcp.vertex.agent.llm_request",
    "ai.prompt.messages",
    "ai.prompt",
    "mlflow.chat.messages",
    "crewai.crew.tasks_output",
    "events",
)
"""Messages as JSON. Those of a whole run, Pydantic AI's and older events, hold the answer as well."""

MESSAGES_OUT: Final = ("gen_ai.output.messages", "gcp.vertex.agent.llm_response")
NUMBERED_IN: Final = ("llm.input_messages.", "gen_ai.prompt.", "llm.prompts.")
NUMBERED_OUT: Final = ("llm.output_messages.", "gen_ai.completion.", "llm.completions.")
INSTRUCTIONS: Final = ("gen_ai.system_instructions",)

EVENTS_OUT: Final = frozenset({"gen_ai.choice", "gen_ai.assistant.message"})
EVENTS_IN: Final = frozenset({"gen_ai.user.message", "gen_ai.system.message", "gen_ai.tool.message"})
"""Span events of earlier GenAI conventions, one for each message."""
CONTENT_EVENTS: Final = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}
"""Span events of the first GenAI conventions, and the attribute that holds all messages as JSON."""

DOCUMENTS: Final = ("retrieval.documents.", "reranker.output_documents.")
DOCUMENTS_JSON: Final = ("gen_ai.retrieval.documents",)
VARIABLES: Final = ("gen_ai.prompt.variable.",)
VARIABLES_JSON: Final = ("llm.prompt_template.variables",)

TASKS: Final = "crewai.crew.tasks_output"
"""The results of a crew's tasks as ``repr``, each with its description."""
QUERIES: Final = ("gen_ai.retrieval.query.text", "reranker.query")
TOOL_NAMES: Final = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
TOOL_DESCRIPTIONS: Final = ("gen_ai.tool.description", "tool.description")
CALL_IDS: Final = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id")
MODELS: Final = (
    "gen_ai.response.model",
    "llm.model_name",
    "gen_ai.request.model",
    "llm.response.model",
    "ai.response.model",
    "ai.model.id",
)
RESPONSE_IDS: Final = ("gen_ai.response.id", "ai.response.id")
INPUT_TOKENS: Final = (
    "gen_ai.usage.input_tokens",
    "llm.token_count.prompt",
    "gen_ai.usage.prompt_tokens",
    "ai.usage.promptTokens",
    "ai.usage.inputTokens",
)
OUTPUT_TOKENS: Final = (
    "gen_ai.usage.output_tokens",
    "llm.token_count.completion",
    "gen_ai.usage.completion_tokens",
    "ai.usage.completionTokens",
    "ai.usage.outputTokens",
)
SESSIONS: Final = ("session.id", "gen_ai.conversation.id", "traceloop.association.properties.session_id")
USERS: Final = ("user.id", "enduser.id", "traceloop.association.properties.user_id")

_GENAI_SWITCH: Final = (
    "set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"
)
SWITCHES: Final[tuple[tuple[str, str, str], ...]] = (
    ("openinference.", "OpenInference", "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and the like"),
    (
        "gcp.vertex.agent.",
        "Google ADK",
        _GENAI_SWITCH,
    ),
    ("logfire.", "Pydantic AI", "leave out InstrumentationSettings(include_content=False)"),
    ("haystack.", "Haystack", "set HAYSTACK_CONTENT_TRACING_ENABLED=true"),
    ("traceloop.", "OpenLLMetry", "unset TRACELOOP_TRACE_CONTENT=false"),
    ("llm.request.type", "OpenLLMetry", "unset TRACELOOP_TRACE_CONTENT=false"),
    ("mlflow.", "MLflow", "record the inputs and outputs of its spans"),
    ("ai.operationId", "Vercel's AI SDK", "set recordInputs and recordOutputs of experimental_telemetry to true"),
    (
        "gen_ai.",
        "OpenTelemetry GenAI",
        _GENAI_SWITCH,
    ),
)
"""By the beginning of an attribute's name: who writes it, and how to record the texts."""

SCOPE_SWITCHES: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "semantic_kernel",
        "Semantic Kernel",
        "set SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true; its questions are on logs only",
    ),
    ("autogen", "AutoGen", "use OpenInference's instrumentor, because its own spans never have texts"),
    ("agent_framework", "Agent Framework", "set ENABLE_SENSITIVE_DATA=true"),
    ("litellm", "LiteLLM", "leave out litellm.turn_off_message_logging"),
)
"""By what the name of a tracer contains, where its attributes do not say who writes them."""

PLACEHOLDERS: Final = frozenset(
    "__REDACTED__ REDACTED [REDACTED] <REDACTED> <redacted> [redacted] ***REDACTED*** **REDACTED** [HIDDEN] <hidden> "
    "<elided> redacted-by-litellm".split()
)
"""What is written in place of a text."""
