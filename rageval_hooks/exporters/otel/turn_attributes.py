"""The attributes of the spans of turns, steps and model calls, in OpenInference's names and those of GenAI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import from_json

from rageval_hooks.exporters.otel.attributes import Attributes, guard_attributes, json_string, main_scores
from rageval_hooks.privacy import REDACTED
from rageval_hooks.score import Result
from rageval_hooks.text.formatting import truncate
from rageval_hooks.turn import Message, Step, StepKind, ToolCall, Turn


def turn_attributes(turn: Turn, results: Iterable[Result]) -> Attributes:
    """Return the attributes of a turn's span.

    Args:
        turn: the turn.
        results: its inline results; the span of the evaluation has all of them, this one the main ones.
    """
    agent, timing, usage = is_agent(turn), turn.timing, turn.usage
    earlier = len(turn.passages) - len(turn.retrieved)
    seen = Counter(passage.in_prompt for passage in turn.passages)
    attributes: Attributes = {
        "openinference.span.kind": "AGENT" if agent else "CHAIN",
        "gen_ai.operation.name": turn_operation(turn),
        "gen_ai.agent.name": turn.name,
        "gen_ai.workflow.name": None if agent else turn.name,
        "rageval.turn.status": turn.status,
        "error.type": None if turn.error is None else turn.error.type,
        **_value("input", turn.query),
        **_value("output", turn.response),
        **main_scores(results),
        **guard_attributes(turn),
        "rageval.turn.id": turn.id,
        "rageval.framework": turn.framework,
        "session.id": turn.session_id,
        "gen_ai.conversation.id": turn.session_id,
        "user.id": turn.user_id,
        "rageval.passages.count": len(turn.retrieved) if turn.has_retrieval else None,
        "rageval.passages.of_earlier_turns": earlier or None,
        # None stands for passages of which no prompt is known. A count of 0 would say that the model saw none.
        "rageval.passages.in_prompt": seen[True] if seen.keys() - {None} else None,
    }
    if timing is not None:
        parts = ("retrieval", "generation", "time_to_first_token", "waiting")
        attributes |= {f"rageval.timing.{part}": getattr(timing, part) for part in parts}
    if usage is not None:
        # Under our own names: a backend adds up the tokens of the model calls below, and must not count them twice.
        attributes["rageval.tokens.input"] = usage.input_tokens
        attributes["rageval.tokens.output"] = usage.output_tokens
        attributes["rageval.usage.source"] = usage.source
    # The conversation as a reader of the trace sees it. The prompt that is made of the question is on the model call.
    attributes |= _input_messages([Message(role="user", content=turn.query)] if turn.query else [])
    if turn.response:
        attributes |= _output_message(turn.response, (), "stop" if turn.status == "ok" else "error")
    if turn.retrieval_queries:
        attributes["rageval.retrieval.queries"] = json_string(turn.retrieval_queries)
    if turn.metadata:
        attributes["metadata"] = json_string(turn.metadata)
    return attributes


def _value(name: str, text: str, *, is_json: bool = False) -> Attributes:
    """Return what a span shows as its ``input`` or ``output``, with its type."""
    return {f"{name}.value": text, f"{name}.mime_type": "application/json" if is_json else "text/plain"}


def turn_operation(turn: Turn) -> str:
    """Return the conventions' name for what a turn is."""
    return "invoke_agent" if is_agent(turn) else "invoke_workflow"


def is_agent(turn: Turn) -> bool:
    """Return True for an agent's turn: it calls tools. A plain chain calls its retriever and its model itself."""
    return not {"agent", "tool"}.isdisjoint(step.kind for step in turn.steps)


# --------------------------------------------------------------------------- steps

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


def step_attributes(step: Step, turn: Turn, *, draws_values: bool) -> Attributes:
    """Return the attributes of the span of one step.

    Args:
        step: the step.
        turn: its turn.
        draws_values: True for a backend that draws a span's input and output and no list of documents or messages.
            They are then written in both forms.
    """
    attributes: Attributes = {
        "openinference.span.kind": "CHAIN" if step.kind == "parser" else step.kind.upper(),
        "gen_ai.operation.name": _OPERATIONS.get(step.kind),
        "error.type": None if step.error is None else step.error.type,
        "rageval.incomplete": None if step.complete else True,
        "session.id": turn.session_id,
    }
    if step.kind == "llm":
        attributes |= _model_call(step, draws_values)
    else:
        for name, text in (("input", step.input), ("output", step.output)):
            if text is not None:
                attributes |= _value(name, text, is_json=_is_json(text))
    if step.kind == "tool":
        attributes |= _tool(step)
    elif step.kind in ("retriever", "reranker"):
        attributes |= _search(step, draws_values)
    # Each kind has its own names: backends draw a reranker's documents next to those that went in.
    prefix = "reranker.output_documents" if step.kind == "reranker" else "retrieval.documents"
    for index, passage in enumerate(step.passages):
        metadata = dict(passage.metadata)
        if passage.in_prompt is not None:
            metadata["rageval.document.in_prompt"] = passage.in_prompt
            metadata["rageval.document.prompt_share"] = passage.prompt_share
        document = f"{prefix}.{index}.document"
        attributes |= {
            f"{document}.content": passage.text,
            f"{document}.id": passage.id,
            f"{document}.score": passage.score,
            f"{document}.metadata": json_string(metadata) if metadata else None,
        }
    return attributes


