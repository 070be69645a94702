"""From arguments and settings to exporters, judge, metrics and thresholds. Everything is checked at construction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from tempfile import gettempdir
from typing import Any

from opentelemetry.trace import TracerProvider

from rageval_hooks.budgets import with_budget
from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.exporters.base import AUTOMATIC, Exporter, automatic_exporters
from rageval_hooks.exporters.base import REGISTRY as EXPORTERS
from rageval_hooks.judges.base import Judge
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.metrics.base import REGISTRY, AnyMetric, Metric, ScoreDefinition
from rageval_hooks.models import Models
from rageval_hooks.online.delivery import OnEvaluation
from rageval_hooks.online.results import Thresholds
from rageval_hooks.online.shared_exporters import shared_exporters
from rageval_hooks.plugins import Configurable
from rageval_hooks.privacy import PrivacyPolicy, Redact
from rageval_hooks.settings import EVERY, LEXICAL, Settings

_BUDGET_FILE = "rageval-budget.db"

_HOW_TO_NAME_A_JUDGE = "pass judge=, --judge or RAGEVAL_JUDGE, such as 'openai:gpt-5-mini'"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a pipeline is made of.

    Attributes:
        settings: the plain settings.
        metrics: the metrics to compute.
        exporters: where evaluations go.
        models: the local models.
        judge: for judge metrics; None without judge metrics.
        thresholds: give scores their labels.
        on_evaluation: called with every evaluation, on a background thread.
        tracer_provider: whose tracer writes the turns' spans; None for the application's global one.
        privacy: what may leave the process.
    """

    settings: Settings
    models: Models
    metrics: Sequence[Metric] = ()
    exporters: Sequence[Exporter] = ()
    judge: Judge | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    on_evaluation: OnEvaluation | None = None
    tracer_provider: TracerProvider | None = None
    privacy: PrivacyPolicy = field(default_factory=PrivacyPolicy)

    @classmethod
    def of(
        cls,
        *,
        metrics: Iterable[AnyMetric] | str | None = None,
        exporters: Iterable[Exporter | type[Exporter] | str] | str | None = None,
        judge: object = None,
        tracer_provider: TracerProvider | None = None,
        on_evaluation: OnEvaluation | None = None,
        redact: Redact | bool | None = None,
        **plain: Any,
    ) -> Parts:
        """Return the parts of a pipeline from keyword arguments, the environment and the defaults.

        Args:
            metrics: names, classes or instances; None for every local default.
            exporters: names, classes or instances; None for ``RAGEVAL_EXPORTERS``, else OpenTelemetry.
            judge: see :func:`rageval_hooks.judges.resolve.resolve_judge`; None for ``RAGEVAL_JUDGE``, else no judge.
            tracer_provider: for the OpenTelemetry exporter; None for the global one.
            on_evaluation: called with every evaluation.
            redact: a function of a text, or True for the built-in one; None for ``RAGEVAL_REDACT``.
            plain: the fields of :class:`rageval_hooks.settings.Settings`.

        Raises:
            ConfigurationError: something is wrong or contradictory; the message says what is valid.
        """
        # Wrong arguments must fail at the line that gives them, not later on a background thread.
        if on_evaluation is not None and not callable(on_evaluation):
            raise ConfigurationError(f"on_evaluation must be a function of an Evaluation, not {on_evaluation!r}")
        lists: dict[str, Any] = {"metrics": metrics, "exporters": exporters}
        for name, value in lists.items():
            if not isinstance(value, Iterable | None):
                raise ConfigurationError(f"{name} must be a list of names, classes or instances, not {value!r}")
        # Settings parse the names in a text, and those of the environment; lists of classes and instances stay.
        texts = {name: value for name, value in {**lists, "judge": judge}.items() if isinstance(value, str)}
        settings = Settings.build(**{**dict.fromkeys(("metrics", "exporters", "judge")), **texts}, **plain)
        lists = {
            name: getattr(settings, name) if isinstance(value, str | None) else list(value)
            for name, value in lists.items()
        }
        # Exporters choose what comes first by the names of the metrics.
        named = lists["metrics"]
        names = None if named is None else tuple(str(getattr(found, "name", found)) for found in named)
        for_exporters = settings.model_copy(update={"metrics": names})
        made_exporters = resolve_exporters(lists["exporters"], for_exporters, tracer_provider)
        made_judge = budgeted_judge(judge, settings, plain)
        # The judge comes before the metrics: which defaults run depends on it.
        running = resolve_metrics(lists["metrics"], made_judge, settings, allow_unused_judge=judge is None)
        # A variable of the environment is for the whole process, where it may have its use.
        in_code = [name for name, value in plain.items() if value is not None]
        for name, owner in unused_options(in_code, [*made_exporters, *running]):
            raise ConfigurationError(f"{name} is an option of {owner!r}, which is not in use: add it, or omit {name}")
        # Models and the language detector load in the background, and import numpy. A child that is forked at that
        # moment could not import it again, not even for the application.
        models = settings.models
        is_rules_only = {models.embedder, models.cross_encoder, models.nlp} == {LEXICAL}
        if running and (not is_rules_only or find_spec("py3langid") is not None):
            with suppress(ImportError):
                import_module("numpy")
            gettempdir()  # found under a lock, for which such a child would wait
        return cls(
            settings=settings,
            metrics=tuple(running),
            exporters=tuple(made_exporters),
            models=Models(models),
            judge=made_judge,
            thresholds=resolve_thresholds(running, settings, own=plain.get("thresholds") is not None),
            on_evaluation=on_evaluation,
            tracer_provider=tracer_provider,
            privacy=PrivacyPolicy.of(settings, redact),
        )


