"""From the arguments of ``instrument()`` to the parts of a pipeline; everything is checked here, at construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from opentelemetry.trace import TracerProvider

from rageval_hooks.budgets import with_budget
from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.exporters.base import AUTOMATIC, Exporter, automatic_exporters
from rageval_hooks.judges.base import Judge, resolve_judge
from rageval_hooks.metrics.base import REGISTRY, AnyMetric, Metric, ScoreDefinition
from rageval_hooks.online.delivery import shared_exporters
from rageval_hooks.online.thresholds import Thresholds
from rageval_hooks.privacy import PrivacyPolicy, Redact
from rageval_hooks.settings import EVERY, Settings

__all__ = ["Parts", "resolve_metrics", "resolve_parts", "resolve_thresholds", "within_budget"]

T = TypeVar("T")

_BUDGET_FILE = "rageval-budget.db"

_HOW_TO_NAME_A_JUDGE = "pass judge=, --judge or RAGEVAL_JUDGE, such as 'openai:gpt-5-mini'"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a pipeline.

    Attributes:
        settings: the plain settings.
        metrics: the metrics that run.
        exporters: where evaluations go.
        judge: for judge metrics; None without judge metrics.
        thresholds: give scores their labels.
        privacy: what may leave the process.
    """

    settings: Settings
    metrics: list[Metric]
    exporters: list[Exporter]
    judge: Judge | None
    thresholds: Thresholds
    privacy: PrivacyPolicy


def resolve_parts(
    metrics: Iterable[AnyMetric] | str | None,
    exporters: Iterable[Exporter | type[Exporter] | str] | str | None,
    judge: object,
    tracer_provider: TracerProvider | None,
    on_evaluation: object,
    plain: Mapping[str, Any],
    redact: Redact | bool | None = None,
) -> Parts:
    """Return the parts that keyword arguments, the environment and the defaults name.

    Args:
        metrics: names, classes or instances; None for every local default.
        exporters: names, classes or instances; None for ``RAGEVAL_EXPORTERS``, else OpenTelemetry.
        judge: see :func:`rageval_hooks.judges.base.resolve_judge`; None for ``RAGEVAL_JUDGE``, else no judge.
        tracer_provider: for the OpenTelemetry exporter; None for the global one.
        on_evaluation: a function of an Evaluation, or None.
        plain: the fields of :class:`rageval_hooks.settings.Settings`.
        redact: a function of a text, or a switch; None for the setting.

    Raises:
        ConfigurationError: something is wrong or contradictory; the message says what is valid.
    """
    # Wrong arguments must fail at the line that gives them, not later on a background thread.
    _check_types(metrics=metrics, exporters=exporters, on_evaluation=on_evaluation)
    # Settings take text; lists of classes and instances are resolved below.
    settings = Settings.build(
        metrics=_if_text(metrics),
        exporters=_if_text(exporters),
        judge=_if_text(judge),
        **plain,
    )
    # The settings have parsed names in a text, and those of the environment.
    for_exporters = settings
    if metrics is not None and not isinstance(metrics, str):
        metrics = list(metrics)
        # Exporters choose what comes first by the names of the metrics.
        names = tuple(str(getattr(found, "name", found)) for found in metrics)
        for_exporters = settings.model_copy(update={"metrics": names})
    made_exporters = _resolve_exporters(_parsed(exporters, settings.exporters), for_exporters, tracer_provider)
    made_judge = _resolve_judge(judge, settings, plain)
    # The judge comes before the metrics: which defaults run depends on it.
    running = resolve_metrics(_parsed(metrics, settings.metrics), made_judge, settings)
    thresholds = resolve_thresholds(running, settings, own=plain.get("thresholds") is not None)
    return Parts(
        settings=settings,
        metrics=running,
        exporters=made_exporters,
        judge=made_judge,
        thresholds=thresholds,
        privacy=PrivacyPolicy.of(settings, redact),
    )


