"""Which of an application's texts may be shown on spans."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from rageval_hooks.exporters.semconv import REDACTED
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.turn import Step, StepKind

__all__ = ["ContentPolicy"]

_logger = logging.getLogger(__name__)

_GENAI_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_GENAI_SHOWN = frozenset({"span_only", "span_and_event", "true", "1", "yes", "on"})
_GENAI_HIDDEN = frozenset({"no_content", "event_only", "false", "0", "no", "off"})
_HIDE = "OPENINFERENCE_HIDE_"
_PLUMBING = frozenset[StepKind]({"chain", "agent", "prompt", "parser"})


class ContentPolicy(Data):
    """What may be shown; everything by default, as OpenInference has it.

    Attributes:
        inputs: questions, tool arguments, retrieval queries.
        outputs: answers and tool results.
        input_messages: prompts.
        output_messages: what a model wrote.
        documents: texts and metadata of passages.
    """

    inputs: bool = True
    outputs: bool = True
    input_messages: bool = True
    output_messages: bool = True
    documents: bool = True

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
        if capture_content is False or (capture_content is None and not _genai_shows(environment)):
            return cls(inputs=False, outputs=False, input_messages=False, output_messages=False, documents=False)

        def hidden(*names: str) -> bool:
            return any(environment.get(_HIDE + name, "").strip().lower() in ("true", "1") for name in names)

        return cls(
            inputs=not hidden("INPUTS"),
            outputs=not hidden("OUTPUTS"),
            input_messages=not hidden("INPUTS", "INPUT_MESSAGES", "INPUT_TEXT"),
            output_messages=not hidden("OUTPUTS", "OUTPUT_MESSAGES", "OUTPUT_TEXT"),
            documents=not hidden("RETRIEVAL_DOCUMENTS"),
        )

    @property
    def everything(self) -> bool:
        """True if nothing is hidden. Explanations, error messages and metadata may quote any text: shown only then."""
        return self.inputs and self.outputs and self.input_messages and self.output_messages and self.documents

    def shows(self, step: Step) -> tuple[bool, bool]:
        """Return True or False for a step's input and for its output: whether each may be shown.

        Chains, prompts and parsers pass on the texts of other steps, so theirs may be of any kind.
        """
        if step.kind in _PLUMBING:
            return self.everything, self.everything
        if step.kind == "llm":
            return self.inputs and self.input_messages, self.outputs and self.output_messages
        return self.inputs, self.outputs

    def quote(self, text: str | None, shown: bool) -> str | None:
        """Return the text, or a placeholder if it is hidden."""
        if text is None:
            return None
        return text if shown else REDACTED


def _genai_shows(environment: Mapping[str, str]) -> bool:
    value = environment.get(_GENAI_SWITCH, "").strip().lower()
    if not value or value in _GENAI_SHOWN:
        return True
    if value not in _GENAI_HIDDEN:
        _logger.warning(
            "rageval-hooks: %s=%r is not known; content is kept off spans. Valid: %s",
            _GENAI_SWITCH,
            value,
            "NO_CONTENT, SPAN_ONLY, EVENT_ONLY, SPAN_AND_EVENT, true, false",
        )
    return False
