"""What backends show of a turn: which of its texts, which results first, and which of its steps as spans."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from rageval_hooks.privacy import REDACTED
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import (
    ANNOTATED_BY,
    VERDICT,
    Evaluation,
    Failed,
    Result,
    Score,
    Skipped,
    Target,
    annotator_of,
    is_about_turn,
    judge_details,
    metric_of,
)
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import ErrorInfo, GuardOutcome, Message, Passage, SpanReference, Step, StepKind, ToolCall, Turn

_logger = logging.getLogger(__name__)

Quoted = TypeVar("Quoted", str, str | None)

_GENAI_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_GENAI_SHOWN = frozenset({"span_only", "span_and_event", "true", "1", "yes", "on"})
_GENAI_HIDDEN = frozenset({"no_content", "event_only", "false", "0", "no", "off"})
# A judge's details that are text and quote nothing. Its words when it refused, for one, may quote a passage.
_JUDGE_IDS = frozenset({"model", "response_id", "mode", "circuit"})


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
    def of_settings(cls, capture_content: bool | None) -> ContentPolicy:
        """Read the switches of the environment. ``OPENINFERENCE_HIDE_*`` always hides.

        Args:
            capture_content: our own setting. False hides everything. True overrides
                ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, None follows it.
        """
        shown = _genai_shows() if capture_content is None else capture_content
        if not shown:
            return _NOTHING

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

    @classmethod
    def of_exporter(cls, capture_content: bool | None) -> ContentPolicy:
        """Return the policy of one exporter: no texts for False. The settings decide about everything else."""
        return _NOTHING if capture_content is False else cls()

    def __and__(self, other: ContentPolicy) -> ContentPolicy:
        """Return the stricter policy: what both show."""
        return ContentPolicy(**{name: getattr(self, name) and getattr(other, name) for name in type(self).model_fields})

    @property
    def everything(self) -> bool:
        """True if no text is hidden. Explanations, error messages and metadata may quote any text: shown only then."""
        return all((self.inputs, self.outputs, self.input_messages, self.output_messages, self.documents))

    @property
    def prompts(self) -> bool:
        """True if prompts are shown. They repeat passages and earlier answers."""
        return self.input_messages and self.outputs and self.documents

    def quote(self, text: Quoted, shown: bool) -> Quoted:
        """Return the text, or a placeholder if it is hidden; None for None, and an empty text for an empty one."""
        return text if shown or not text else REDACTED


_NOTHING = ContentPolicy(**dict.fromkeys(ContentPolicy.model_fields, False))


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
    """Return the evaluation with hidden texts replaced, and without what may quote them.

    Every exporter gets its evaluations from here. A text that passes on others, such as a prompt, is shown only if all
    of them are.

    Args:
        evaluation: the evaluation; returned unchanged if nothing is hidden.
        policy: what may be shown.
    """
    if policy == ContentPolicy():
        return evaluation
    turn, everything = evaluation.turn, policy.everything
    changes = {
        "query": policy.quote(turn.query, policy.inputs),
        "passages": _passages(turn.passages, policy),
        "response": policy.quote(turn.response, policy.outputs),
        "guard": _guard(turn.guard, policy),
        "retrieval_queries": tuple(policy.quote(query, policy.inputs) for query in turn.retrieval_queries),
        "reference": policy.quote(turn.reference, policy.outputs),
        "prompt": _messages(turn.prompt, policy),
        "steps": tuple(_step(step, policy) for step in turn.steps),
        "error": _error(turn.error, policy),
        "metadata": turn.metadata if everything else {},
    }
    results = evaluation.results if everything else tuple(map(_result, evaluation.results))
    return evaluation.model_copy(update={"turn": turn.with_hidden_texts(changes), "results": results})


def _guard(outcome: GuardOutcome | None, policy: ContentPolicy) -> GuardOutcome | None:
    return outcome and outcome.model_copy(
        update={"blocked_answer": policy.quote(outcome.blocked_answer, policy.outputs)}
    )


def _step(step: Step, policy: ContentPolicy) -> Step:
    everything = policy.everything
    # What goes in and what comes out, by the kind of step. The others pass on texts of any kind.
    shown = {
        "llm": (policy.prompts, policy.output_messages),
        "tool": (policy.inputs, policy.outputs and policy.documents),
        "retriever": (policy.inputs, policy.documents),
        "reranker": (policy.inputs, policy.documents),
    }
    shows_input, shows_output = shown.get(step.kind, (everything, everything))
    changes: dict[str, Any] = {
        "input": policy.quote(step.input, shows_input),
        "output": policy.quote(step.output, shows_output),
        "messages": _messages(step.messages, policy),
        "template": step.template if policy.prompts else None,
        "tool_calls": step.tool_calls if everything else tuple(map(_tool_call, step.tool_calls)),
        "passages": _passages(step.passages, policy),
        "error": _error(step.error, policy),
    }
    if not policy.tools:
        changes |= {"tools": (), "description": None, "tool_schema": None}
    if not (policy.parameters and policy.inputs):
        changes["parameters"] = {
            name: value if isinstance(value, (bool, int, float)) else REDACTED
            for name, value in step.parameters.items()
        }
    return step.model_copy(update=changes)


def _messages(messages: Iterable[Message], policy: ContentPolicy) -> tuple[Message, ...]:
    if policy.prompts:
        return tuple(messages)
    return tuple(
        message.model_copy(update={"content": REDACTED, "tool_calls": tuple(map(_tool_call, message.tool_calls))})
        for message in messages
    )


def _tool_call(call: ToolCall) -> ToolCall:
    return call.model_copy(update={"arguments": REDACTED})


def _passages(passages: Iterable[Passage], policy: ContentPolicy) -> tuple[Passage, ...]:
    # Metadata may contain a title or the text itself.
    hidden: dict[str, Any] = {} if policy.documents else {"text": REDACTED, "metadata": {}}
    return tuple(passage.model_copy(update=hidden) for passage in passages)


def _error(error: ErrorInfo | None, policy: ContentPolicy) -> ErrorInfo | None:
    return error and error.model_copy(update={"message": policy.quote(error.message, policy.everything)})


def _result(result: Result) -> Result:
    """Return a result without the explanation, message and metadata that may quote hidden texts."""
    if isinstance(result, Skipped):
        return result
    if result.annotator == "HUMAN" and isinstance(result, Score):
        who = {ANNOTATED_BY: annotator_of(result)} if annotator_of(result) else {}
        return result.model_copy(update={"explanation": None, "metadata": who})
    judge = {
        detail: value
        for detail, value in judge_details(result).items()
        if isinstance(value, (bool, int, float)) or detail in _JUDGE_IDS
    }
    name = "explanation" if isinstance(result, Score) else "message"
    shown = REDACTED if getattr(result, name) is not None else None
    return result.model_copy(update={name: shown, "metadata": {"judge": judge} if judge else {}})


# --------------------------------------------------------------------------- which results, steps and passages

MAIN_SCORES = (VERDICT, "faithfulness", "unsupported_facts")
"""The scores that come first everywhere, most important first: a person who opens a trace sees a few.

