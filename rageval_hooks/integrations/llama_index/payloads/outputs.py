"""The outputs of LlamaIndex's components: the answer, and answers that are streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rageval_hooks.integrations.capture.fields.keys import answer_keys_in, is_beside_answer
from rageval_hooks.integrations.capture.host_values import or_else
from rageval_hooks.integrations.llama_index.payloads.fields import (
    fields_of,
    is_mapping,
    only_string,
    private_attributes,
    text_under,
)
from rageval_hooks.integrations.llama_index.payloads.messages import as_json, is_message, message_text

__all__ = ["Streamed", "answer_of", "is_generator", "streamed_in"]

_ANSWER_KEYS = ("result", "response", "response_txt", "answer", "output", "message", "text", "content")
"""Names of fields that hold an answer, for example ``result`` of a StopEvent or ``response`` of a Response."""

_DEPTH = 5
"""Values within values that are searched: StopEvent(result=AgentOutput(response=ChatMessage(…)))."""

_NO_ANSWER = (list, tuple, bool, int, float, type(None))
"""Classes whose values are no answers, for example the nodes that a retriever returns."""


@or_else("")
def answer_of(value: Any, depth: int = 0) -> str:
    """Return the answer from the output of a component; empty if it has none.

    Args:
        value: the output, or a value inside of it.
        depth: how deep inside of the output the value is.
    """
    if isinstance(value, str):
        return value
    if depth > _DEPTH or isinstance(value, _NO_ANSWER):
        return ""
    is_tool_output = isinstance(getattr(value, "content", None), str)
    if is_message(value) or is_tool_output:
        return message_text(value)
    return _answer_in_fields(value, depth)


def _answer_in_fields(value: Any, depth: int) -> str:
    fields = fields_of(value)
    found = text_under(fields, answer_keys_in(fields, _ANSWER_KEYS), partial(answer_of, depth=depth + 1))
    if found is not None:
        return found
    # PydanticResponse(response=Invoice(total=12)): an object of the application is a structured answer.
    if depth > 0 and hasattr(value, "model_dump"):
        return as_json(value)
    return _answer_under_other_key(fields, depth) if is_mapping(value) else ""


def _answer_under_other_key(fields: Mapping[str, Any], depth: int) -> str:
    # {"text_out": "In 1869.", "title": "The pier"}: a title is the answer only if nothing else is.
    likely = {key: item for key, item in fields.items() if not is_beside_answer(key)}
    if text := only_string(likely):
        return text
    # {"status": "success", "data": {"answer": "In 1869."}}
    within = [answer_of(item, depth + 1) for item in likely.values() if isinstance(item, Mapping)]
    return next(filter(None, within), "") or only_string(fields)


# --------------------------------------------------------------------------- streamed answers


@or_else(False)
def is_generator(value: Any) -> bool:
    """Return True for a generator, synchronous or asynchronous."""
    return isinstance(value, (Generator, AsyncGenerator))


@dataclass(frozen=True)
class Streamed:
    """The place of a streamed answer in a record.

    The record must not keep the answer alive: a stream that its reader drops is to end.

    Attributes:
        of: the ``id`` of the response or of the generator.
    """

    of: int


@or_else(())
def streamed_in(result: Any) -> Sequence[Any]:
    """Return the generators in the result of a span, and the responses whose text comes from a generator.

    A workflow's result is inside its last event. The streamed answer of a chat engine is not included: a thread or
    task of the engine reads it.
    """
    inner = private_attributes(result).get("_result")
    return list(filter(_is_streamed, (result, inner)))


def _is_streamed(value: Any) -> bool:
    # StreamingResponse(response_gen=<generator>) of a query engine. The answer of a chat engine has a property of this
    # name, which is not in its __dict__.
    fields = getattr(value, "__dict__", None)
    has_generator = fields is not None and fields.get("response_gen") is not None
    return has_generator or is_generator(value)
