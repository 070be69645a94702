"""The input of a guard's check: an answer, and the passages that it was written from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rageval_hooks.integrations.capture.merging import turn_of
from rageval_hooks.integrations.capture.passages import passage_of
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.turn import Passage, Turn

__all__ = ["GuardEvidence", "passages_under", "read_passages"]


def _captured_recording() -> Recording | None:
    """Return the recording of the turn that the calling code is in; None if no turn is being captured."""
    # The guard is no framework, so the run around it may be of any.
    entry = shared_recorder().surrounding(None)
    return None if entry is None else entry[0]


@dataclass(frozen=True, kw_only=True)
class GuardEvidence:
    """The facts about an answer when it is checked.

    Attributes:
        question: the user's question, if the caller knows it.
        passages: the passages that the caller names.
        recording: the turn that is being captured around the check; None outside of a captured turn.
        named_only: True if only the caller's passages count, and not those of the captured turn.
    """

    question: str = ""
    passages: Sequence[Passage] = ()
    recording: Recording | None = field(default_factory=_captured_recording)
    named_only: bool = False

    def with_passages(self, passages: Iterable[Passage]) -> GuardEvidence:
        """Return the evidence with further passages that the caller names."""
        return replace(self, passages=(*self.passages, *passages))

    def turn(self, answer: str) -> Turn:
        """Return the turn so far, with an answer. Not for event loops: the captured turn is built here."""
        named = Turn(query=self.question, passages=tuple(self.passages), response=answer)
        if self.recording is None or self.named_only:
            return named
        try:
            captured = turn_of(self.recording)
        except Exception as error:
            self.recording.owner.failed("a guard could not read the turn that is being captured", error)
            return named
        # Passages may also come from code that nothing captures.
        passages = captured.passages if captured.prompt_passages else (named.passages or captured.passages)
        changes = {"query": self.question or captured.query, "passages": passages, "response": answer}
        # The turn has not ended, and the part of the answer that is there is what is checked.
        return captured.model_copy(update={**changes, "status": "ok", "complete": True, "error": None})


def read_passages(value: object) -> list[Passage]:
    """Return the passages in a value that an application keeps under a key.

    Args:
        value: a text, a mapping with ``text``, a document, a node, or several of these. Anything else has no passages.
    """
    single = passage_of(value)
    found: list[Passage | None] = [single]
    if single is None:
        is_list = isinstance(value, Iterable) and not isinstance(value, (Mapping, bytes))
        found = list(map(passage_of, value)) if is_list else []  # type: ignore[call-overload]
    # A blank passage supports nothing.
    return [passage for passage in found if passage is not None and passage.text.strip()]


def passages_under(values: Mapping[str, Any], keys: Iterable[str]) -> list[Passage]:
    """Return the passages under the first key that has some."""
    return next((passages for key in keys if (passages := read_passages(values.get(key)))), [])
