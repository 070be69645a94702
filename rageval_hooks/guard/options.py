"""The options of a guard, checked at construction, and its decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rageval_hooks.errors import ConfigurationError, RagevalError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.online.build import resolve_thresholds
from rageval_hooks.online.results import Thresholds
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.score import VERDICT, Result, Score, verdict_of
from rageval_hooks.settings import FORMULA, Number, Settings

OnFail = Literal["flag", "replace", "raise", "regenerate"]
OnError = Literal["open", "closed"]
GuardVerdict = Literal["supported", "unsupported", "refusal", "no_claims", "unchecked"]
GuardAction = Literal["passed", "flagged", "replaced", "raised", "regenerated"]

DEFAULT_FALLBACK: Final = "I could not find a reliable answer to this question in the documents."

PASSAGE_KEYS: Final = ("context", "documents", "source_documents", "passages", "contexts", "docs")
ANSWER_KEYS: Final = ("answer", "result", "output", "response", "text")
QUESTION_KEYS: Final = ("question", "query", "input")
"""Keys under which chains and their tutorials keep passages, answers and questions, in the order of the search."""


class GuardDecision(Data):
    """What a guard finds out about an answer, and what it does.

    Attributes:
        verdict: the guard's, as on its span, and not that of the turn. ``unsupported`` if the verdict of the turn is
            bad, or if a score is worse than a threshold of yours; else ``supported``. ``refusal`` if the answer
            declines to answer, and ``no_claims`` if nothing in it could be wrong, such as "Hello!": both always pass.
            ``unchecked`` if the check failed, took too long or had no passages: ``on_error`` decides.
        cause: of an answer that is unsupported, declines or is unchecked: why, in one word (:data:`CAUSES`); None if it
            is not known, for example without the metric ``verdict``.
        action: what the guard did with the answer.
        answer: what the user gets: the answer itself, or the fallback.
        checked: the text that was checked.
        reason: why, in a sentence that names scores and quotes no text.
        results: the results of the metrics.
        seconds: how long the check took.
        attempt: 1 for the first answer, 2 for the first regenerated one.
    """

    verdict: GuardVerdict
    action: GuardAction = "passed"
    answer: Text
    checked: Text
    cause: Text | None = None
    reason: Text = ""
    results: tuple[Result, ...] = ()
    seconds: float = Field(default=0.0, ge=0)
    attempt: int = Field(default=1, ge=1)

    @property
    def explanation(self) -> str:
        """The reason in detail: it may name the sentence and the passage, and so quotes texts."""
        verdict = verdict_of(self.results)
        return self.reason if not isinstance(verdict, Score) else verdict.explanation or self.reason

    @property
    def blocked(self) -> bool:
        """True if the user does not get the answer that was checked."""
        return self.action in ("replaced", "raised", "regenerated")

    def summary(self) -> dict[str, Any]:
        """Return the decision without its texts, for a message's metadata."""
        scores = {score.name: score.value for score in self.results if isinstance(score, Score)}
        about = self.model_dump(include={"verdict", "cause", "action", "reason"})
        return {**about, "scores": scores}


class AnswerBlockedError(RagevalError):
    """A guard blocked an answer, and ``on_fail`` is "raise".

    Args:
        message: what is wrong; it quotes no text.
        decision: the guard's decision, with the answer.
    """

    def __init__(self, message: str, decision: GuardDecision) -> None:
        super().__init__(message)
        self.decision = decision


_Keys = Annotated[tuple[str, ...], Field(min_length=1)]


class GuardOptions(BaseModel):
    """The options of a guard; see :class:`rageval_hooks.GroundingGuard`."""

    model_config = ConfigDict(frozen=True)

    threshold: Number | dict[str, Number] | None
    on_fail: OnFail
    fallback: str = Field(pattern=r"\S")
    on_error: OnError
    timeout_ms: float = Field(gt=0, allow_inf_nan=False)
    max_regenerations: int = Field(ge=1, le=5)
    passage_keys: _Keys
    answer_keys: _Keys
    question_keys: _Keys
    on_decision: Callable[[GuardDecision], object] | None

    @classmethod
    def build(cls, **given: Any) -> GuardOptions:
        """Check the options.

        Raises:
            ConfigurationError: a value is wrong; the message says what is valid.
        """
        try:
            return cls(**given)
        except ValidationError as error:
            lines = [f"{item['loc'][0]}: {item['msg']}, not {item['input']!r}" for item in error.errors()]
            raise ConfigurationError("; ".join(lines)) from None

    @property
    def timeout(self) -> float:
        """The timeout in seconds."""
        return self.timeout_ms / 1000

    @property
    def attempts(self) -> int:
        """How often the answer may be written, where it can be written again."""
        return 1 + (self.max_regenerations if self.on_fail == "regenerate" else 0)

    def without_regenerate(self, where: str) -> None:
        """Refuse ``regenerate`` where nothing can be asked again.

        Raises:
            ConfigurationError: on_fail is "regenerate".
        """
        if self.on_fail == "regenerate":
            raise ConfigurationError(
                f"on_fail='regenerate' has no effect in {where}, which cannot ask the model again: use "
                "guard.middleware() in create_agent or guard.wrap(chain), or on_fail='replace'"
            )


def guard_thresholds(
    given: float | Mapping[str, float] | None, metrics: Sequence[Metric], settings: Settings
) -> tuple[dict[str, float | None], Thresholds]:
    """Return the threshold of each score that the guard looks at, and what sets the labels.

    A threshold of None stands for that of a grounding model.

    Args:
        given: one threshold for all scores from 0 to 1; thresholds by score name; None for the default ones.
        metrics: the metrics of the guard.
        settings: have the models, which default thresholds depend on.

    Raises:
        ConfigurationError: a threshold is missing, for an unknown score, or outside the score's range.
    """
    thresholds: dict[str, float | None] = {}
    if isinstance(given, Mapping):
        thresholds.update(given)
    else:
        # The verdict needs no threshold.
        definitions = [one for metric in metrics for one in metric.scores if one.name != VERDICT]
        has_shares = any(definition.high == 1 for definition in definitions)
        models = {None, settings.models.embedder}  # None stands for scores that no model computes
        for definition in definitions:
            measured = [one for one in definition.thresholds if one.target == "turn" and models & set(one.models)]
            # One number is for every share. Counts, such as unsupported_facts, keep their own.
            if given is not None and (definition.high == 1 or not has_shares):
                thresholds[definition.name] = given
            elif definition.name == "groundedness" and settings.models.grounding != FORMULA:
                thresholds[definition.name] = None  # such a model was trained to decide
            elif measured:
                thresholds[definition.name] = measured[0].value
    known = {name: threshold for name, threshold in thresholds.items() if threshold is not None}
    labels = resolve_thresholds(metrics, Settings.build(models=settings.models, thresholds=known), own=True)
    for metric in metrics:
        # A metric without definitions has one score with its name.
        scores = [definition.name for definition in metric.scores] or [metric.name]
        if thresholds.keys().isdisjoint(scores) and VERDICT not in scores:
            example = f"threshold={{{scores[0]!r}: …}}"
            raise ConfigurationError(f"the guard has no threshold for {metric.name}: give {example}")
    return thresholds, labels
