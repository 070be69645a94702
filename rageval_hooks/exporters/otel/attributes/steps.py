"""The attributes of a step's span: retrievals, model calls and tools, in OpenInference's names and those of GenAI."""

from __future__ import annotations

from collections.abc import Callable

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.attributes.model_calls import add_model_call
from rageval_hooks.exporters.otel.attributes.ordering import Attributes, indexed, is_json, json_string
from rageval_hooks.turn import Passage, Step, StepKind, Turn

__all__ = ["step_attributes", "step_name"]

_SPAN_KINDS: dict[StepKind, str] = {
    "chain": "CHAIN",
    "agent": "AGENT",
    "retriever": "RETRIEVER",
    "reranker": "RERANKER",
    "embedding": "EMBEDDING",
    "llm": "LLM",
    "tool": "TOOL",
    "prompt": "PROMPT",
    "parser": "CHAIN",
}
_OPERATIONS: dict[StepKind, str] = {
    "retriever": "retrieval",
    "reranker": "rerank",  # not in the conventions, which have no operation for it
    "embedding": "embeddings",
    "llm": "chat",
    "tool": "execute_tool",
    "agent": "invoke_agent",
}


def step_name(step: Step) -> str:
    """Return the span's name: the operation, and the model or the component."""
    operation = _OPERATIONS.get(step.kind)
    if operation is None:
        return step.name
    return f"{operation} {step.model or step.name}" if step.kind == "llm" else f"{operation} {step.name}"


def step_attributes(step: Step, turn: Turn, policy: ContentPolicy) -> Attributes:
    """Return the attributes of the span of one step."""
    attributes = Attributes()
    attributes[semconv.SPAN_KIND] = _SPAN_KINDS[step.kind]
    attributes.put(semconv.OPERATION_NAME, _OPERATIONS.get(step.kind))
    if step.error is not None:
        attributes[semconv.ERROR_TYPE] = step.error.type
    if not step.complete:
        attributes[semconv.STEP_INCOMPLETE] = True
    attributes.put(semconv.SESSION_ID, turn.session_id)
    add = _BY_KIND.get(step.kind, _add_values)
    add(attributes, step, policy)
    _add_documents(attributes, step, policy)
    return attributes


def _add_values(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    input_shown, output_shown = policy.shows(step)
    _add_value(attributes, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE, step.input, policy, input_shown)
    _add_value(attributes, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE, step.output, policy, output_shown)


def _add_value(
    attributes: Attributes, name: str, mime_name: str, text: str | None, policy: ContentPolicy, shown: bool
) -> None:
    if text is None:
        return
    attributes[name] = policy.quote(text, shown)
    attributes[mime_name] = semconv.JSON if shown and is_json(text) else semconv.TEXT


def _add_tool(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    _add_values(attributes, step, policy)
    attributes[semconv.TOOL_NAME] = step.name
    attributes[semconv.GEN_AI_TOOL_NAME] = step.name
    attributes.put(semconv.TOOL_CALL_ID, step.call_id)
    if policy.tools:
        attributes.put(semconv.TOOL_DESCRIPTION, step.description)
        attributes.put(semconv.GEN_AI_TOOL_DESCRIPTION, step.description)
        attributes.put(semconv.TOOL_PARAMETERS, step.tool_schema)
    input_shown, output_shown = policy.shows(step)
    if input_shown:
        attributes.put(semconv.TOOL_CALL_ARGUMENTS, step.input)
    if output_shown:
        attributes.put(semconv.TOOL_CALL_RESULT, step.output)


def _add_retrieval(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    _add_values(attributes, step, policy)
    if policy.inputs:
        attributes.put(semconv.RETRIEVAL_QUERY_TEXT, step.input)
    _add_found(attributes, step, policy)
    # Ids and scores quote no text, so they are shown even where content is hidden.
    documents = [{"id": passage.id, "score": passage.score} for passage in step.passages]
    attributes[semconv.RETRIEVAL_DOCUMENTS] = json_string(documents)
    attributes.put(semconv.RETRIEVAL_TOP_K, step.top_k)
    attributes.put(semconv.DATA_SOURCE_ID, step.data_source)


def _add_reranking(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    _add_values(attributes, step, policy)
    attributes.put(semconv.RERANKER_QUERY, policy.quote(step.input, policy.inputs))
    _add_found(attributes, step, policy)


def _add_found(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    """Add the documents as one JSON value: MLflow and Langfuse show a span's output and not its list of documents."""
    if not policy.documents or step.output is not None or step.error is not None:
        return
    documents = [
        {"page_content": passage.text, "id": passage.id, "metadata": passage.metadata} for passage in step.passages
    ]
    attributes[semconv.OUTPUT_VALUE] = json_string(documents)
    attributes[semconv.OUTPUT_MIME_TYPE] = semconv.JSON


_BY_KIND: dict[StepKind, Callable[[Attributes, Step, ContentPolicy], None]] = {
    "llm": add_model_call,
    "tool": _add_tool,
    "retriever": _add_retrieval,
    "reranker": _add_reranking,
}


def _add_documents(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    # Each kind has its own names: backends draw a reranker's documents next to those that went in.
    template = semconv.RERANKER_OUTPUT_DOCUMENT if step.kind == "reranker" else semconv.RETRIEVAL_DOCUMENT
    for index, passage in enumerate(step.passages):
        attributes[indexed(template, index, "content")] = policy.quote(passage.text, policy.documents)
        attributes.put(indexed(template, index, "id"), passage.id)
        attributes.put(indexed(template, index, "score"), passage.score)
        if policy.documents:
            attributes.put(indexed(template, index, "metadata"), _document_metadata(passage))


def _document_metadata(passage: Passage) -> str | None:
    metadata = dict(passage.metadata)
    if passage.in_prompt is not None:
        metadata[semconv.DOCUMENT_IN_PROMPT] = passage.in_prompt
        metadata[semconv.DOCUMENT_PROMPT_SHARE] = passage.prompt_share
    return json_string(metadata) if metadata else None
