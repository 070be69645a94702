"""An evaluation without the texts that may not be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.messages import Message, ToolCall
from rageval_hooks.runtime.selecting import entries_of
from rageval_hooks.score import Evaluation, Failed, Result, Score
from rageval_hooks.turn import ErrorInfo, Passage, Step, Turn

__all__ = ["hide", "hide_result", "shown_parameters"]


def hide(evaluation: Evaluation, policy: ContentPolicy) -> Evaluation:
    """Return the evaluation with hidden texts replaced, and without the metadata that may quote them.

    Args:
        evaluation: the evaluation; returned unchanged if nothing is hidden.
        policy: what may be shown.
    """
    if policy == ContentPolicy():
        return evaluation
    results = tuple(hide_result(result, policy) for result in evaluation.results)
    return evaluation.model_copy(update={"turn": _turn(evaluation.turn, policy), "results": results})


def _turn(turn: Turn, policy: ContentPolicy) -> Turn:
    return turn.model_copy(
        update={
            "query": policy.quote(turn.query, policy.inputs),
            "passages": _passages(turn.passages, policy),
            "response": policy.quote(turn.response, policy.outputs),
            "retrieval_queries": tuple(policy.quote(query, policy.inputs) for query in turn.retrieval_queries),
            "reference": policy.quote(turn.reference, policy.outputs),
            "prompt": _messages(turn.prompt, policy),
            "steps": tuple(_step(step, policy) for step in turn.steps),
            "error": _error(turn.error, policy),
            "metadata": {},
        }
    )


def _step(step: Step, policy: ContentPolicy) -> Step:
    input_shown, output_shown = policy.shows(step)
    return step.model_copy(
        update={
            "input": policy.quote(step.input, input_shown),
            "output": policy.quote(step.output, output_shown),
            "messages": _messages(step.messages, policy),
            "template": step.template if policy.shows_prompts else None,
            "tool_calls": _tool_calls(step.tool_calls, policy, policy.shows_completions),
            "tools": step.tools if policy.tools else (),
            "parameters": shown_parameters(step.parameters, policy),
            "passages": _passages(step.passages, policy),
            "error": _error(step.error, policy),
        }
    )


def _messages(messages: Iterable[Message], policy: ContentPolicy) -> tuple[Message, ...]:
    return tuple(
        message.model_copy(
            update={
                "content": policy.quote(message.content, policy.input_messages),
                "tool_calls": _tool_calls(message.tool_calls, policy, policy.input_messages),
            }
        )
        for message in messages
    )


def _tool_calls(calls: Iterable[ToolCall], policy: ContentPolicy, shown: bool) -> tuple[ToolCall, ...]:
    return tuple(call.model_copy(update={"arguments": policy.quote(call.arguments, shown)}) for call in calls)


def shown_parameters(parameters: Mapping[str, Any], policy: ContentPolicy) -> Mapping[str, Any]:
    """Return the parameters of a model call that may be shown: all, or only numbers and switches."""
    if policy.parameters and policy.inputs:
        return parameters
    return entries_of(parameters, bool, int, float)


def _passages(passages: Iterable[Passage], policy: ContentPolicy) -> tuple[Passage, ...]:
    # Metadata may contain a title or the text itself.
    hidden: dict[str, Any] = {} if policy.documents else {"metadata": {}}
    return tuple(
        passage.model_copy(update={"text": policy.quote(passage.text, policy.documents), **hidden})
        for passage in passages
    )


def _error(error: ErrorInfo | None, policy: ContentPolicy) -> ErrorInfo | None:
    return error and error.model_copy(update={"message": policy.quote(error.message, policy.everything)})


def hide_result(result: Result, policy: ContentPolicy) -> Result:
    """Return a result without the explanation, message and metadata that may quote hidden texts."""
    if isinstance(result, Score):
        shown = policy.quote(result.explanation, policy.everything)
        return result.model_copy(update={"explanation": shown, "metadata": {}})
    if isinstance(result, Failed):
        shown = policy.quote(result.message, policy.everything)
        return result.model_copy(update={"message": shown, "metadata": {}})
    return result
