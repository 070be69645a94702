"""What people say of an answer, as a score with the annotator ``HUMAN``."""

from __future__ import annotations

import math
import re
import time
from uuid import uuid4

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.score import ANNOTATED_BY, Evaluation, Score, says_good
from rageval_hooks.text.formatting import shorten
from rageval_hooks.turn import NO_SPAN, SpanReference, Turn

# For example "0af7651916cd43dd8448eb211c80319c".
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


def feedback_on(
    turn: Turn | str | int, value: float | str, *, name: str, comment: str | None, annotator: str | None
) -> Evaluation:
    """Return feedback as an evaluation of the turn, or of the trace if only that is known.

    The arguments are those of :meth:`rageval_hooks.Instrumentation.feedback`.

    Raises:
        ConfigurationError: one of them is not valid.
    """
    for what, text in (("name", name), ("comment", comment), ("annotator", annotator)):
        if text is not None and not isinstance(text, str):
            raise ConfigurationError(f"feedback({what}=…) must be a text, not {type(text).__name__}")
    if not name.strip():
        raise ConfigurationError("feedback(name=…) must not be empty")
    number, label = _read(value)
    score = Score(
        name=name.strip(),
        value=number,
        label=label,
        explanation=comment or None,
        annotator="HUMAN",
        # Tells what a person says now from what the same person said before.
        version=str(time.time_ns()),
        low=min(0.0, number),
        high=1.0 if 0 <= number <= 1 else None,
        metadata={ANNOTATED_BY: annotator} if annotator else {},
    )
    return Evaluation(turn=_turn_of(turn), results=(score,), stage="background", id=uuid4().hex)


def _read(value: float | str) -> tuple[float, str | None]:
    """Return the number and the label of a value."""
    if isinstance(value, bool):
        return float(value), "up" if value else "down"
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value), None
    good = says_good(value) if isinstance(value, str) else None
    if good is not None:
        return float(good), str(value).strip().casefold()
    raise ConfigurationError(
        f"feedback() takes True or 'up', False or 'down', a number, or a word such as 'correct' or 'incorrect', not "
        f"{shorten(repr(value), 60)}: put other words into the comment"
    )


def _turn_of(turn: Turn | str | int) -> Turn:
    if isinstance(turn, Turn):
        if turn.span is None:
            raise ConfigurationError("feedback() takes a turn with a place in a trace, and this one has no span")
        return turn
    text = f"{turn:032x}" if isinstance(turn, int) else str(turn).strip().lower().removeprefix("tr-").replace("-", "")
    found = _TRACE_ID.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"feedback() takes a turn or the id of its trace, 32 hex digits, not {shorten(repr(turn), 60)}"
        )
    return Turn(span=SpanReference(trace_id=found[0], span_id=NO_SPAN))
