"""The attributes of the spans of turns, steps and model calls, in OpenInference's names and those of GenAI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy, shown_parameters
from rageval_hooks.exporters.otel.attributes import Attributes, json_string
from rageval_hooks.exporters.otel.result_attributes import add_main_scores
from rageval_hooks.score import Result
from rageval_hooks.turn import Message, Passage, Step, StepKind, Timing, ToolCall, Turn, Usage

# --------------------------------------------------------------------------- turns


def turn_attributes(turn: Turn, results: Iterable[Result], policy: ContentPolicy) -> Attributes:
    """Return the attributes of a turn's span.

    Args:
        turn: the turn.
        results: its inline results; the span of the evaluation has all of them, this one the main ones.
        policy: what may be shown.
    """
    attributes = Attributes()
    _add_operation(attributes, turn)
    if turn.error is not None:
        attributes[semconv.ERROR_TYPE] = turn.error.type
    _add_content(attributes, turn, policy)
    add_main_scores(attributes, results, policy)
    _add_identity(attributes, turn)
    _add_figures(attributes, turn)
    _add_conversation(attributes, turn, policy)
    if turn.retrieval_queries and policy.inputs:
        attributes[semconv.RETRIEVAL_QUERIES] = json_string(turn.retrieval_queries)
    if turn.metadata:
        attributes[semconv.METADATA] = policy.quote(json_string(turn.metadata), policy.everything)
    return attributes


def is_agent(turn: Turn) -> bool:
    """Return True for an agent's turn: it calls tools. A plain chain calls its retriever and its model itself."""
    return not {"agent", "tool"}.isdisjoint(step.kind for step in turn.steps)


def _add_operation(attributes: Attributes, turn: Turn) -> None:
    agent = is_agent(turn)
    attributes[semconv.SPAN_KIND] = "AGENT" if agent else "CHAIN"
    attributes[semconv.OPERATION_NAME] = "invoke_agent" if agent else "invoke_workflow"
    attributes[semconv.AGENT_NAME] = turn.name
    attributes[semconv.TURN_STATUS] = turn.status


def _add_content(attributes: Attributes, turn: Turn, policy: ContentPolicy) -> None:
    attributes[semconv.INPUT_VALUE] = policy.quote(turn.query, policy.inputs)
    attributes[semconv.INPUT_MIME_TYPE] = semconv.TEXT
    attributes[semconv.OUTPUT_VALUE] = policy.quote(turn.response, policy.outputs)
    attributes[semconv.OUTPUT_MIME_TYPE] = semconv.TEXT


def _add_identity(attributes: Attributes, turn: Turn) -> None:
    attributes[semconv.TURN_ID] = turn.id
    attributes.put(semconv.FRAMEWORK, turn.framework)
    attributes.put(semconv.SESSION_ID, turn.session_id)
    attributes.put(semconv.CONVERSATION_ID, turn.session_id)
    attributes.put(semconv.USER_ID, turn.user_id)


def _add_figures(attributes: Attributes, turn: Turn) -> None:
    if turn.has_retrieval:
        attributes[semconv.PASSAGES] = len(turn.retrieved)
    if len(turn.passages) > len(turn.retrieved):
        attributes[semconv.PASSAGES_OF_EARLIER_TURNS] = len(turn.passages) - len(turn.retrieved)
    seen = Counter(passage.in_prompt for passage in turn.passages)
    # None stands for passages of which no prompt is known. A count of those would say that the model saw none of them.
    if seen.keys() - {None}:
        attributes[semconv.PASSAGES_IN_PROMPT] = seen[True]
    if turn.timing is not None:
        _add_timing(attributes, turn.timing)
    if turn.usage is not None:
        _add_total_usage(attributes, turn.usage)


def _add_timing(attributes: Attributes, timing: Timing) -> None:
    attributes.put(semconv.TIMING.format(name="retrieval"), timing.retrieval)
    attributes.put(semconv.TIMING.format(name="generation"), timing.generation)
    attributes.put(semconv.TIMING.format(name="time_to_first_token"), timing.time_to_first_token)
    attributes.put(semconv.TIMING.format(name="waiting"), timing.waiting)


def _add_total_usage(attributes: Attributes, usage: Usage) -> None:
    # Under our own names: a backend adds up the tokens of the model calls below, and must not count them twice.
    attributes[semconv.TOTAL_TOKENS.format(name="input")] = usage.input_tokens
    attributes[semconv.TOTAL_TOKENS.format(name="output")] = usage.output_tokens
    attributes[semconv.USAGE_SOURCE] = usage.source


