"""The model calls of a turn: which count, which one wrote the answer, and the fields of a call's step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product, takewhile
from typing import Any

from rageval_hooks.integrations.capture import authorship, turns
from rageval_hooks.integrations.capture.evidence import Evidence
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import first_string, or_else, public_parameters
from rageval_hooks.integrations.llama_index import values
from rageval_hooks.integrations.llama_index.runs import LlamaIndexRun
from rageval_hooks.judges.token_counts import usage_of_llama_index
from rageval_hooks.runtime.jsonable import string_of
from rageval_hooks.runtime.narrowing import (
    entry_or_attribute,
    first_text,
    items_or_empty,
    mapping_or_empty,
    text_or_none,
)
from rageval_hooks.turn import Message, PromptTemplate, Usage

# --------------------------------------------------------------------------- which calls count


def counted_calls(runs: Sequence[LlamaIndexRun]) -> list[LlamaIndexRun]:
    """Return each model call once. In many classes ``achat`` calls ``chat``, which calls ``complete``."""
    outermost = turns.outside(turns.of_kind(runs, "llm"), "llm")
    inner = {id(call) for outer, call in product(outermost, outermost) if _delegates(outer, call)}
    return [call for call in outermost if id(call) not in inner]


def _delegates(outer: LlamaIndexRun, inner: LlamaIndexRun) -> bool:
    """Return True if a model's asynchronous stream is made of a synchronous one.

    The inner stream starts when the outer one is read, and so outside of the outer span.
    """
    if not outer.is_of_same_component(inner):
        return False
    # For example "astream_chat" around "stream_chat", or "astream_complete" around "stream_complete".
    if not values.method_of(outer.id).startswith("astream_") or not values.method_of(inner.id).startswith("stream_"):
        return False
    return outer.started_at <= inner.started_at <= turns.end_of(outer, inner.started_at)


# --------------------------------------------------------------------------- the call that wrote the answer


def answering_call(root: Run, calls: Sequence[LlamaIndexRun], response: str) -> LlamaIndexRun | None:
    """Return the model call that wrote the answer: the one whose text it is, else the last that asked for no tools.

    Args:
        root: the run that returned the answer.
        calls: the model calls by start time.
        response: the root's answer; empty if its output has no answer.
    """
    writer = authorship.writer_of(response, calls, generated_text, _messages_of)
    if writer is not None:
        return writer
    if root.kind in ("query", "chat"):
        # These engines may have a model judge the answer afterwards.
        calls = list(filter(_is_writing, calls)) or calls
    return authorship.last_without_tools(calls, values.tool_calls_of)


def _is_writing(call: Run) -> bool:
    """Return True for a call of a synthesizer or of a streamed chat."""
    return turns.is_inside(call, "synthesizer", "writer")


def prompts_of_answer(
    calls: Sequence[LlamaIndexRun], answering: LlamaIndexRun | None, evidence: Evidence
) -> str | None:
    """Return the text of all prompts that the answer was written from; None if there was no model call.

    Besides the final prompt these are the prompts of calls whose text reached it, and of all calls of synthesizers: one
    of them may join what several calls wrote.

    Args:
        calls: the model calls outside of retrievers.
        answering: the call that wrote the answer.
        evidence: tells which statements models made.
    """
    chosen = list(filter(_is_writing, calls))
    if answering is not None and len(calls) > len(chosen):
        chosen += authorship.contributors(answering, calls, given_text, generated_text, evidence.reached)
    prompts = [given_text(call) for call in chosen]
    return "\n".join(prompts) if prompts else None


# --------------------------------------------------------------------------- what a call has


def _messages_of(call: Run) -> Sequence[Message]:
    return values.messages_of(call.input)


def generated_text(call: Run) -> str:
    """Return the text that a model wrote or has streamed so far, else its tool calls, else its refusal."""
    text: str = values.answer_of(call.output)
    if text:
        return text
    if call.tokens:
        return "".join(call.tokens)
    tool_calls = values.tool_calls_of(call.output)
    if tool_calls:
        return values.as_json(tool_calls)
    # OpenAI has a separate field for the words in which a model refused.
    places = (entry_or_attribute(_choice(call.output), "message"), getattr(call.output, "additional_kwargs", None))
    return first_text(entry_or_attribute(place, "refusal") for place in places) or ""


# "Thought: I need a tool.\nAction: search\nAction Input: {…", as an agent of the kind ReAct asks for a tool.
_REACT = re.compile(r"\A\s*(?:Thought:.*)?\bAction:", re.DOTALL)


def answer_text(call: Run) -> str:
    """Return the text that a model wrote or has streamed so far, unless it only asks for a tool."""
    text = generated_text(call)
    asks = _REACT.match(text) or (text and text == values.as_json(values.tool_calls_of(call.output)))
    return "" if asks else text


@or_else("")
def given_text(run: Run) -> str:
    """Return all text that a run received."""
    return turns.prompt_text(_messages_of(run)) if run.kind == "llm" else values.tool_input(run.input)


@or_else("")
def returned_text(run: Run) -> str:
    """Return all text that a run returned, for a model with its thoughts, its tool calls and all of its blocks."""
    if isinstance(run, LlamaIndexRun) and run.kind == "retriever":
        return "\n".join(node.text for node in run.nodes_after or ())
    message = getattr(run.output, "message", None) if run.kind == "llm" else None
    parts = [] if message is None else [values.as_json(message), values.as_json(values.tool_calls_of(run.output))]
    return "\n".join([generated_text(run) if run.kind == "llm" else values.answer_of(run.output), *parts])


@or_else(None)
def _choice(response: Any) -> Any:
    """Return the provider's own form of an answer, an object or a mapping; None without one."""
    return next(iter(items_or_empty(_of_provider(response, "choices"))), None)


