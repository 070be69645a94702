"""Reading LangChain's values: the question, the answer, documents, prompts and token counts in whatever shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import LLMResult
from langchain_core.prompt_values import PromptValue

from rageval_hooks.integrations.capture import SCORE_KEYS, finite, first_string, is_a, or_else
from rageval_hooks.integrations.langchain.sealing import SealedDocument, SealedMessage, SealedResult
from rageval_hooks.integrations.recorder import Run
from rageval_hooks.plain import json_text
from rageval_hooks.text.annotations import annotations_from_blocks
from rageval_hooks.turn import Message, Passage, Usage

__all__ = [
    "answer_of",
    "as_json",
    "as_text",
    "citations_of",
    "content_text",
    "documents_of",
    "generated_text",
    "is_documents",
    "model_of",
    "passages_of",
    "prompt_of",
    "query_of",
    "tool_calls_of",
    "tool_text",
    "usage_of",
]

_DOCUMENTS = (Document, SealedDocument)
_MESSAGES = (BaseMessage, SealedMessage)
_QUERY_KEYS = ("input", "question", "query", "user_input", "prompt", "text")
_ANSWER_KEYS = ("answer", "output", "result", "response", "output_text", "text", "generation", "content")
_MESSAGE_KEYS = ("messages", "chat_history", "history")
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}


@or_else(False)
def is_documents(value: Any) -> bool:
    """Whether a value is a list of documents, and not an empty one."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, _DOCUMENTS) for item in value)


@or_else(())
def documents_of(output: Any) -> Sequence[Any]:
    """Return the documents in what a retriever, a tool or a function returned."""
    if isinstance(output, ToolMessage):
        output = output.artifact
    if isinstance(output, Mapping):
        output = next((value for value in output.values() if is_documents(value)), None)
    if isinstance(output, (list, tuple)):
        return [item[0] if _is_scored(item) else item for item in output if is_a(item, _DOCUMENTS) or _is_scored(item)]
    return ()


@or_else(False)
def _is_scored(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], _DOCUMENTS)


def passages_of(output: Any) -> list[Passage]:
    """Return what a retriever, a tool or a function returned as passages, with ids, metadata and scores."""
    if is_a(output, ToolMessage):
        output = output.artifact
    scores = {id(item[0]): item[1] for item in output if _is_scored(item)} if is_a(output, (list, tuple)) else {}
    return [_passage(document, scores.get(id(document))) for document in documents_of(output)]


def _passage(document: Document | SealedDocument, score: Any) -> Passage:
    metadata = document.metadata or {}
    if score is None and type(document) not in _DOCUMENTS:  # which have none, and one takes long to say so
        score = getattr(document, "score", None)
    if score is None:
        score = next((metadata[key] for key in SCORE_KEYS if key in metadata), None)
    return Passage(
        text=document.page_content,
        id=document.id or first_string(metadata, ("id", "_id")),
        score=finite(score),
        metadata=metadata,
    )


@or_else("")
def query_of(value: Any) -> str:
    """Return the user's question in whatever went into the root."""
    if isinstance(value, str):
        return value
    if isinstance(value, PromptValue):
        value = value.to_messages()
    if isinstance(value, BaseMessage):
        return content_text(value.content)
    if isinstance(value, Mapping):
        for key in _QUERY_KEYS:
            found = query_of(value.get(key))
            if found:
                return found
        for key in _MESSAGE_KEYS:
            found = _last_human(value.get(key) or ())
            if found:
                return found
        strings = [item for item in value.values() if is_a(item, str) and item]
        return strings[0] if len(strings) == 1 else ""
    if isinstance(value, (list, tuple)):
        return _last_human(value)
    return ""


@or_else("")
def _last_human(messages: Any) -> str:
    for message in reversed(messages if isinstance(messages, (list, tuple)) else [messages]):
        said = _as_human(message)
        if said is not None:
            return content_text(said.content)
    return ""


@or_else(None)
def _as_human(message: Any) -> HumanMessage | None:
    if not isinstance(message, BaseMessage):
        [message] = convert_to_messages([message])
    return message if isinstance(message, HumanMessage) else None


@or_else("")
def answer_of(value: Any) -> str:
    """Return the answer in whatever came out of the root; empty if there is none to be seen."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, BaseMessage):
        return content_text(value.content)
    if isinstance(value, Mapping):
        for key in _ANSWER_KEYS:
            if is_a(value.get(key), (str, BaseMessage)):
                return answer_of(value[key])
        for key in _MESSAGE_KEYS:
            if is_a(value.get(key), (list, tuple)):
                return _last_answer(value[key])
        strings = [item for item in value.values() if is_a(item, str) and item]
        return strings[0] if len(strings) == 1 else ""
    if isinstance(value, (list, tuple)):
        return _last_answer(value)
    return ""


def _last_answer(messages: Sequence[Any]) -> str:
    for message in reversed(messages):
        if is_a(message, AIMessage) and not message.tool_calls:
            return content_text(message.content)
    return ""


def content_text(content: Any) -> str:
    """Return the text of a message's content, which may be a list of blocks."""
    if isinstance(content, str):
        return str.__str__(content)
    if not isinstance(content, (list, tuple)):
        return ""
    parts = []
    for block in content:
        if is_a(block, str):
            parts.append(block)
        elif is_a(block, Mapping) and is_a(block.get("text"), str):
            parts.append(block["text"])
    return "".join(parts)