def _add_conversation(attributes: Attributes, turn: Turn, policy: ContentPolicy) -> None:
    """Add the conversation as a reader of the trace sees it: the user's question, not the prompt made of it."""
    if policy.shows_prompts:
        messages = [message for message in turn.prompt if message.role == "system"]
        if turn.query:
            messages.append(Message(role="user", content=turn.query))
        _add_input_messages(attributes, messages)
    if policy.shows_completions and turn.response:
        reason = "stop" if turn.status == "ok" else "error"
        _add_output_message(attributes, turn.response, (), reason)


# --------------------------------------------------------------------------- steps

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
    attributes[mime_name] = semconv.JSON if shown and _is_json(text) else semconv.TEXT


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


def _add_documents(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    # Each kind has its own names: backends draw a reranker's documents next to those that went in.
    template = semconv.RERANKER_OUTPUT_DOCUMENT if step.kind == "reranker" else semconv.RETRIEVAL_DOCUMENT
    for index, passage in enumerate(step.passages):
        attributes[_indexed(template, index, "content")] = policy.quote(passage.text, policy.documents)
        attributes.put(_indexed(template, index, "id"), passage.id)
        attributes.put(_indexed(template, index, "score"), passage.score)
        if policy.documents:
            attributes.put(_indexed(template, index, "metadata"), _document_metadata(passage))


def _document_metadata(passage: Passage) -> str | None:
    metadata = dict(passage.metadata)
    if passage.in_prompt is not None:
        metadata[semconv.DOCUMENT_IN_PROMPT] = passage.in_prompt
        metadata[semconv.DOCUMENT_PROMPT_SHARE] = passage.prompt_share
    return json_string(metadata) if metadata else None


# --------------------------------------------------------------------------- model calls

# The conventions' names for parameters, by the names that providers and frameworks use.
_REQUEST_PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "n": "choice.count",
}

# OpenInference's names of products, by LangChain's and LlamaIndex's names of providers.
_SYSTEMS = {
    "openai": "openai",
    "azure": "openai",
    "azure_openai": "openai",
    "anthropic": "anthropic",
    "cohere": "cohere",
    "mistral": "mistralai",
    "mistralai": "mistralai",
    "google_vertexai": "vertexai",
    "vertex": "vertexai",
}


