"""Which of an application's texts may be shown, and evaluations without the others."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped
from rageval_hooks.turn import ErrorInfo, Passage, Step, StepKind

_logger = logging.getLogger(__name__)

REDACTED = "__REDACTED__"
Quoted = TypeVar("Quoted", str, str | None)

_GENAI_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_GENAI_SHOWN = frozenset({"span_only", "span_and_event", "true", "1", "yes", "on"})
_GENAI_HIDDEN = frozenset({"no_content", "event_only", "false", "0", "no", "off"})
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
    def build(cls, capture_content: bool | None) -> ContentPolicy:
        """Read the switches of the environment. ``OPENINFERENCE_HIDE_*`` always hides.

        Args:
            capture_content: our own setting. False hides everything. True overrides
                ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, None follows it.
        """
        shown = _genai_shows() if capture_content is None else capture_content
        if not shown:
            return cls(**dict.fromkeys(cls.model_fields, False))

        def hides(*names: str) -> bool:
            values = (os.environ.get(f"OPENINFERENCE_HIDE_{name}", "") for name in names)
            return any(value.strip().lower() in ("true", "1") for value in values)

        return cls(
            inputs=not hides("INPUTS"),
            outputs=not hides("OUTPUTS"),
            # The wider switch hides the narrower ones too, as in OpenInference.
            input_messages=not hides("INPUTS", "INPUT_MESSAGES", "INPUT_TEXT"),
            output_messages=not hides("OUTPUTS", "OUTPUT_MESSAGES", "OUTPUT_TEXT"),
            documents=not hides("RETRIEVAL_DOCUMENTS"),
            tools=not hides("INPUTS", "LLM_TOOLS"),
            parameters=not hides("LLM_INVOCATION_PARAMETERS"),
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

    def quote(self, text: Quoted, shown: bool) -> Quoted:
        """Return the text, or a placeholder if it is hidden; None for None."""
        return text if shown or text is None else REDACTED

    def reason(self, result: Skipped | Failed) -> str:
        """Return why a metric has no value. The message of an error may quote texts, and is hidden with them."""
        if isinstance(result, Skipped) or self.everything:
            return result.reason
        return f"{result.error_type}: {REDACTED}"


def _genai_shows() -> bool:
    value = os.environ.get(_GENAI_SWITCH, "").strip().lower()
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

    Steps pass on texts of every kind: if a kind is hidden, they have none.

    Args:
        evaluation: the evaluation; returned unchanged if nothing is hidden.
        policy: what may be shown.
    """
    if policy == ContentPolicy():
        return evaluation
    turn, everything = evaluation.turn, policy.everything
    hidden: dict[str, Any] = {"input": None, "output": None, "messages": (), "template": None, "tool_calls": ()}
    steps = [
        step.model_copy(
            update={
                **({} if everything else hidden),
                "tools": step.tools if policy.tools else (),
                "parameters": shown_parameters(step.parameters, policy),
                "passages": _passages(step.passages, policy),
                "error": _error(step.error, policy),
            }
        )
        for step in turn.steps
    ]
    shown = {
        "query": policy.quote(turn.query, policy.inputs),
        "passages": _passages(turn.passages, policy),
        "response": policy.quote(turn.response, policy.outputs),
        "retrieval_queries": tuple(policy.quote(query, policy.inputs) for query in turn.retrieval_queries),
        "reference": policy.quote(turn.reference, policy.outputs),
        "prompt": turn.prompt if everything else (),
        "steps": tuple(steps),
        "error": _error(turn.error, policy),
        "metadata": turn.metadata if everything else {},
    }
    results = [hide_result(result, policy) for result in evaluation.results]
    return evaluation.model_copy(update={"turn": turn.model_copy(update=shown), "results": tuple(results)})


def shown_parameters(parameters: Mapping[str, Any], policy: ContentPolicy) -> Mapping[str, Any]:
    """Return the parameters of a model call that may be shown: all, or only numbers and switches."""
    if policy.parameters and policy.inputs:
        return parameters
    return {name: value for name, value in parameters.items() if isinstance(value, (bool, int, float))}


def _passages(passages: Iterable[Passage], policy: ContentPolicy) -> tuple[Passage, ...]:
    # Metadata may contain a title or the text itself.
    hidden: dict[str, Any] = {} if policy.documents else {"text": REDACTED, "metadata": {}}
    return tuple(passage.model_copy(update=hidden) for passage in passages)


def _error(error: ErrorInfo | None, policy: ContentPolicy) -> ErrorInfo | None:
    return error and error.model_copy(update={"message": policy.quote(error.message, policy.everything)})


def hide_result(result: Result, policy: ContentPolicy) -> Result:
    """Return a result without the explanation, message and metadata that may quote hidden texts."""
    if policy.everything or isinstance(result, Skipped):
        return result
    name = "explanation" if isinstance(result, Score) else "message"
    shown = policy.quote(getattr(result, name), False)
    return result.model_copy(update={name: shown, "metadata": {}})
