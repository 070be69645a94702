"""From what a user has named to the metrics that run, their rates and their thresholds; checked at construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.judges.base import Judge
from rageval_hooks.metrics.base import REGISTRY, AnyMetric, Metric, ScoreDefinition
from rageval_hooks.settings import Settings

__all__ = ["check_thresholds", "resolve_metrics", "resolve_rates"]


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


def check_thresholds(thresholds: Mapping[str, float], definitions: Mapping[str, ScoreDefinition]) -> None:
    """Check that thresholds are for scores that are computed, and within their range.

    Raises:
        ConfigurationError: they are not.
    """
    for name, threshold in thresholds.items():
        definition = definitions.get(name)
        if definition is None:
            raise UnknownNameError("score in thresholds", name, definitions, "The metrics that run yield these.")
        if threshold < definition.low or (definition.high is not None and threshold > definition.high):
            high = "and above" if definition.high is None else f"to {definition.high:g}"
            raise ConfigurationError(
                f"the threshold of {name} is {threshold:g}, and its values are {definition.low:g} {high}"
            )