def _check_types(*, on_evaluation: object, **lists: object) -> None:
    """Check the arguments that the settings do not know.

    Raises:
        ConfigurationError: an argument has another type.
    """
    if on_evaluation is not None and not callable(on_evaluation):
        raise ConfigurationError(f"on_evaluation must be a function of an Evaluation, not {on_evaluation!r}")
    for name, value in lists.items():
        if not isinstance(value, Iterable | None):
            raise ConfigurationError(f"{name} must be a list of names, classes or instances, not {value!r}")


def _if_text(given: object) -> str | None:
    """Return an argument that is text, as in the environment: ``"groundedness,latency"``."""
    return given if isinstance(given, str) else None


def _parsed(given: T | str | None, by_settings: T) -> T:
    """Return what was given in code; the names that the settings have parsed for a text, and for None."""
    return by_settings if isinstance(given, str | None) else given


def _resolve_exporters(
    given: Iterable[Exporter | type[Exporter] | str], settings: Settings, tracer_provider: TracerProvider | None
) -> list[Exporter]:
    named = list(given)
    made = [shared_exporters.get(item, settings, tracer_provider) for item in named if item != AUTOMATIC]
    if AUTOMATIC in named:
        made += [shared_exporters.get(kind.name, settings, tracer_provider) for kind in automatic_exporters(made)]
    # A provider that nothing uses is a mistake: the user expects spans there.
    if tracer_provider is not None and not any(exporter.traces for exporter in made):
        raise ConfigurationError(
            "a tracer_provider is given, but no exporter uses it: add 'otel' to exporters, or omit tracer_provider"
        )
    return made


def _resolve_judge(given: object, settings: Settings, plain: Mapping[str, Any]) -> Judge | None:
    wanted = settings.judge if given is None else given
    if wanted is None:
        _check_no_judge_options(plain)
        return None
    return within_budget(resolve_judge(wanted, **settings.judge_options), settings)


def _check_no_judge_options(plain: Mapping[str, Any]) -> None:
    # A rate by metric names may be for local metrics; a single rate is for judge metrics only.
    is_single_rate = isinstance(plain.get("judge_sample_rate"), (int, float))
    if plain.get("judge_options") or plain.get("judge_budget") or is_single_rate:
        raise ConfigurationError(
            f"judge_options, judge_budget and judge_sample_rate need a judge: {_HOW_TO_NAME_A_JUDGE}; or omit them"
        )


def within_budget(judge: Judge, settings: Settings) -> Judge:
    """Return the judge with the budget of the settings; the judge itself if they set none."""
    if not settings.judge_budget:
        return judge
    return with_budget(judge, settings.judge_budget, _budget_store(settings))


def _budget_store(settings: Settings) -> str:
    store = settings.judge_budget_store
    return _BUDGET_FILE if store is None else store.get_secret_value()


def resolve_metrics(given: Iterable[AnyMetric] | None, judge: Judge | None, settings: Settings) -> list[Metric]:
    """Return the metrics that are named; every default for None.

    Args:
        given: names, classes or instances.
        judge: the judge, if there is one.
        settings: the settings, for metrics that one of them is an option of.

    Raises:
        ConfigurationError: a name is unknown, two metrics compute the same score, a metric needs a judge and there is
            none, or there is a judge and no metric needs it.
    """
    if given is None:
        return _default_metrics(judge, settings)
    # The same metric twice, for example by name and as a class, is computed once: the first one.
    unique: dict[tuple[type[Metric], str], Metric] = {}
    for item in given:
        metric = REGISTRY.create(item, make=lambda kind: kind.from_settings(settings))
        unique.setdefault((type(metric), metric.name), metric)
    metrics = list(unique.values())
    _check_scores(metrics)
    _check_judge(metrics, judge)
    return metrics


