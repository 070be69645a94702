"""The options of a guard, checked at construction, and its decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pydantic import Field

from rageval_hooks.errors import ConfigurationError, RagevalError
from rageval_hooks.metrics.base import Metric, ScoreDefinition
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.score import Result, Score
from rageval_hooks.settings import FORMULA, LEXICAL, MINILM, ModelSettings

__all__ = [
    "ANSWER_KEYS",
    "DEFAULT_FALLBACK",
    "PASSAGE_KEYS",
    "QUESTION_KEYS",
    "AnswerBlockedError",
    "GuardAction",
    "GuardDecision",
    "GuardOptions",
    "GuardVerdict",
    "OnError",
    "OnFail",
    "guard_thresholds",
]

OnFail = Literal["flag", "replace", "raise", "regenerate"]
OnError = Literal["open", "closed"]
GuardVerdict = Literal["supported", "unsupported", "refusal", "no_claims", "unchecked"]
GuardAction = Literal["passed", "flagged", "replaced", "raised", "regenerated"]

DEFAULT_FALLBACK: Final = "I could not find a reliable answer to this question in the documents."

PASSAGE_KEYS: Final = ("context", "documents", "source_documents", "passages", "contexts", "docs")
ANSWER_KEYS: Final = ("answer", "result", "output", "response", "text")
QUESTION_KEYS: Final = ("question", "query", "input")
"""Keys under which chains and their tutorials keep passages, answers and questions, in the order of the search."""

_MOST_REGENERATIONS: Final = 5

# Chosen on the dev sets with benchmarks/guard.py; docs/guides/guard.md has the shares of answers blocked per threshold.
_MEASURED: Final[Mapping[str, Mapping[str, float]]] = {
    name: {**dict.fromkeys(MINILM, 0.4), LEXICAL: 0.4} for name in ("faithfulness", "groundedness")
}
"""Default thresholds by score and embedder."""

_BY_GROUNDING_MODEL: Final = "groundedness"
"""The score that a grounding model may compute. Such a model was trained to decide, and has its own threshold."""


class GuardDecision(Data):
    """A guard's verdict on an answer, and its action.

    Attributes:
        verdict: ``supported`` and ``unsupported`` by the scores; ``refusal`` if the answer declines to answer, and
            ``no_claims`` if it has no words that could be compared: both always pass. ``unchecked`` if the check
            failed, took too long or had no passages: ``on_error`` decides.
        action: what the guard did with the answer.
        answer: what the user gets: the answer itself, or the fallback.
        checked: the text that was checked.
        reason: why, in a sentence; it names the scores and not the texts.
        results: the results of the metrics.
        seconds: how long the check took.
        attempt: 1 for the first answer, 2 for the first regenerated one.
    """

    verdict: GuardVerdict
    action: GuardAction = "passed"
    answer: Text
    checked: Text
    reason: Text = ""
    results: tuple[Result, ...] = ()
    seconds: float = Field(default=0.0, ge=0)
    attempt: int = Field(default=1, ge=1)

    @property
    def blocked(self) -> bool:
        """True if the user does not get the answer that was checked."""
        return self.action in ("replaced", "raised", "regenerated")

    def summary(self) -> dict[str, Any]:
        """Return the decision without its texts, for a message's metadata."""
        scores = {score.name: score.value for score in self.results if isinstance(score, Score)}
        return {"verdict": self.verdict, "action": self.action, "reason": self.reason, "scores": scores}


class AnswerBlockedError(RagevalError):
    """A guard blocked an answer, and ``on_fail`` is "raise".

    Args:
        message: what is wrong; it quotes no text.
        decision: the guard's decision, with the answer.
    """

    def __init__(self, message: str, decision: GuardDecision) -> None:
        super().__init__(message)
        self.decision = decision