@or_else(None)
def _of_provider(response: Any, *names: str) -> Any:
    """Return the first field that the provider's own response has, an object or a mapping; None without one."""
    raw = getattr(response, "raw", None)
    found = (entry_or_attribute(raw, name) for name in names)
    return next((value for value in found if value), None)


def model_of(call: LlamaIndexRun) -> str | None:
    """Return the name of the model that was called: as the provider reported it, else as it was requested."""
    reported = text_or_none(_of_provider(call.output, *_MODEL_KEYS))
    return _requested_model(call) if reported in (None, "unknown") else reported


def _requested_model(call: LlamaIndexRun) -> str | None:
    # The event of a call's start describes the model: {"model_name": "gpt-4.1", "num_output": 256}. Models without a
    # name are called "unknown" there.
    name = first_string(call.model, ("model_name", "model"))
    return None if name == "unknown" else name


_MODEL_KEYS = ("model", "model_version", "modelId")
_RESPONSE_ID_KEYS = ("id", "response_id", "responseId")


# --------------------------------------------------------------------------- the step of a call


def call_fields(call: LlamaIndexRun, runs: Sequence[LlamaIndexRun]) -> dict[str, Any]:
    """Return the fields of a model call's step.

    Args:
        call: the run of the model.
        runs: the runs of the turn.
    """
    options = mapping_or_empty(call.options)
    # The model, as the event of the call's start describes it: {"model": "gpt-4.1", "temperature": 0.1}. The options
    # are the further arguments of the call: {"tool_choice": "auto"}.
    described = mapping_or_empty(call.model)
    atoms = {name: value for name, value in described.items() if isinstance(value, _ATOMS)}
    return {
        "messages": values.messages_of(call.input),
        "template": _template_of(call),
        # Each as JSON: {"type": "function", "function": {"name": "search"}}.
        "tools": tuple(map(values.as_json, items_or_empty(options.get("tools")))),
        "parameters": public_parameters({**atoms, **options}, without=_NO_PARAMETERS),
        "tool_calls": tuple(map(values.tool_call, values.tool_calls_of(call.output))),
        "finish_reason": _finish_reason_of(call.output),
        "output": generated_text(call),
        "model": model_of(call),
        "request_model": _requested_model(call),
        # For example "chatcmpl-…".
        "response_id": text_or_none(_of_provider(call.output, *_RESPONSE_ID_KEYS)),
        "provider": values.provider_of(call.instance),
        "usage": _tokens_used(call, runs),
        "time_to_first_token": turns.seconds_to_first_token(call, call.started_at),
    }


# Of the description of a model: texts for prompts, and what is no parameter of the call.
_NO_PARAMETERS = frozenset({"system_prompt", "query_wrapper_prompt", "class_name", "tools", "messages"})
_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason")
_ATOMS = (str, bool, int, float)


@or_else(None)
def _template_of(call: Run) -> PromptTemplate | None:
    """Return the template of a call that a ``LLM.predict(prompt, **prompt_args)`` around it has made."""
    for ancestor in takewhile(lambda run: run.kind == "model", call.ancestors()):
        arguments = values.arguments_of(ancestor.input)
        prompt = arguments.get("prompt")
        if prompt is not None and hasattr(prompt, "get_template"):
            given = {**(getattr(prompt, "kwargs", None) or {}), **(arguments.get("prompt_args") or {})}
            variables = {str(name): string_of(value) for name, value in given.items()}
            # A template may be different for chat models.
            text = string_of(prompt.get_template(llm=getattr(ancestor, "instance", None)))
            return PromptTemplate(text=text, variables=variables)
    return None


@or_else(None)
def _finish_reason_of(response: Any) -> str | None:
    """Return why a model stopped, from the provider's own response: {"choices": [{"finish_reason": "stop"}]}."""
    holders = (getattr(response, "raw", None), _choice(response))
    found = (entry_or_attribute(holder, key) for holder in holders for key in _FINISH_KEYS)
    return next((str(reason) for reason in found if reason), None)


# --------------------------------------------------------------------------- token counts


_usage_of = or_else(None)(usage_of_llama_index)


def _tokens_used(call: LlamaIndexRun, runs: Sequence[LlamaIndexRun]) -> Usage | None:
    """Return the tokens that the provider counted for a call, else for the calls that it is made of."""
    # A provider's count in the middle of a broken stream is not the count of the call.
    is_whole = call.error is None and call.ended_at is not None
    own = _usage_of(call.output) if is_whole else None
    if own is not None:
        return own
    return Usage.sum(_tokens_used(part, runs) for part in runs if _is_part(part, call))


def _is_part(run: LlamaIndexRun, call: LlamaIndexRun) -> bool:
    """Return True if a model call is made inside another one, with no third call between them."""
    if run.kind != "llm" or run is call:
        return False
    around = next(iter(turns.of_kind(run.ancestors(), "llm")), None)
    return around is call if around is not None else _delegates(call, run)