def _add_model_call(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    """Add what a model call has, the most important first."""
    _add_model(attributes, step)
    if step.usage is not None:
        _add_usage(attributes, step.usage)
    attributes.put(semconv.RESPONSE_TIME_TO_FIRST_CHUNK, step.time_to_first_token)
    attributes.put(semconv.LLM_FINISH_REASON, step.finish_reason)
    _add_completion(attributes, step, policy)
    _add_parameters(attributes, step, policy)
    _add_template(attributes, step, policy)
    # A long conversation may exceed the provider's limit of attributes, so what is one attribute comes before it.
    _add_prompt(attributes, step, policy)
    _add_tools(attributes, step, policy)


def _add_model(attributes: Attributes, step: Step) -> None:
    attributes.put(semconv.LLM_MODEL_NAME, step.model)
    attributes.put(semconv.REQUEST_MODEL, step.request_model)
    attributes.put(semconv.RESPONSE_MODEL, step.model)
    attributes.put(semconv.RESPONSE_ID, step.response_id)
    attributes.put(semconv.LLM_PROVIDER, step.provider)
    attributes.put(semconv.LLM_SYSTEM, _SYSTEMS.get(step.provider or ""))
    attributes.put(semconv.PROVIDER_NAME, step.provider)


def _add_usage(attributes: Attributes, usage: Usage) -> None:
    attributes[semconv.LLM_TOKENS_PROMPT] = usage.input_tokens
    attributes[semconv.LLM_TOKENS_COMPLETION] = usage.output_tokens
    attributes[semconv.LLM_TOKENS_TOTAL] = usage.total_tokens
    attributes[semconv.USAGE_INPUT_TOKENS] = usage.input_tokens
    attributes[semconv.USAGE_OUTPUT_TOKENS] = usage.output_tokens
    attributes.put(semconv.LLM_TOKENS_CACHE_READ, usage.cache_read_tokens)
    attributes.put(semconv.USAGE_CACHE_READ_TOKENS, usage.cache_read_tokens)
    attributes[semconv.USAGE_SOURCE] = usage.source


def _add_completion(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    if step.output is None:
        return
    _, shown = policy.shows(step)
    text = _text_beside(step.output, step.tool_calls)
    reason = step.finish_reason or _usual_reason(step)
    # MLflow and Langfuse draw a conversation where the values have the form of OpenAI's API.
    attributes[semconv.OUTPUT_VALUE] = policy.quote(_chat_response(text, step.tool_calls, reason), shown)
    attributes[semconv.OUTPUT_MIME_TYPE] = semconv.JSON if shown else semconv.TEXT
    attributes[_indexed(semconv.LLM_OUTPUT_MESSAGE, 0, "role")] = "assistant"
    if text or not step.tool_calls:
        attributes[_indexed(semconv.LLM_OUTPUT_MESSAGE, 0, "content")] = policy.quote(text, policy.output_messages)
    _add_calls(attributes, semconv.LLM_OUTPUT_MESSAGE, 0, step.tool_calls, policy, policy.output_messages)
    if shown:
        _add_output_message(attributes, text, step.tool_calls, reason)


def _usual_reason(step: Step) -> str:
    """Return the finish reason of a call whose provider does not say it."""
    ended_well = step.complete and step.error is None
    return "stop" if ended_well else "error"


def _add_prompt(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    if not step.messages:
        return
    shown, _ = policy.shows(step)
    attributes[semconv.INPUT_VALUE] = policy.quote(_chat_request(step.messages), shown)
    attributes[semconv.INPUT_MIME_TYPE] = semconv.JSON if shown else semconv.TEXT
    if shown:
        _add_input_messages(attributes, step.messages)
    for index, message in enumerate(step.messages):
        text = _text_beside(message.content, message.tool_calls)
        attributes[_indexed(semconv.LLM_INPUT_MESSAGE, index, "role")] = message.role
        # A message of tool calls alone has no content.
        if text or not message.tool_calls:
            attributes[_indexed(semconv.LLM_INPUT_MESSAGE, index, "content")] = policy.quote(
                text, policy.input_messages
            )
        attributes.put(_indexed(semconv.LLM_INPUT_MESSAGE, index, "tool_call_id"), message.tool_call_id)
        attributes.put(_indexed(semconv.LLM_INPUT_MESSAGE, index, "name"), message.name)
        _add_calls(attributes, semconv.LLM_INPUT_MESSAGE, index, message.tool_calls, policy, policy.input_messages)


def _add_calls(
    attributes: Attributes, template: str, index: int, calls: Iterable[ToolCall], policy: ContentPolicy, shown: bool
) -> None:
    """Add the tool calls of a message, the way OpenInference numbers the items of lists."""
    for number, call in enumerate(calls):
        fields = {
            "function.name": call.name,
            "function.arguments": policy.quote(call.arguments, shown),
            "id": call.id,
        }
        for field, value in fields.items():
            name = _indexed(semconv.MESSAGE_TOOL_CALL, number, field)
            attributes.put(_indexed(template, index, name), value)


def _add_parameters(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    parameters = shown_parameters(step.parameters, policy)
    for name, value in parameters.items():
        # The conventions name numbers only; the other parameters are in the JSON below.
        known = _REQUEST_PARAMETERS.get(name)
        if known is not None and isinstance(value, (int, float)):
            attributes[semconv.REQUEST_PARAMETER.format(name=known)] = value
    if parameters and policy.parameters:
        attributes[semconv.LLM_INVOCATION_PARAMETERS] = json_string(parameters)


def _add_template(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    if step.template is None or not policy.shows_prompts:
        return
    attributes[semconv.PROMPT_TEMPLATE] = step.template.text
    attributes[semconv.PROMPT_VARIABLES] = json_string(step.template.variables)


def _add_tools(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    if not policy.tools:
        return
    _add_tool_definitions(attributes, step.tools)
    for index, schema in enumerate(step.tools):
        attributes[_indexed(semconv.LLM_TOOL, index, "json_schema")] = schema


_BY_KIND: dict[StepKind, Callable[[Attributes, Step, ContentPolicy], None]] = {
    "llm": _add_model_call,
    "tool": _add_tool,
    "retriever": _add_retrieval,
    "reranker": _add_reranking,
}


@lru_cache(maxsize=4096)
def _indexed(template: str, index: int, field: str) -> str:
    """Return the name of an attribute of one of several things; formatting is the larger part of the cost."""
    return template.format(index=index, field=field)


# --------------------------------------------------------------------------- messages: GenAI's form, and OpenAI's


_INSTRUCTION_ROLES = frozenset({"system", "developer"})


def _add_input_messages(attributes: Attributes, messages: Iterable[Message]) -> None:
    """Set the prompt: system messages as instructions, the others as input.

    Example:
        ``[{"role": "user", "parts": [{"type": "text", "content": "When was the pier opened?"}]}]``
    """
    instructions = []
    inputs = []
    for message in messages:
        # The conventions keep instructions apart from the conversation.
        if message.role in _INSTRUCTION_ROLES:
            instructions.append(_text_part(message.content))
        else:
            inputs.append({"role": message.role, "parts": _parts(message)})
    if inputs:
        attributes[semconv.INPUT_MESSAGES] = json_string(inputs)
    if instructions:
        attributes[semconv.SYSTEM_INSTRUCTIONS] = json_string(instructions)


def _add_output_message(attributes: Attributes, text: str, calls: Sequence[ToolCall], reason: str) -> None:
    """Set what the model answered.

    Args:
        attributes: get the message.
        text: the answer; empty if the model asked for tools only.
        calls: the tool calls that the model asked for.
        reason: why the model stopped. The conventions require it.
    """
    parts = [_text_part(text)] if text else []
    parts += map(_call_part, calls)
    message = {"role": "assistant", "parts": parts, "finish_reason": reason}
    attributes[semconv.OUTPUT_MESSAGES] = json_string([message])


def _add_tool_definitions(attributes: Attributes, tools: Iterable[str]) -> None:
    """Set the tools that the model could call.

    Example:
        ``[{"type": "function", "name": "search", "description": "…", "parameters": {…}}]``
    """
    definitions = []
    for tool in tools:
        schema = _parsed(tool)
        # OpenAI's form has the definition inside: {"type": "function", "function": {"name": "search", …}}.
        definition = schema.get("function", schema) if isinstance(schema, dict) else {"name": tool}
        definitions.append({"type": "function", **definition})
    if definitions:
        attributes[semconv.TOOL_DEFINITIONS] = json_string(definitions)


def _chat_request(messages: Iterable[Message]) -> str:
    """Return a prompt as the body of an OpenAI request.

    Example:
        ``{"messages": [{"role": "user", "content": "When was the pier opened?"}]}``
    """
    return json_string({"messages": [_chat_message(message) for message in messages]})


def _chat_response(text: str, calls: Sequence[ToolCall], reason: str) -> str:
    """Return what the model answered as the body of an OpenAI response.

    Example:
        ``{"choices": [{"message": {"role": "assistant", "content": "In 2019."}, "finish_reason": "stop", …}]}``
    """
    message = _chat_message(Message(role="assistant", content=text, tool_calls=tuple(calls)))
    return json_string({"choices": [{"index": 0, "message": message, "finish_reason": reason}]})


def _text_beside(text: str, calls: Sequence[ToolCall]) -> str:
    """Return the text of a message with tool calls; empty if the text is only the calls as JSON."""
    return "" if calls and _is_json(text) else text


def _parsed(text: str) -> Any:
    """Return the value of a JSON text; a text that is not JSON is returned unchanged."""
    try:
        return from_json(text)
    except ValueError:
        return text


def _chat_message(message: Message) -> dict[str, Any]:
    text = _text_beside(message.content, message.tool_calls)
    chat: dict[str, Any] = {"role": message.role, "content": text if text or not message.tool_calls else None}
    if message.tool_calls:
        chat["tool_calls"] = [_chat_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        chat["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        chat["name"] = message.name
    return chat


def _chat_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _parts(message: Message) -> list[dict[str, Any]]:
    if message.tool_call_id is not None:
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}]
    text = _text_beside(message.content, message.tool_calls)
    parts = [_text_part(text)] if text or not message.tool_calls else []
    parts += map(_call_part, message.tool_calls)
    return parts


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call_part(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _parsed(call.arguments)}


def _is_json(text: str) -> bool:
    """Return True if a text is a JSON object or array, and not one that begins with a citation such as ``[1]``."""
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return False
    try:
        from_json(text)
    except ValueError:
        return False
    return True