def _default_metrics(judge: Judge | None, settings: Settings) -> list[Metric]:
    """Return the defaults that can run. Metrics that the user names are not chosen like this: they need their judge."""
    kinds = [kind for kind in REGISTRY.builtin().values() if kind.default]
    defaults = [kind.from_settings(settings) for kind in kinds]
    if judge is not None:
        return defaults
    return [metric for metric in defaults if not metric.asks_judge]


def _check_scores(metrics: Iterable[Metric]) -> None:
    owners: dict[str, Metric] = {}
    for metric in metrics:
        for definition in metric.scores:
            other = owners.setdefault(definition.name, metric)
            # Two values under one name could not be told apart in any backend.
            if other is not metric:
                raise ConfigurationError(f"two metrics compute a score {definition.name!r}: {other!r} and {metric!r}")


def _check_judge(metrics: Iterable[Metric], judge: Judge | None) -> None:
    asking = [metric.name for metric in metrics if metric.asks_judge]
    if judge is None:
        _check_without_judge(asking)
    # A judge that is never asked usually means that a metric was forgotten.
    elif not asking:
        raise ConfigurationError("a judge is given, but no metric asks it: add 'trace' to metrics, or omit the judge")


def _check_without_judge(asking: Sequence[str]) -> None:
    if not asking:
        return
    need = "needs" if len(asking) == 1 else "need"
    raise ConfigurationError(f"{', '.join(asking)} {need} a judge: {_HOW_TO_NAME_A_JUDGE}")


def resolve_thresholds(metrics: Iterable[Metric], settings: Settings, *, own: bool) -> Thresholds:
    """Return the thresholds of some metrics' scores.

    Args:
        metrics: the metrics that run.
        settings: the thresholds that the user has set.
        own: True if they were set for these metrics alone. The environment's are for the whole process, where other
            metrics may run too.

    Raises:
        ConfigurationError: a threshold is for a score that these metrics do not compute (or, if it is not theirs alone,
            that no metric computes); it is outside the score's range; or the score defines its own labels.
    """
    definitions = chain.from_iterable(metric.scores for metric in metrics)
    known = {definition.name: definition for definition in definitions}
    given = settings.thresholds
    # EVERY is the threshold of all scores without one, and no name of a score.
    named = {name: threshold for name, threshold in given.items() if name != EVERY}
    # Creating every metric takes a while, so it happens only when a name is still unknown.
    if not own and named.keys() - known.keys():
        known = {**_all_definitions(settings), **known}
    for name, threshold in named.items():
        if name not in known:
            raise _unknown_score(name, known, own=own)
        _check_threshold(known[name], threshold)
    return Thresholds(given)


def _unknown_score(name: str, known: Mapping[str, ScoreDefinition], *, own: bool) -> UnknownNameError:
    valid = [score.name for score in known.values() if not score.labels]
    if own:
        return UnknownNameError("score in thresholds", name, valid, "The metrics that run compute these.")
    hint = "Set the threshold of a custom metric where the metric runs."
    return UnknownNameError("score in thresholds", name, valid, hint)


def _all_definitions(settings: Settings) -> dict[str, ScoreDefinition]:
    """Return the scores of every metric that is registered, or that the settings name."""
    found: dict[str, ScoreDefinition] = {}
    for name in dict.fromkeys((*REGISTRY.names(), *(settings.metrics or ()))):
        try:
            metric = REGISTRY.create(name)
        except ConfigurationError:  # a third-party metric that cannot be created here
            continue
        found.update((definition.name, definition) for definition in metric.scores)
    return found


def _check_threshold(definition: ScoreDefinition, threshold: float | None) -> None:
    # None switches a default threshold off.
    if threshold is None:
        return
    name, low, high = definition.name, definition.low, definition.high
    if definition.labels:
        labels = " and ".join(definition.labels)
        raise ConfigurationError(f"a threshold of {name} would replace its labels, which are {labels}: omit it")
    if not definition.contains(threshold):
        bound = "and above" if high is None else f"to {high:g}"
        raise ConfigurationError(f"the threshold of {name} is {threshold:g}, but its values are {low:g} {bound}")