def _tool(step: Step) -> Attributes:
    return {
        "tool.name": step.name,
        "gen_ai.tool.name": step.name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": step.call_id,
        "tool.description": step.description,
        "gen_ai.tool.description": step.description,
        "tool.parameters": step.tool_schema,
        "gen_ai.tool.call.arguments": step.input,
        "gen_ai.tool.call.result": step.output,
    }


def _search(step: Step, draws_values: bool) -> Attributes:
    attributes: Attributes = {}
    if step.output is None and step.passages:
        found = [
            {"page_content": passage.text, "id": passage.id, "metadata": passage.metadata} for passage in step.passages
        ]
        beginning = truncate("\n".join(passage.text for passage in step.passages[:_MAX_PREVIEWED]), _MAX_PREVIEW)
        attributes |= _value("output", json_string(found) if draws_values else beginning, is_json=draws_values)
    if step.kind == "reranker":
        return {**attributes, "reranker.query": step.input}
    # Ids and scores quote no text, so they are shown even where content is hidden.
    documents = [{"id": passage.id, "score": passage.score} for passage in step.passages]
    return {
        **attributes,
        "gen_ai.retrieval.query.text": step.input,
        "gen_ai.retrieval.documents": json_string(documents),
        "gen_ai.retrieval.top_k": step.top_k,
        "gen_ai.data_source.id": step.data_source,
    }


# --------------------------------------------------------------------------- model calls

_MAX_PREVIEWED = 5
_MAX_PREVIEW = 500
"""Characters of a text that the span has whole under another name."""

# The conventions' names for parameters, by the names that providers and frameworks use.
_REQUEST_PARAMETERS = {
    **{name: name for name in ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed")},
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), "max_tokens"),
    "n": "choice.count",
}

# The conventions' names of providers, by LangChain's and LlamaIndex's. Others are the same in both.
_PROVIDERS = {
    **dict.fromkeys(("azure", "azure_openai"), "azure.ai.openai"),
    **dict.fromkeys(("azure_ai", "azure_inference", "azureml"), "azure.ai.inference"),
    **dict.fromkeys(("google_vertexai", "google_anthropic_vertex", "vertex", "vertexai"), "gcp.vertex_ai"),
    **dict.fromkeys(("google_genai", "gemini", "google"), "gcp.gemini"),
    **dict.fromkeys(("amazon_bedrock", "aws_bedrock", "bedrock", "bedrock_converse"), "aws.bedrock"),
    **dict.fromkeys(("mistral", "mistralai"), "mistral_ai"),
    **dict.fromkeys(("ibm", "watsonx"), "ibm.watsonx.ai"),
    "xai": "x_ai",
}


def provider_name(provider: str | None) -> str | None:
    """Return a provider's name in the conventions, such as ``aws.bedrock``; None for None."""
    return provider and _PROVIDERS.get(provider.lower(), provider)


# OpenInference's names of products, by LangChain's and LlamaIndex's names of providers.
_SYSTEMS = {
    **dict.fromkeys(("openai", "azure", "azure_openai"), "openai"),
    **dict.fromkeys(("mistral", "mistralai"), "mistralai"),
    **dict.fromkeys(("google_vertexai", "vertex"), "vertexai"),
    "anthropic": "anthropic",
    "cohere": "cohere",
}