The choice must not depend on a turn's values or on the load of the machine: a mean of what was annotated only when it
failed, or only when it came late, would be wrong.
"""

_JUDGED = "trace"
"""The metric that makes the judge's verdict."""

_USAGE_UNITS = frozenset({"s", "ms", "tokens", "USD"})
"""Latency, tokens and cost: every backend shows its own, and their scale would flatten a chart of shares."""

_RAG_STEPS = frozenset[StepKind]({"retriever", "reranker", "llm", "tool"})


def quality_results(results: Iterable[Result]) -> list[Result]:
    """Return the results of quality about the whole turn, main scores first, then in the order of the metrics.

    Skipped metrics, usage, and scores of passages and sentences are not among them. Metrics that failed are, and a
    verdict without a number, such as ``declined``.
    """
    return sorted((result for result in results if is_about_quality(result)), key=importance)


def is_about_quality(result: Result) -> bool:
    """Return True for a score of quality of the whole turn, for a verdict, and for a metric that failed."""
    if isinstance(result, Score):
        return is_about_turn(result) and result.unit not in _USAGE_UNITS
    return isinstance(result, Failed) or result.label is not None


def importance(result: Result) -> int:
    """Return the place of a result among the main scores, from 0; their number for any other."""
    # A judge that does not answer must not look like one that was not asked.
    name = VERDICT if isinstance(result, Failed) and metric_of(result) == _JUDGED else result.name
    return MAIN_SCORES.index(name) if name in MAIN_SCORES else len(MAIN_SCORES)


def evaluation_span_id(evaluation: Evaluation, turn_span: SpanReference) -> str:
    """Return the id of the span of an evaluation, 16 hex digits. One that is delivered again has the same."""
    digest = evaluation.id  # 32 hex digits
    if digest is None:
        names = "/".join(result.name for result in evaluation.results)
        digest = blake2b(f"{turn_span.span_id}/{evaluation.stage}/{names}".encode(), digest_size=16).hexdigest()
    return f"{int(digest[:16], 16) or 1:016x}"


def answering_span_id(turn: Turn) -> str:
    """Return the id of the span of the last model call that wrote an answer; that of the turn's span without one."""
    calls = [step for step in turn.steps if step.kind == "llm" and step.span_id]
    answering = [step for step in calls if step.output] or calls
    return str(answering[-1].span_id) if answering else "" if turn.span is None else turn.span.span_id


class PassagePlace(NamedTuple):
    """Where a passage is listed.

    Attributes:
        span_id: the span of the retriever or reranker that found it, 16 hex digits.
        position: the passage's position among that span's documents, from 0.
        in_documents: True if that span lists its documents under OpenInference's names, as ours do. Spans of other
            conventions have them as JSON, or not at all.
    """

    span_id: str
    position: int
    in_documents: bool


def has_span(step: Step, spans: SpanSelection) -> bool:
    """Return True if a step becomes a span of ours. Steps with a span of another tracer do not get a second one."""
    if step.span_id is not None or spans == "scores":
        return False
    return spans == "all" or step.kind in _RAG_STEPS


def passage_place(turn: Turn, target: Target, spans: SpanSelection) -> PassagePlace | None:
    """Return the span that lists the passage that a score is about; None for another target, or if no span does.

    Args:
        turn: the turn.
        target: of a score of this turn.
        spans: which steps of a turn become spans. Spans of other tracers are found all the same.
    """
    if target.kind != "passage" or target.index is None:
        return None
    located = turn.locate_passage(target.index)
    if located is None:
        return None
    step, position = located
    is_ours = has_span(step, spans)
    span_id = turn.step_span_id(step)
    if span_id is None or not (is_ours or step.span_id is not None):
        return None
    by_openinference = (step.span_tracer or "").startswith("openinference.") and step.kind in ("retriever", "reranker")
    return PassagePlace(span_id=span_id, position=position, in_documents=is_ours or by_openinference)
