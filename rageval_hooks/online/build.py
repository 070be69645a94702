"""From what a user has named to the metrics that run, their rates and their thresholds; checked at construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.judges.base import Judge
from rageval_hooks.metrics.base import REGISTRY, AnyMetric, Metric, ScoreDefinition, label
from rageval_hooks.score import Score
from rageval_hooks.settings import EVERY, Settings

__all__ = ["Thresholds", "resolve_metrics", "resolve_rates", "resolve_thresholds"]


def resolve_metrics(given: Iterable[AnyMetric] | None, judge: Judge | None = None) -> list[Metric]:
    """Return the metrics that were named; every default for None.

    Args:
        given: names, classes or instances.
        judge: who is asked, if there is somebody.

    Raises:
        ConfigurationError: a name is unknown, a score would come from two metrics, a metric asks a judge and there is
            none, or there is one and no metric asks.
    """
    if given is None:
        made = [kind() for kind in REGISTRY.builtin().values() if kind.default]
        return [metric for metric in made if judge is not None or not metric.asks_judge]
    metrics: list[Metric] = []
    for item in given:
        metric = REGISTRY.create(item)
        if not any(type(metric) is type(other) and metric.name == other.name for other in metrics):
            metrics.append(metric)
    owners: dict[str, Metric] = {}
    for metric in metrics:
        for definition in metric.scores:
            other = owners.setdefault(definition.name, metric)
            if other is not metric:
                raise ConfigurationError(f"two metrics yield a score {definition.name!r}: {other!r} and {metric!r}")
    asking = [metric.name for metric in metrics if metric.asks_judge]
    if asking and judge is None:
        need = "needs" if len(asking) == 1 else "need"
        raise ConfigurationError(f"{', '.join(asking)} {need} a judge: name one (judge), such as 'openai:gpt-5-mini'")
    if judge is not None and not asking:
        raise ConfigurationError("a judge is given, but no metric asks it: add 'trace' to metrics, or leave it out")
    return metrics


def resolve_rates(metrics: Iterable[Metric], settings: Settings) -> dict[str, float]:
    """Return the rates of the metrics that run for fewer turns than are evaluated.

    Raises:
        ConfigurationError: a rate is higher than that of the turns, or is for a metric that does not run.
    """
    given = settings.judge_sample_rate
    if given is None:
        return {}
    metrics = list(metrics)
    names = [metric.name for metric in metrics]
    rates = dict(given) if isinstance(given, dict) else {m.name: given for m in metrics if m.asks_judge}
    for name, rate in rates.items():
        if name not in names:
            raise UnknownNameError("metric in judge_sample_rate", name, names, "These metrics run.")
        if rate > settings.sample_rate:
            raise ConfigurationError(
                f"judge_sample_rate ({name}: {rate:g}) is higher than sample_rate ({settings.sample_rate:g}): judged "
                "turns are a part of the evaluated ones"
            )
    return rates


def resolve_thresholds(metrics: Iterable[Metric], settings: Settings, *, own: bool) -> Thresholds:
    """Return from where on the scores of some metrics pass.

    Args:
        metrics: that run.
        settings: with what the user has set.
        own: whether it was set for these metrics alone. What the environment says is meant for the whole process, where
            others may run beside these.

    Raises:
        ConfigurationError: a threshold is for a score that these metrics do not compute, or, where it is not theirs
            alone, for one that no metric computes; it lies outside the score's range; or the score has labels of its
            own.
    """
    computed = {definition.name: definition for metric in metrics for definition in metric.scores}
    given = settings.thresholds
    known: Mapping[str, ScoreDefinition] = computed
    if not own and any(name not in computed for name in given if name != EVERY):
        known = {**_all_definitions(settings), **computed}
    for name, threshold in given.items():
        if name == EVERY:
            continue
        definition = known.get(name)
        if definition is None:
            hint = "The metrics that run yield these." if own else "Give that of a metric of your own where it runs."
            valid = [score.name for score in known.values() if not score.labels]
            raise UnknownNameError("score in thresholds", name, valid, hint)
        if threshold is not None:
            _check_threshold(definition, threshold)
    return Thresholds(given, computed)


def _all_definitions(settings: Settings) -> dict[str, ScoreDefinition]:
    """Return the scores of every metric that can be named, or that the settings name."""
    found: dict[str, ScoreDefinition] = {}
    for name in dict.fromkeys((*REGISTRY.names(), *(settings.metrics or ()))):
        try:
            metric = REGISTRY.create(name)
        except ConfigurationError:  # somebody else's, that cannot be made here
            continue
        found.update((definition.name, definition) for definition in metric.scores)
    return found


def _check_threshold(definition: ScoreDefinition, threshold: float) -> None:
    name, low, high = definition.name, definition.low, definition.high
    if definition.labels:
        raise ConfigurationError(
            f"a threshold of {name} would replace its labels, which are {' and '.join(definition.labels)}: leave it out"
        )
    if threshold < low or (high is not None and threshold > high):
        bound = "and above" if high is None else f"to {high:g}"
        raise ConfigurationError(f"the threshold of {name} is {threshold:g}, and its values are {low:g} {bound}")


class Thresholds:
    """From where on scores pass: what the user has set, else what was measured.

    Args:
        given: by score, None for no label; :data:`rageval_hooks.settings.EVERY` stands for all that are not named.
        definitions: of the scores.
    """

    def __init__(self, given: Mapping[str, float | None], definitions: Mapping[str, ScoreDefinition]) -> None:
        self._given = given
        self._definitions = definitions

    def label(self, score: Score) -> Score:
        """Return a score with its label; as it is if there is no threshold for it."""
        definition = self._definitions.get(score.name)
        if definition is None:
            return score
        threshold = self._threshold(score, definition)
        return score if threshold is None else label(score, threshold, definition.direction)

    def _threshold(self, score: Score, definition: ScoreDefinition) -> float | None:
        if score.name in self._given:
            return self._given[score.name]
        return None if EVERY in self._given else definition.default_threshold(score)