def _model_call(step: Step, draws_values: bool) -> Attributes:
    """Return what a model call has, the most important first."""
    usage = step.usage
    attributes: Attributes = {
        "llm.model_name": step.model,
        "gen_ai.request.model": step.request_model,
        "gen_ai.response.model": step.model,
        "gen_ai.response.id": step.response_id,
        "llm.provider": step.provider,
        "llm.system": _SYSTEMS.get(step.provider or ""),
        "gen_ai.provider.name": provider_name(step.provider),
    }
    if usage is not None:
        attributes |= {
            "llm.token_count.prompt": usage.input_tokens,
            "llm.token_count.completion": usage.output_tokens,
            "llm.token_count.total": usage.total_tokens,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "llm.token_count.prompt_details.cache_read": usage.cache_read_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "llm.token_count.prompt_details.cache_write": usage.cache_write_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "llm.token_count.completion_details.reasoning": usage.reasoning_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            "rageval.usage.source": usage.source,
        }
    attributes["gen_ai.response.time_to_first_chunk"] = step.time_to_first_token
    attributes["llm.finish_reason"] = step.finish_reason
    attributes["gen_ai.response.finish_reasons"] = [step.finish_reason] if step.finish_reason else None
    if step.output is not None:
        # The conventions want a reason, which some providers do not say.
        reason = step.finish_reason or ("stop" if step.complete and step.error is None else "error")
        answer = Message(role="assistant", content=step.output, tool_calls=step.tool_calls)
        # MLflow and Langfuse draw a conversation where the values have the form of OpenAI's API, for example
        # {"choices": [{"index": 0, "message": {"role": "assistant", "content": "In 2019."}, "finish_reason": "stop"}]}.
        choice = {"index": 0, "message": _chat_message(answer), "finish_reason": reason}
        is_hidden = step.output == REDACTED
        value = REDACTED if is_hidden else json_string({"choices": [choice]})
        attributes |= _value("output", value, is_json=not is_hidden)
        attributes |= _output_message(_text_beside(step.output, step.tool_calls), step.tool_calls, reason)
    for name, value in step.parameters.items():
        # The conventions name numbers only; the other parameters are in the JSON below.
        if name in _REQUEST_PARAMETERS and isinstance(value, (int, float)):
            attributes[f"gen_ai.request.{_REQUEST_PARAMETERS[name]}"] = value
    if step.parameters and REDACTED not in step.parameters.values():
        attributes["llm.invocation_parameters"] = json_string(step.parameters)
    if step.template is not None:
        attributes["llm.prompt_template.template"] = step.template.text
        # The prompt has them whole.
        variables = {name: truncate(value, _MAX_PREVIEW) for name, value in step.template.variables.items()}
        attributes["llm.prompt_template.variables"] = json_string(variables)
    if step.messages:
        attributes |= _input_messages(step.messages)
        if draws_values:
            request = {"messages": [_chat_message(message) for message in step.messages]}
            attributes |= _value("input", json_string(request), is_json=True)
        else:
            attributes |= _value("input", truncate(step.messages[-1].content, _MAX_PREVIEW))
    attributes["gen_ai.tool.definitions"] = _tool_definitions(step.tools)
    return attributes


def _tool_definitions(tools: Sequence[str]) -> str | None:
    """Return the tools that the model could call, for example ``[{"type": "function", "name": "search", …}]``."""
    definitions = []
    for tool in tools:
        schema = _parsed(tool)
        # OpenAI's form has the definition inside: {"type": "function", "function": {"name": "search", …}}.
        definition = schema.get("function", schema) if isinstance(schema, dict) else {"name": tool}
        definitions.append({"type": "function", **definition})
    return json_string(definitions) if definitions else None


# --------------------------------------------------------------------------- messages: GenAI's form, and OpenAI's


def _input_messages(messages: Iterable[Message]) -> Attributes:
    """Return the prompt: system messages as instructions, the others as input.

    Example:
        ``[{"role": "user", "parts": [{"type": "text", "content": "When was the pier opened?"}]}]``
    """
    instructions, inputs = list[dict[str, Any]](), list[dict[str, Any]]()
    for message in messages:
        # The conventions keep instructions apart from the conversation.
        if message.role in ("system", "developer"):
            instructions += _parts(message.content, ())
        elif message.tool_call_id is not None:
            part = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
            inputs.append({"role": message.role, "parts": [part]})
        else:
            text = _text_beside(message.content, message.tool_calls)
            inputs.append({"role": message.role, "parts": _parts(text, message.tool_calls)})
    return {
        "gen_ai.input.messages": json_string(inputs) if inputs else None,
        "gen_ai.system_instructions": json_string(instructions) if instructions else None,
    }


def _output_message(text: str, calls: Sequence[ToolCall], reason: str) -> Attributes:
    """Return what the model answered, and why it stopped."""
    parts = _parts(text, calls) if text or calls else []
    message = {"role": "assistant", "parts": parts, "finish_reason": reason}
    return {"gen_ai.output.messages": json_string([message])}


def _parts(text: str, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return the parts of a message: its text, and the tool calls that the model asked for."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text or not calls else []
    return parts + [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _parsed(call.arguments)} for call in calls
    ]


def _chat_message(message: Message) -> dict[str, Any]:
    """Return a message in the form of OpenAI's API."""
    text = _text_beside(message.content, message.tool_calls)
    chat: dict[str, Any] = {"role": message.role, "content": text if text or not message.tool_calls else None}
    if message.tool_calls:
        chat["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        chat["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        chat["name"] = message.name
    return chat


def _text_beside(text: str, calls: Sequence[ToolCall]) -> str:
    """Return the text of a message with tool calls; empty if the text is only the calls as JSON."""
    return "" if calls and _is_json(text) else text


def _parsed(text: str) -> Any:
    """Return the value of a JSON text; a text that is not JSON is returned unchanged."""
    try:
        return from_json(text)
    except ValueError:
        return text


def _is_json(text: str) -> bool:
    """Return True if a text is a JSON object or array, and not one that begins with a citation such as ``[1]``."""
    return text[:1] in ("{", "[") and text[-1:] in ("}", "]") and _parsed(text) is not text