def resolve_exporters(
    given: Iterable[Exporter | type[Exporter] | str], settings: Settings, tracer_provider: TracerProvider | None
) -> list[Exporter]:
    """Return exporters by name, class or instance.

    Args:
        given: the exporters.
        settings: the settings of those that are created.
        tracer_provider: for the OpenTelemetry exporter; None for the global one.

    Raises:
        ConfigurationError: a name is unknown, or no exporter uses the provider.
    """
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


def budgeted_judge(given: object, settings: Settings, plain: Mapping[str, Any]) -> Judge | None:
    """Return the judge with its budget; None without a judge.

    Args:
        given: see :func:`rageval_hooks.judges.resolve.resolve_judge`; None for that of the settings.
        settings: the settings.
        plain: those of them that were given in code.

    Raises:
        ConfigurationError: the judge cannot be created, or an option needs a judge and there is none.
    """
    wanted = settings.judge if given is None else given
    if wanted is not None:
        return within_budget(resolve_judge(wanted, **settings.judge_options), settings)
    # A rate by metric names may be for local metrics; a single rate is for judge metrics only.
    is_single_rate = isinstance(plain.get("judge_sample_rate"), (int, float))
    names = ("judge_options", "judge_budget", "judge_sample_by_verdict", "judge_sample_floor")
    given_names = [*(name for name in names if plain.get(name)), *(["judge_sample_rate"] if is_single_rate else [])]
    if given_names:
        raise ConfigurationError(
            f"{', '.join(given_names)} {'needs' if len(given_names) == 1 else 'need'} a judge: {_HOW_TO_NAME_A_JUDGE}; "
            "or omit it"
        )
    return None


def within_budget(judge: Judge, settings: Settings) -> Judge:
    """Return the judge with the budget of the settings; the judge itself if they set none."""
    if not settings.judge_budget:
        return judge
    store = settings.judge_budget_store
    return with_budget(judge, settings.judge_budget, _BUDGET_FILE if store is None else store.get_secret_value())