@dataclass(frozen=True, kw_only=True)
class GuardOptions:
    """The options of a guard; see :class:`rageval_hooks.GroundingGuard`."""

    on_fail: OnFail = "flag"
    fallback: str = DEFAULT_FALLBACK
    on_error: OnError = "open"
    timeout_ms: float = 1000.0
    max_regenerations: int = 1
    passage_keys: Sequence[str] = PASSAGE_KEYS
    answer_keys: Sequence[str] = ANSWER_KEYS
    question_keys: Sequence[str] = QUESTION_KEYS
    on_decision: Callable[[GuardDecision], object] | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigurationError: a value is wrong; the message says what is valid.
        """
        for name, valid in (("on_fail", get_args(OnFail)), ("on_error", get_args(OnError))):
            if getattr(self, name) not in valid:
                given = getattr(self, name)
                raise ConfigurationError(f"{name} must be one of {', '.join(map(repr, valid))}, not {given!r}")
        if not str(self.fallback or "").strip() or not isinstance(self.fallback, str):
            raise ConfigurationError(f"fallback must be a text for the user, not {self.fallback!r}")
        if not _is_number(self.timeout_ms) or not 0 < self.timeout_ms < math.inf:
            raise ConfigurationError(f"timeout_ms must be a number of milliseconds above 0, not {self.timeout_ms!r}")
        limit = self.max_regenerations
        if not _is_number(limit) or limit not in range(1, _MOST_REGENERATIONS + 1):
            raise ConfigurationError(f"max_regenerations must be from 1 to {_MOST_REGENERATIONS}, not {limit!r}")
        if self.on_decision is not None and not callable(self.on_decision):
            raise ConfigurationError(f"on_decision must be a function of a GuardDecision, not {self.on_decision!r}")
        for name in ("passage_keys", "answer_keys", "question_keys"):
            keys = getattr(self, name)
            # A text is a sequence of letters: ("context") without its comma.
            if not isinstance(keys, list | tuple) or not keys or not all(isinstance(key, str) for key in keys):
                raise ConfigurationError(f"{name} must be a list of keys, such as ['context'], not {keys!r}")

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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def guard_thresholds(
    given: float | Mapping[str, float] | None, metrics: Sequence[Metric], models: ModelSettings
) -> dict[str, float | None]:
    """Return the threshold of each score that the guard looks at; None for the threshold of a grounding model's own.

    Args:
        given: one threshold for all scores from 0 to 1; thresholds by score name; None for those measured.
        metrics: the metrics of the guard.
        models: the models, which the measured thresholds depend on.

    Raises:
        ConfigurationError: a threshold is missing, for an unknown score, or outside the score's range.
    """
    definitions = {definition.name: definition for metric in metrics for definition in metric.scores}
    thresholds: dict[str, float | None]
    if isinstance(given, Mapping):
        thresholds = dict(given)
    else:
        thresholds = {}
        for definition in definitions.values():
            if definition.name == _BY_GROUNDING_MODEL and models.grounding != FORMULA:
                thresholds[definition.name] = None
            elif (measured := _measured(definition, models.embedder)) is not None:
                thresholds[definition.name] = measured
        if given is not None:
            thresholds.update(_one_for_all(given, definitions))
    for name, threshold in thresholds.items():
        if threshold is not None or name != _BY_GROUNDING_MODEL:
            _check_threshold(name, threshold, definitions)
    for metric in metrics:
        names = [definition.name for definition in metric.scores]
        if thresholds.keys().isdisjoint(names):
            # A metric without scores is known by its own name.
            example = names[0] if names else metric.name
            raise ConfigurationError(f"the guard has no threshold for {metric.name}: give threshold={{{example!r}: …}}")
    return thresholds


def _one_for_all(given: float, definitions: Mapping[str, ScoreDefinition]) -> dict[str, float]:
    """Return one threshold for every share; counts, such as unsupported_facts, keep their own."""
    shares = [name for name, definition in definitions.items() if definition.high == 1]
    if len({definitions[name].direction for name in shares}) > 1:
        names = ", ".join(shares)
        raise ConfigurationError(f"of {names}, some are better high and some low: give thresholds by name")
    # A guard with one score, which is a count, can only mean that one.
    return dict.fromkeys(shares or (definitions if len(definitions) == 1 else ()), given)


def _measured(definition: ScoreDefinition, embedder: str) -> float | None:
    """Return the guard's default threshold of a score; None if none was measured with this embedder."""
    if definition.name in _MEASURED:
        return _MEASURED[definition.name].get(embedder)
    for threshold in definition.thresholds:
        # None stands for scores that no model computes.
        if threshold.target == "turn" and {None, embedder} & set(threshold.models):
            return threshold.value
    return None


def _check_threshold(name: str, threshold: Any, definitions: Mapping[str, ScoreDefinition]) -> None:
    definition = definitions.get(name)
    if definition is None:
        valid = ", ".join(definitions) or "(none)"
        raise ConfigurationError(f"threshold names the score {name!r}, but the guard's metrics compute: {valid}")
    if not _is_number(threshold) or not definition.contains(threshold):
        bound = "and above" if definition.high is None else f"to {definition.high:g}"
        raise ConfigurationError(f"the threshold of {name} must be {definition.low:g} {bound}, not {threshold!r}")