def _generation(output: Any) -> Any:
    if isinstance(output, SealedResult):
        return output
    if isinstance(output, LLMResult) and output.generations and output.generations[0]:
        return output.generations[0][0]
    return None


def _message(output: Any) -> Any:
    return getattr(_generation(output), "message", None)


def tool_calls_of(output: Any) -> list[Any]:
    """Return the tool calls that a model asked for."""
    return getattr(_message(output), "tool_calls", None) or []


def generated_text(output: Any) -> str:
    """Return the text that a model wrote."""
    message = _message(output)
    if message is not None:
        return content_text(message.content)
    return getattr(_generation(output), "text", "") or ""


@or_else(())
def citations_of(output: Any) -> Sequence[dict[str, Any]]:
    """Return the citations that a model has marked in what it wrote, with their places in it."""
    return annotations_from_blocks(getattr(_message(output), "content", None))


def prompt_of(run: Run) -> tuple[Message, ...]:
    """Return the prompt of a model's run."""
    if isinstance(run.input, (list, tuple)) and run.input:
        first = run.input[0]
        if isinstance(first, str):
            return (Message(role="user", content=first),)
        if isinstance(first, (list, tuple)):
            return tuple(_prompt_message(message) for message in first if isinstance(message, _MESSAGES))
    return ()


def _prompt_message(message: BaseMessage | SealedMessage) -> Message:
    text = content_text(message.content)
    if not text:
        calls = getattr(message, "tool_calls", None)
        text = as_json(calls) if calls else text
    return Message(role=_ROLES.get(message.type, message.type), content=text)


@or_else(None)
def model_of(run: Run) -> str | None:
    """Return the model's name: as the provider reported it, else as it was asked for."""
    reported = getattr(_message(run.output), "response_metadata", None) or {}
    llm_output = getattr(run.output, "llm_output", None) or {}
    asked = (run.details or {}).get("invocation_params") or {}
    return (
        first_string(reported, ("model_name", "model", "model_id"))
        or first_string(llm_output, ("model_name", "model"))
        or first_string(run.metadata or {}, ("ls_model_name",))
        or first_string(asked, ("model", "model_name", "model_id", "deployment_name"))
    )


@or_else(None)
def usage_of(run: Run) -> Usage | None:
    """Return the tokens that the provider counted for a model's run."""
    reported = getattr(_message(run.output), "usage_metadata", None)
    if reported:
        return _counted(
            reported.get("input_tokens"),
            reported.get("output_tokens"),
            (reported.get("input_token_details") or {}).get("cache_read"),
        )
    llm_output = getattr(run.output, "llm_output", None) or {}
    counted = llm_output.get("token_usage") or llm_output.get("usage") or {}
    if isinstance(counted, Mapping):
        return _counted(
            counted.get("prompt_tokens", counted.get("input_tokens")),
            counted.get("completion_tokens", counted.get("output_tokens")),
            None,
        )
    return None


def _counted(input_tokens: Any, output_tokens: Any, cached: Any) -> Usage | None:
    if not isinstance(input_tokens, int) or not isinstance(output_tokens, int):
        return None
    if input_tokens < 0 or output_tokens < 0 or input_tokens + output_tokens == 0:
        return None
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cached if isinstance(cached, int) and cached >= 0 else None,
    )


def tool_text(output: Any) -> str:
    """Return what a tool told the model."""
    return content_text(output.content) if is_a(output, BaseMessage) else as_text(output)


def as_text(value: Any) -> str:
    """Return any input or output as text: as it is, or as JSON."""
    if value is None:
        return ""
    if is_a(value, str):
        return str.__str__(value)
    if is_a(value, BaseMessage):
        return content_text(value.content)
    if is_a(value, PromptValue):
        return str(value.to_string())
    return as_json(value)


def as_json(value: Any) -> str:
    """Return any value as JSON; what JSON does not know becomes its ``str``."""
    return json_text(value, _jsonable)


def _jsonable(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return {"role": _ROLES.get(value.type, value.type), "content": value.content}
    if isinstance(value, _DOCUMENTS):
        return {"id": value.id, "page_content": value.page_content, "metadata": value.metadata}
    return str(value)
