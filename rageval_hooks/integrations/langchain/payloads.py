"""Reading LangChain's values: the question, the answer, documents, prompts and token counts in whatever shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import LLMResult
from langchain_core.prompt_values import PromptValue
from pydantic import BaseModel

from rageval_hooks.integrations.capture.authorship import carries
from rageval_hooks.integrations.capture.passages import SCORE_KEYS
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import finite, first_string, is_a, or_else
from rageval_hooks.integrations.langchain.snapshots import (
    DocumentSnapshot,
    MessageSnapshot,
    ResultSnapshot,
    fields_of,
    is_structured_answer,
)
from rageval_hooks.runtime.jsonable import json_text
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
    "handed_over",
    "is_event",
    "is_interrupted",
    "model_of",
    "passages_of",
    "prompt_of",
    "query_of",
    "request_model_of",
    "response_id_of",
    "stands_in",
    "tool_calls_of",
    "tool_text",
    "usage_of",
]

_DOCUMENTS = (Document, DocumentSnapshot)
_MESSAGES = (BaseMessage, MessageSnapshot)
_QUERY_KEYS = ("input", "question", "query", "user_input", "prompt", "text")
_ANSWER_KEYS = ("answer", "output", "result", "response", "output_text", "text", "generation", "content")
_EVENT_KEYS = ("type", "event")
_MESSAGE_KEYS = ("messages", "chat_history", "history")
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}


@or_else(())
def documents_of(output: Any) -> Sequence[Any]:
    """Return the documents in what a retriever, a tool or a function returned."""
    return [item[0] if _is_scored(item) else item for item in _found_in(output)]


@or_else(())
def handed_over(output: Any, given: Any) -> Sequence[Any]:
    """Return the documents in what a function returned, or a graph's node, unless it was given them just so.

    What passes a state on has not searched; what leaves some out, or brings them into another order, has.

    Args:
        output: what it returned.
        given: what it was given.
    """
    before = [_identities(found) for found in _lists_in(given)]
    return next((found for found in _lists_in(output) if _identities(found) not in before), ())


@or_else(False)
def stands_in(found: Sequence[Any], given: Any) -> bool:
    """Whether a function was given any of the documents that another one had found."""
    known = {identity for documents in _lists_in(given) for identity in _identities(documents)}
    return not known.isdisjoint(_identities(found))


def _lists_in(value: Any) -> list[Sequence[Any]]:
    """Return the lists of documents in a value, or in its fields, perhaps with scores beside the documents."""
    return [item for item in (value, *fields_of(value)) if _is_found(item)]


@or_else(False)
def _is_found(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(is_a(item, _DOCUMENTS) or _is_scored(item) for item in value)


def _identities(found: Sequence[Any]) -> list[tuple[Any, str]]:
    documents = (item[0] if _is_scored(item) else item for item in found)
    return [(document.id, document.page_content) for document in documents]


def _found_in(output: Any) -> Sequence[Any]:
    """Return what was found, as it stands in the output of a retriever, a tool or a function."""
    if is_a(output, ToolMessage):
        output = output.artifact
    if is_a(output, (list, tuple)):
        return [item for item in output if is_a(item, _DOCUMENTS) or _is_scored(item)]
    return next((found for found in fields_of(output) if _is_found(found)), ())


@or_else(False)
def _is_scored(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], _DOCUMENTS)


def passages_of(output: Any) -> list[Passage]:
    """Return what a retriever, a tool or a function returned as passages, with ids, metadata and scores."""
    return [_passage(*item) if _is_scored(item) else _passage(item, None) for item in _passages_in(output)]


@or_else(())
def _passages_in(output: Any) -> Sequence[Any]:
    return _found_in(output)


def _passage(document: Document | DocumentSnapshot, score: Any) -> Passage:
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
        return next(filter(None, (query_of(value.get(key)) for key in _QUERY_KEYS)), "") or _asked_in(value)
    if isinstance(value, (list, tuple)):
        return _last_human(value)
    return ""


def _asked_in(fields: Mapping[Any, Any]) -> str:
    """Return the question in a mapping that has it under no known key: in a history, or beside one.

    A history that ends with an answer is the one until now: then the only string is what is asked. What stands beside
    ``messages`` is none.
    """
    histories = {key: _messages(fields.get(key), key) for key in _MESSAGE_KEYS}
    asked = {key: _last_human(said) for key, said in histories.items()}
    strings = [text for text in _strings(fields) if text]
    return (
        next((asked[key] for key, said in histories.items() if asked[key] and _is_open(key, said)), "")
        or (strings[0] if len(strings) == 1 else "")
        or ("" if strings else next(filter(None, asked.values()), ""))
    )


def _is_open(key: str, said: Sequence[Any]) -> bool:
    return key == "messages" or not _is_answered(said)


def _strings(fields: Mapping[Any, Any]) -> list[str]:
    return [item for key, item in fields.items() if is_a(item, str) and key not in _MESSAGE_KEYS]


def _messages(value: Any, key: str) -> Sequence[Any]:
    """Return the messages under a key; a text is one only as ``messages``, else it is a history as text."""
    if is_a(value, (list, tuple)):
        return list(value)
    return () if value is None or (key != "messages" and is_a(value, str)) else (value,)


@or_else(False)
def _is_answered(messages: Sequence[Any]) -> bool:
    [last] = convert_to_messages(messages[-1:])
    return isinstance(last, AIMessage) and not last.tool_calls


@or_else("")
def _last_human(messages: Sequence[Any]) -> str:
    for message in reversed(messages):
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
def answer_of(value: Any, given: Any = None, written: Sequence[str] = (), streamed: Sequence[str] = ()) -> str:
    """Return the answer in whatever came out of the root; empty if there is none to be seen.

    Args:
        value: what came out.
        given: what went in: what was only passed through is no answer.
        written: what the models of the turn wrote, the last first.
        streamed: of that, what a stream's reader was given piece by piece: the last thing that he was given may then be
            something else.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, BaseMessage):
        return content_text(value.content)
    if isinstance(value, Mapping):
        known = _under_known_key(value, given, _is_said)
        if known is None:
            known = _answer_in(value, given, written, streamed) or _under_known_key(value, given, _is_object)
        return known or ""
    if isinstance(value, (list, tuple)):
        return _new_answer(value, given, given)
    return _answer_in_object(value) if is_structured_answer(value) else ""


