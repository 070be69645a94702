"""The model calls of a turn: which count, which one wrote the answer, and whose prompts it was written from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from rageval_hooks.integrations.capture.authorship import last_without_tools, prompt_text, writer_of
from rageval_hooks.integrations.capture.run_facts import (
    end_of,
    is_inside,
    of_kind,
    outside,
)
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.llama_index.messages import (
    as_json,
    messages_of,
    model_of,
    refusal_of,
    requested_model_in,
    tool_calls_of,
    usage_of,
)
from rageval_hooks.integrations.llama_index.values import (
    answer_of,
    method_of,
)
from rageval_hooks.turn import Usage

__all__ = [
    "answering_call",
    "counted_calls",
    "generated_text",
    "model_name",
    "prompts_of_answer",
    "requested_model",
    "tokens_used",
]

# --------------------------------------------------------------------------- which calls count


def counted_calls(runs: Sequence[Run]) -> list[Run]:
    """Return each model call once. In many classes ``achat`` calls ``chat``, which calls ``complete``."""
    outermost = outside(of_kind(runs, "llm"), "llm")
    inner = {id(call) for outer, call in product(outermost, outermost) if _delegates(outer, call)}
    return [call for call in outermost if id(call) not in inner]


def _delegates(outer: Run, inner: Run) -> bool:
    """Return True if a model's asynchronous stream is made of a synchronous one.

    The inner stream starts when the outer one is read, and so outside of the outer span.
    """
    if outer.details.get("instance") is not inner.details.get("instance"):
        return False
    # For example "astream_chat" around "stream_chat", or "astream_complete" around "stream_complete".
    if not method_of(outer.id).startswith("astream_") or not method_of(inner.id).startswith("stream_"):
        return False
    return outer.started_at <= inner.started_at <= end_of(outer, inner.started_at)


# --------------------------------------------------------------------------- the call that wrote the answer


def answering_call(root: Run, calls: Sequence[Run], response: str) -> Run | None:
    """Return the model call that wrote the answer: the one whose text it is, else the last that asked for no tools.

    Args:
        root: the run that returned the answer.
        calls: the model calls by start time.
        response: the root's answer; empty if its output has no answer.
    """
    writer = writer_of(response, calls, generated_text)
    if writer is not None:
        return writer
    if root.kind in ("query", "chat"):
        # These engines may have a model judge the answer afterwards.
        calls = list(filter(_is_writing, calls)) or calls
    return last_without_tools(calls, tool_calls_of)


def _is_writing(call: Run) -> bool:
    """Return True for a call of a synthesizer or of a streamed chat."""
    return is_inside(call, "synthesizer", "writer")


def prompts_of_answer(runs: Sequence[Run], calls: Sequence[Run], answering: Run | None) -> str | None:
    """Return the text of all prompts that the answer was written from; None if there was no model call.

    Besides the final prompt these are all calls of synthesizers (one that refines shows each passage to another call),
    and the final call of each agent inside of the turn, which read the passages for the outer one.

    Args:
        runs: the runs by start time.
        calls: the model calls outside of retrievers.
        answering: the call that wrote the answer.
    """
    chosen = [call for call in calls if call is answering or _is_writing(call)]
    for agent in of_kind(runs[1:], "agent", "chat", "workflow"):
        inside_agent = [call for call in calls if agent in call.ancestors()]
        final = answering_call(agent, inside_agent, answer_of(agent.output))
        if final is not None:
            chosen.append(final)
    prompts = [prompt_text(messages_of(call.input)) for call in chosen]
    return "\n".join(prompts) if prompts else None


# --------------------------------------------------------------------------- what a call has


def generated_text(call: Run) -> str:
    """Return the text that a model wrote or has streamed so far, else its tool calls, else its refusal."""
    text: str = answer_of(call.output)
    if text:
        return text
    if call.tokens:
        return "".join(call.tokens)
    tool_calls = tool_calls_of(call.output)
    return as_json(tool_calls) if tool_calls else refusal_of(call.output)


def model_name(call: Run) -> str | None:
    """Return the name of the model that was called."""
    return model_of(call.output) or requested_model(call)


def requested_model(call: Run) -> str | None:
    """Return the name of the model that the application asked for."""
    return requested_model_in(call.details.get("model"))


def tokens_used(call: Run, runs: Sequence[Run]) -> Usage | None:
    """Return the tokens that the provider counted for a call, else for the calls that it is made of."""
    # A provider's count in the middle of a broken stream is not the count of the call.
    is_whole = call.error is None and call.ended_at is not None
    own = usage_of(call.output) if is_whole else None
    if own is not None:
        return own
    return Usage.sum(tokens_used(part, runs) for part in runs if _is_part(part, call))


def _is_part(run: Run, call: Run) -> bool:
    """Return True if a model call is made inside another one, with no third call between them."""
    if run.kind != "llm" or run is call:
        return False
    for ancestor in run.ancestors():
        if ancestor.kind == "llm":
            return ancestor is call
    return _delegates(call, run)