def resolve_metrics(
    given: Iterable[AnyMetric] | None, judge: Judge | None, settings: Settings, *, allow_unused_judge: bool = False
) -> list[Metric]:
    """Return the metrics that are named; every default for None.

    Args:
        given: names, classes or instances.
        judge: the judge, if there is one.
        settings: the settings, for metrics that one of them is an option of.
        allow_unused_judge: True to accept a judge that no metric asks, such as that of the environment: it may be for
            other code of the process.

    Raises:
        ConfigurationError: a name is unknown, two metrics compute the same score, a metric needs a judge and there is
            none, or no metric needs the judge.
    """
    if given is None:
        # Metrics that the user names are not chosen like this: they need their judge.
        kinds = [kind for kind in REGISTRY.builtin().values() if kind.default]
        defaults = [kind().bound(settings) for kind in kinds]
        return [metric for metric in defaults if judge is not None or not metric.asks_judge]
    # The same metric twice, for example by name and as a class, is computed once: the first one.
    unique: dict[tuple[type[Metric], str], Metric] = {}
    for item in given:
        metric = REGISTRY.create(item).bound(settings)
        unique.setdefault((type(metric), metric.name), metric)
    metrics = list(unique.values())
    owners: dict[str, Metric] = {}
    for metric in metrics:
        for definition in metric.scores:
            other = owners.setdefault(definition.name, metric)
            # Two values under one name could not be told apart in any backend.
            if other is not metric:
                raise ConfigurationError(f"two metrics compute a score {definition.name!r}: {other!r} and {metric!r}")
    asking = [metric.name for metric in metrics if metric.asks_judge]
    if asking and judge is None:
        need = "needs" if len(asking) == 1 else "need"
        raise ConfigurationError(f"{', '.join(asking)} {need} a judge: {_HOW_TO_NAME_A_JUDGE}")
    # A judge that is never asked usually means that a metric was forgotten.
    if judge is not None and not asking and not allow_unused_judge:
        raise ConfigurationError("a judge is given, but no metric asks it: add 'trace' to metrics, or omit the judge")
    return metrics


def unused_options(
    names: Iterable[str], used: Iterable[Configurable | type[Configurable]]
) -> Iterator[tuple[str, str]]:
    """Yield the settings that are options of an exporter or metric that is not used, with its name.

    Args:
        names: the settings that were given.
        used: the exporters and metrics of the pipeline.
    """
    known = set(chain.from_iterable(item.options for item in used))
    kinds: dict[str, type[Configurable]] = {**EXPORTERS.builtin(), **REGISTRY.builtin()}
    for name in names:
        if name not in known:
            yield from [(name, owner) for owner, kind in kinds.items() if name in kind.options][:1]


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
    metrics = list(metrics)
    definitions = chain.from_iterable(metric.scores for metric in metrics)
    known = {definition.name: definition for definition in definitions}
    given = settings.thresholds
    limits = set(chain.from_iterable(metric.limits for metric in metrics))
    if not own:
        limits.update(chain.from_iterable(kind.limits for kind in REGISTRY.builtin().values()))
    # EVERY is the threshold of all scores without one, and no name of a score.
    named = {name: threshold for name, threshold in given.items() if name != EVERY}
    # Creating every metric takes a while, so it happens only when a name is still unknown.
    if not own and named.keys() - known.keys() - limits:
        known = {**_all_definitions(settings), **known}
    for name, threshold in named.items():
        if name in limits:
            if threshold is None or not 0 <= threshold <= 1:
                raise ConfigurationError(f"the limit {name} is {threshold}, but limits lie between 0 and 1")
            continue
        definition = known.get(name)
        if definition is None:
            valid = [*(score.name for score in known.values() if not score.labels), *limits]
            hint = "Set the threshold of a custom metric where the metric runs."
            hint = "The metrics that run compute these." if own else hint
            raise UnknownNameError("score in thresholds", name, valid, hint)
        if threshold is None:  # it switches a default threshold off
            continue
        if definition.labels:
            labels = " and ".join(definition.labels)
            raise ConfigurationError(f"a threshold of {name} would replace its labels, which are {labels}: omit it")
        if not definition.contains(threshold):
            bound = "and above" if definition.high is None else f"to {definition.high:g}"
            raise ConfigurationError(
                f"the threshold of {name} is {threshold:g}, but its values are {definition.low:g} {bound}"
            )
    return Thresholds(given)


def _all_definitions(settings: Settings) -> dict[str, ScoreDefinition]:
    """Return the scores of every metric that is registered, or that the settings name."""
    found: dict[str, ScoreDefinition] = {}
    for name in dict.fromkeys((*REGISTRY.names(), *(settings.metrics or ()))):
        try:
            metric = REGISTRY.create(name).bound(settings)
        except ConfigurationError:  # a third-party metric that cannot be created here
            continue
        found.update((definition.name, definition) for definition in metric.scores)
    return found