def _answer_in_object(value: BaseModel) -> str:
    fields = dict(value)
    known = _under_known_key(fields, None, _is_said)
    if known is None:
        known = _under_known_key(fields, None, _is_object)
    return as_json(value.model_dump(mode="json")) if known is None else known


def _under_known_key(fields: Mapping[Any, Any], given: Any, is_answer: Callable[[str, Any], bool]) -> str | None:
    """Return the answer under a key that says so, if there is one that was not passed through."""
    for key in _ANSWER_KEYS:
        item = fields.get(key)
        if is_answer(key, item):
            text: str = answer_of(item)
            if not text or text != answer_of(_field(given, key)):
                return text
    return None


def _is_said(key: str, item: Any) -> bool:
    """Whether what stands under a key that says so is an answer for sure; an object may be a verdict on one."""
    return is_a(item, (str, BaseMessage)) or (key == "answer" and is_structured_answer(item))


def _is_object(_key: str, item: Any) -> bool:
    return bool(is_structured_answer(item))


@or_else(None)
def _field(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _answer_in(fields: Mapping[Any, Any], given: Any, written: Sequence[str], streamed: Sequence[str]) -> str:
    """Return the answer in a mapping that has it under no known key: in a history, or beside one.

    What a model of the turn wrote comes first, and then what was added to the messages.
    """
    said = {key: _new_answer(fields.get(key), _field(given, key), given, fields) for key in _MESSAGE_KEYS}
    passed = {query_of(given), *(_strings(given) if is_a(given, Mapping) else ())}
    strings = [answer_of(item) for item in fields.values() if is_a(item, (str, AIMessage))]
    strings = [text for text in strings if text and text not in passed]
    streamed = streamed if is_event(fields, given) else ()
    return (
        next((text for text in said.values() if any(carries(text, one) for one in written)), "")
        or next((text for one in written for text in strings if text.strip() == one.strip()), "")
        or next((text for one in written for text in strings if carries(text, one)), "")
        or said["messages"]
        or (strings[0] if len(strings) == 1 and not _is_aside(strings[0], streamed) else "")
        or ("" if written else next(filter(None, said.values()), ""))
    )


@or_else(False)
def is_event(output: Any, given: Any) -> bool:
    """Whether an output looks like one of a stream's events, the last of which is what comes out."""
    return isinstance(output, Mapping) and any(
        key in output and output[key] != _field(given, key) for key in _EVENT_KEYS
    )


def _is_aside(text: str, streamed: Sequence[str]) -> bool:
    """Whether a text is less than what was streamed, and not taken out of it: the word that a stream is done."""
    return any(len(text) < len(one) and as_json(text) not in one and not _is_part(text, one) for one in streamed)


def _is_part(text: str, whole: str) -> bool:
    return " " in text and text in whole


@or_else("")
def _new_answer(messages: Any, before: Any, given: Any, fields: Mapping[Any, Any] | None = None) -> str:
    """Return the last answer of some messages, unless it stood in them before.

    Args:
        messages: what came out.
        before: the messages that went in.
        given: all that went in.
        fields: what came out beside the messages.
    """
    if not is_a(messages, (list, tuple)) or not messages:
        return ""
    return _last_answer(_added(messages, _messages(before, "messages"), query_of(given)), fields or {})


def _added(messages: Sequence[Any], before: Sequence[Any], query: str) -> Sequence[Any]:
    """Return the messages after those that were given, and after what was asked.

    A graph may have the messages of earlier turns before those that it was given.
    """
    said, told = _said(messages), _said(before)
    start = len(told) if told and said[: len(told)] == told else 0
    if told and not start and said[-1:] == told[-1:] and (len(said) <= len(told) or said[-len(told) :] == told):
        return ()
    places = [place for place, message in enumerate(messages) if is_a(message, HumanMessage)]
    asked = {query, _last_human(before)} - {""}
    known = [place for place in places if content_text(messages[place].content) in asked]
    if known or not start:
        start = max(start, *(place + 1 for place in (known or places)[-1:]), 0)
    return messages[start:]


@or_else(())
def _said(messages: Sequence[Any]) -> Sequence[tuple[str, str]]:
    """Return who has said what."""
    converted = convert_to_messages(messages)
    return [(_ROLES.get(message.type, message.type), content_text(message.content)) for message in converted]


def _last_answer(messages: Sequence[Any], fields: Mapping[Any, Any]) -> str:
    """Return what was answered: by the model, perhaps beside a call, or by a tool that answers in its place."""
    spoken = [message for message in messages if is_a(message, (AIMessage, ToolMessage))]
    said = [message for message in spoken if is_a(message, AIMessage)]
    if spoken and is_a(spoken[-1], ToolMessage):
        beside = content_text(said[-1].content) if said else ""
        return answer_of(fields.get("structured_response")) or beside or content_text(spoken[-1].content)
    return next((content_text(message.content) for message in reversed(said) if not message.tool_calls), "")


@or_else(False)
def is_interrupted(output: Any) -> bool:
    """Whether a graph's output says that it waits for somebody."""
    return isinstance(output, Mapping) and "__interrupt__" in output


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
    if isinstance(output, ResultSnapshot):
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


def _prompt_message(message: BaseMessage | MessageSnapshot) -> Message:
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
    return (
        first_string(reported, ("model_name", "model", "model_id"))
        or first_string(llm_output, ("model_name", "model"))
        or request_model_of(run)
    )


@or_else(None)
def request_model_of(run: Run) -> str | None:
    """Return the model's name as the application asked for it."""
    asked = (run.details or {}).get("invocation_params") or {}
    return first_string(run.metadata or {}, ("ls_model_name",)) or first_string(
        asked, ("model", "model_name", "model_id", "deployment_name")
    )


@or_else(None)
def response_id_of(run: Run) -> str | None:
    """Return the provider's id of a completion, such as ``chatcmpl-…``."""
    message = _message(run.output)
    reported = first_string(getattr(message, "response_metadata", None) or {}, ("id", "response_id"))
    llm_output = first_string(getattr(run.output, "llm_output", None) or {}, ("id",))
    own = getattr(message, "id", None)
    # LangChain makes ids of its own where the provider gives none: "run--3f1c…", "lc_run--3f1c…".
    provided = own if isinstance(own, str) and not own.startswith(("run-", "lc_")) else None
    return reported or llm_output or provided


@or_else(None)
def usage_of(run: Run) -> Usage | None:
    """Return the tokens that the provider counted for a model's run."""
    reported = getattr(_message(run.output), "usage_metadata", None)
    if reported and reported.get("total_cost") == 0:  # so LangChain marks what came from its own cache
        return Usage(input_tokens=0, output_tokens=0)
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
