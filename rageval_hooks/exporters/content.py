"""Which of an application's texts may be shown, and evaluations without the others."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, overload

from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped
from rageval_hooks.turn import ErrorInfo, Message, Passage, Step, StepKind, ToolCall

_logger = logging.getLogger(__name__)

REDACTED = "__REDACTED__"

_GENAI_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_GENAI_SHOWN = frozenset({"span_only", "span_and_event", "true", "1", "yes", "on"})
_GENAI_HIDDEN = frozenset({"no_content", "event_only", "false", "0", "no", "off"})
_HIDE = "OPENINFERENCE_HIDE_"
_HIDEABLE = (
    "INPUTS",
    "INPUT_MESSAGES",
    "INPUT_TEXT",
    "OUTPUTS",
    "OUTPUT_MESSAGES",
    "OUTPUT_TEXT",
    "RETRIEVAL_DOCUMENTS",
    "LLM_TOOLS",
    "LLM_INVOCATION_PARAMETERS",
)
_PLUMBING = frozenset[StepKind]({"chain", "agent", "prompt", "parser"})


class ContentPolicy(Data):
    """The texts that may be shown; all of them by default, as in OpenInference.

    Attributes:
        inputs: questions, tool arguments, retrieval queries.
        outputs: answers and tool results.
        input_messages: prompts.
        output_messages: what a model wrote.
        documents: texts and metadata of passages.
        tools: definitions of the tools that a model could call.
        parameters: the parameters of model calls. Without them, numbers and switches such as ``temperature`` stay.
    """

    inputs: bool = True
    outputs: bool = True
    input_messages: bool = True
    output_messages: bool = True
    documents: bool = True
    tools: bool = True
    parameters: bool = True

    @classmethod
    def build(cls, capture_content: bool | None, environment: Mapping[str, str] | None = None) -> ContentPolicy:
        """Read the switches.

        Args:
            capture_content: our own setting. False hides everything. True overrides
                ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, None follows it.
            environment: the environment variables; those of the process by default. ``OPENINFERENCE_HIDE_*`` always
                hides, also with ``capture_content=True``.
        """
        environment = os.environ if environment is None else environment
        shown = _genai_shows(environment) if capture_content is None else capture_content
        if not shown:
            return cls(**dict.fromkeys(cls.model_fields, False))
        hidden = {name for name in _HIDEABLE if _is_on(environment.get(_HIDE + name, ""))}
        return cls(
            inputs="INPUTS" not in hidden,
            outputs="OUTPUTS" not in hidden,
            # The wider switch hides the narrower ones too, as in OpenInference.
            input_messages=hidden.isdisjoint({"INPUTS", "INPUT_MESSAGES", "INPUT_TEXT"}),
            output_messages=hidden.isdisjoint({"OUTPUTS", "OUTPUT_MESSAGES", "OUTPUT_TEXT"}),
            documents="RETRIEVAL_DOCUMENTS" not in hidden,
            tools=hidden.isdisjoint({"INPUTS", "LLM_TOOLS"}),
            parameters="LLM_INVOCATION_PARAMETERS" not in hidden,
        )

    @property
    def everything(self) -> bool:
        """True if no text is hidden. Explanations, error messages and metadata may quote any text: shown only then."""
        return all((self.inputs, self.outputs, self.input_messages, self.output_messages, self.documents))

    def shows(self, step: Step) -> tuple[bool, bool]:
        """Return two flags: True if a step's input may be shown, and True if its output may."""
        # Chains, prompts and parsers pass on the texts of other steps, so theirs may be of any kind.
        if step.kind in _PLUMBING:
            return self.everything, self.everything
        if step.kind == "llm":
            return self.shows_prompts, self.shows_completions
        return self.inputs, self.outputs

    @property
    def shows_prompts(self) -> bool:
        """True if prompts may be shown."""
        return self.inputs and self.input_messages

    @property
    def shows_completions(self) -> bool:
        """True if what a model wrote may be shown."""
        return self.outputs and self.output_messages

    @overload
    def quote(self, text: str, shown: bool) -> str: ...

    @overload
    def quote(self, text: str | None, shown: bool) -> str | None: ...

    def quote(self, text: str | None, shown: bool) -> str | None:
        """Return the text, or a placeholder if it is hidden."""
        if text is None:
            return None
        return text if shown else REDACTED

    def reason(self, result: Skipped | Failed) -> str:
        """Return why a metric has no value. The message of an error may quote texts, and is hidden with them."""
        if isinstance(result, Skipped) or self.everything:
            return result.reason
        return f"{result.error_type}: {REDACTED}"


def _is_on(value: str) -> bool:
    return value.strip().lower() in ("true", "1")


def _genai_shows(environment: Mapping[str, str]) -> bool:
    value = environment.get(_GENAI_SWITCH, "").strip().lower()
    if not value or value in _GENAI_SHOWN:
        return True
    # An unknown value hides: a typing error must not publish what the user meant to keep.
    if value not in _GENAI_HIDDEN:
        _logger.warning(
            "rageval-hooks: %s=%r is not known; content is kept off spans. Valid: %s [RAGEVAL-115]",
            _GENAI_SWITCH,
            value,
            "NO_CONTENT, SPAN_ONLY, EVENT_ONLY, SPAN_AND_EVENT, true, false",
        )
    return False


# --------------------------------------------------------------------------- evaluations without hidden texts


def hide(evaluation: Evaluation, policy: ContentPolicy) -> Evaluation:
    """Return the evaluation with hidden texts replaced, and without the metadata that may quote them.

    Args:
        evaluation: the evaluation; returned unchanged if nothing is hidden.
        policy: what may be shown.
    """
    if policy == ContentPolicy():
        return evaluation
    turn = evaluation.turn
    shown = turn.model_copy(
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
    results = tuple(hide_result(result, policy) for result in evaluation.results)
    return evaluation.model_copy(update={"turn": shown, "results": results})


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
    shown = policy.input_messages
    return tuple(
        message.model_copy(
            update={
                "content": policy.quote(message.content, shown),
                "tool_calls": _tool_calls(message.tool_calls, policy, shown),
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
    return {name: value for name, value in parameters.items() if isinstance(value, (bool, int, float))}


def _passages(passages: Iterable[Passage], policy: ContentPolicy) -> tuple[Passage, ...]:
    if policy.documents:
        return tuple(passages)
    # Metadata may contain a title or the text itself.
    return tuple(passage.model_copy(update={"text": REDACTED, "metadata": {}}) for passage in passages)


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
