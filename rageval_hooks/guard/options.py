"""The options of a guard, checked at construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.guard.decision import GuardDecision
from rageval_hooks.metrics.base import Metric, ScoreDefinition
from rageval_hooks.runtime.narrowing import is_integer, is_number
from rageval_hooks.settings import FORMULA, LEXICAL, MINILM, ModelSettings

__all__ = [
    "ANSWER_KEYS",
    "DEFAULT_FALLBACK",
    "PASSAGE_KEYS",
    "QUESTION_KEYS",
    "GuardOptions",
    "OnError",
    "OnFail",
    "resolve_guard_thresholds",
]

OnFail = Literal["flag", "replace", "raise", "regenerate"]
OnError = Literal["open", "closed"]

DEFAULT_FALLBACK: Final = "I could not find a reliable answer to this question in the documents."

PASSAGE_KEYS: Final = ("context", "documents", "source_documents", "passages", "contexts", "docs")
ANSWER_KEYS: Final = ("answer", "result", "output", "response", "text")
QUESTION_KEYS: Final = ("question", "query", "input")
"""Keys under which chains and their tutorials keep passages, answers and questions, in the order of the search."""

_MOST_REGENERATIONS: Final = 5

# Chosen on the dev sets with benchmarks/guard.py; docs/guides/guard.md has the shares of answers blocked per threshold.
_MEASURED: Final[Mapping[str, Mapping[str, float]]] = {
    "groundedness": {**dict.fromkeys(MINILM, 0.4), LEXICAL: 0.4},
}
"""Default thresholds by score and embedder."""

_BY_GROUNDING_MODEL: Final = "groundedness"
"""The score that a grounding model may compute. Such a model was trained to decide, and has its own threshold."""


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
        _check_choice("on_fail", self.on_fail, get_args(OnFail))
        _check_choice("on_error", self.on_error, get_args(OnError))
        _check_fallback(self.fallback)
        if not is_number(self.timeout_ms) or not 0 < self.timeout_ms < math.inf:
            raise ConfigurationError(f"timeout_ms must be a number of milliseconds above 0, not {self.timeout_ms!r}")
        _check_limit(self.max_regenerations)
        if self.on_decision is not None and not callable(self.on_decision):
            raise ConfigurationError(f"on_decision must be a function of a GuardDecision, not {self.on_decision!r}")
        for name in ("passage_keys", "answer_keys", "question_keys"):
            _check_keys(name, getattr(self, name))

    @property
    def timeout(self) -> float:
        """The timeout in seconds."""
        return self.timeout_ms / 1000

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


def _check_choice(name: str, value: object, valid: Sequence[str]) -> None:
    if value not in valid:
        raise ConfigurationError(f"{name} must be one of {', '.join(map(repr, valid))}, not {value!r}")


def _check_fallback(fallback: object) -> None:
    if not isinstance(fallback, str) or not fallback.strip():
        raise ConfigurationError(f"fallback must be a text for the user, not {fallback!r}")


def _check_limit(limit: object) -> None:
    if not is_integer(limit) or limit not in range(1, _MOST_REGENERATIONS + 1):
        raise ConfigurationError(f"max_regenerations must be from 1 to {_MOST_REGENERATIONS}, not {limit!r}")


def _check_keys(name: str, keys: object) -> None:
    # A text is a sequence of letters: ("context") without its comma.
    named = list(keys) if isinstance(keys, (list, tuple)) else []
    if not named or not all(isinstance(key, str) for key in named):
        raise ConfigurationError(f"{name} must be a list of keys, such as ['context'], not {keys!r}")


def resolve_guard_thresholds(
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
    thresholds = _named_thresholds(given, definitions, models)
    for name, threshold in thresholds.items():
        if threshold is not None or name != _BY_GROUNDING_MODEL:
            _check_threshold(name, threshold, definitions)
    for metric in metrics:
        names = [definition.name for definition in metric.scores]
        if thresholds.keys().isdisjoint(names):
            # A metric without scores is known by its own name.
            example = next(iter(names), metric.name)
            raise ConfigurationError(f"the guard has no threshold for {metric.name}: give threshold={{{example!r}: …}}")
    return thresholds


def _named_thresholds(
    given: float | Mapping[str, float] | None, definitions: Mapping[str, ScoreDefinition], models: ModelSettings
) -> dict[str, float | None]:
    if given is None:
        return _measured_thresholds(definitions.values(), models)
    if isinstance(given, Mapping):
        return dict(given)
    return _one_for_all(given, definitions, models)


def _one_for_all(
    given: float, definitions: Mapping[str, ScoreDefinition], models: ModelSettings
) -> dict[str, float | None]:
    """Return one threshold for every share; counts, such as unsupported_facts, keep their own."""
    shares = {name: definition.direction for name, definition in definitions.items() if definition.high == 1}
    if len(set(shares.values())) > 1:
        names = ", ".join(shares)
        raise ConfigurationError(f"of {names}, some are better high and some low: give thresholds by name")
    # A guard with one score, which is a count, can only mean that one.
    if not shares and len(definitions) == 1:
        return dict.fromkeys(definitions, given)
    thresholds = _measured_thresholds(definitions.values(), models)
    thresholds.update(dict.fromkeys(shares, given))
    return thresholds


def _measured_thresholds(definitions: Iterable[ScoreDefinition], models: ModelSettings) -> dict[str, float | None]:
    """Return the guard's default thresholds of the scores that have one."""
    found: dict[str, float | None] = {}
    for definition in definitions:
        if definition.name == _BY_GROUNDING_MODEL and models.grounding != FORMULA:
            found[definition.name] = None
            continue
        threshold = _measured(definition, models.embedder)
        if threshold is not None:
            found[definition.name] = threshold
    return found


def _measured(definition: ScoreDefinition, embedder: str) -> float | None:
    """Return the guard's default threshold of a score; None if none was measured with this embedder."""
    if definition.name in _MEASURED:
        return _MEASURED[definition.name].get(embedder)
    # None stands for scores that no model computes.
    computed_by = {None, embedder}
    for threshold in definition.thresholds:
        if threshold.target == "turn" and not computed_by.isdisjoint(threshold.models):
            return threshold.value
    return None


def _check_threshold(name: str, threshold: object, definitions: Mapping[str, ScoreDefinition]) -> None:
    definition = definitions.get(name)
    if definition is None:
        valid = ", ".join(definitions) or "(none)"
        raise ConfigurationError(f"threshold names the score {name!r}, but the guard's metrics compute: {valid}")
    if not is_number(threshold) or not definition.contains(threshold):
        bound = "and above" if definition.high is None else f"to {definition.high:g}"
        raise ConfigurationError(f"the threshold of {name} must be {definition.low:g} {bound}, not {threshold!r}")
