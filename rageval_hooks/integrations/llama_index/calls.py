"""Model calls: each counted once, however many methods and classes it went through."""

from __future__ import annotations

from collections.abc import Sequence

from rageval_hooks.integrations.capture.authorship import writer_of
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.llama_index.components import method_of
from rageval_hooks.integrations.llama_index.context import inside
from rageval_hooks.integrations.llama_index.payloads import answer_of, as_json, model_of, tool_calls_of
from rageval_hooks.integrations.llama_index.usage import usage_of
from rageval_hooks.turn import Usage

__all__ = ["answering_call", "counted_calls", "generated_text", "model_name", "tokens_used"]


def counted_calls(runs: Sequence[Run]) -> list[Run]:
    """Return the outermost model calls: ``achat`` of many classes calls ``chat``, which calls ``complete``."""
    outermost = [run for run in runs if run.kind == "llm" and not inside(run, "llm")]
    return [run for run in outermost if not any(_delegates(other, run) for other in outermost)]


def _delegates(outer: Run, inner: Run) -> bool:
    """Whether an asynchronous stream of a model is made of a plain one.

    That one begins while the asynchronous one is being read, and so outside of its span.
    """
    return (
        (outer.details or {}).get("instance") is (inner.details or {}).get("instance")
        and method_of(outer.id).startswith("astream_")
        and method_of(inner.id).startswith("stream_")
        and outer.started_at <= inner.started_at
        and (outer.ended_at is None or inner.started_at <= outer.ended_at)
    )


def answering_call(root: Run, calls: Sequence[Run], response: str) -> Run | None:
    """Return the model call that wrote the answer: whose text it is, else the last one that did not ask for tools.

    Query and chat engines may judge the answer afterwards: there it is the last one inside a synthesizer.

    Args:
        root: the root.
        calls: the model calls by start time.
        response: what came out of the root; empty if there is no answer to be seen in it.
    """
    writer = writer_of(response, calls, generated_text)
    if writer is not None:
        return writer
    if root.kind in ("query", "chat"):
        calls = [call for call in calls if inside(call, "synthesizer", "writer")] or calls
    for call in reversed(calls):
        if not tool_calls_of(call.output):
            return call
    return calls[-1] if calls else None


def generated_text(call: Run) -> str:
    """Return the text that a model wrote, or had streamed so far; the tools it asked for if there is none."""
    text = answer_of(call.output) or "".join(call.tokens or ())
    if text:
        return text
    calls = tool_calls_of(call.output)
    return as_json(calls) if calls else ""


def model_name(call: Run) -> str | None:
    """Return the name of the model that was called."""
    return model_of(call.output, (call.details or {}).get("model") or {})


def tokens_used(call: Run, runs: Sequence[Run]) -> Usage | None:
    """Return the tokens that the provider counted: of the call itself, else of the calls that it is made of.

    What a broken stream had counted until then is no count of the call.
    """
    whole = call.error is None and call.ended_at is not None
    own = usage_of(call.output) if whole else None
    if own is not None:
        return own
    inner = [run for run in runs if run.kind == "llm" and run is not call and _is_part(run, call)]
    return Usage.sum(tokens_used(run, runs) for run in inner)


def _is_part(run: Run, call: Run) -> bool:
    nearest = next((ancestor for ancestor in run.ancestors() if ancestor.kind == "llm"), None)
    return nearest is call or (nearest is None and _delegates(call, run))
