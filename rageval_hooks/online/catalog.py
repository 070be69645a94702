"""The metrics that the jobs of this process name: each is found once, with what it costs and which models it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.models import Models, Role
from rageval_hooks.online.job import Job, MetricSpec, create_metric, describe_metric
from rageval_hooks.settings import LEXICAL

_PAIR_MODELS: Final[frozenset[Role]] = frozenset(("cross_encoder", "hhem", "grounding"))
"""Models that read two texts together. Their metrics are always late on a request path, except in the lexical tier."""

_SAMPLING = {"probability", "rates", "draw"}


class Cost(IntEnum):
    """How expensive a local metric is."""

    FREE = 0  # it reads no passages: times, tokens
    RULES = 1
    MODEL = 2
    PAIR_MODEL = 3  # passes for this metric alone


@dataclass(frozen=True)
class KnownMetric:
    """What a spec stands for in this process.

    Attributes:
        metric: the metric; None if this process cannot create it.
        problem: why it cannot.
        cost: how expensive it is.
        models: those that it needs, without those that rules replace.
    """

    metric: Metric | None = None
    problem: str = ""
    cost: Cost = Cost.FREE
    models: frozenset[Role] = frozenset()

    @property
    def asks_judge(self) -> bool:
        """True for a judge metric."""
        return self.metric is not None and self.metric.asks_judge


class MetricCatalog:
    """Finds the metric that a job names: one of this process, or one that is created on demand.

    Args:
        metrics: the metrics of this process. Some have no name in another one.
        models: the local models.
        probabilities: by metric name, with which probability turns are selected; 1.0 for metrics that are not named.

    Attributes:
        specs: the metrics of this process, as jobs name them.
    """

    def __init__(self, metrics: Iterable[Metric], models: Models, probabilities: Mapping[str, float]) -> None:
        self._models = models
        own = {metric.name: metric for metric in metrics}
        self.specs = tuple(describe_metric(metric, probabilities.get(name, 1.0)) for name, metric in own.items())
        self._own = {spec.name: (spec, self._describe(own[spec.name])) for spec in self.specs}
        self._created: dict[str, KnownMetric] = {}

    def find(self, spec: MetricSpec) -> KnownMetric:
        """Return what a spec stands for."""
        own, known = self._own.get(spec.name, (None, KnownMetric()))
        # A job of this process has the specs themselves. One of another process may differ in its options, and in how
        # it was sampled, which changes nothing here.
        if own is spec or (own is not None and spec.model_copy(update={n: getattr(own, n) for n in _SAMPLING}) == own):
            return known
        key = spec.model_dump_json(exclude=_SAMPLING)
        if key not in self._created:
            try:
                self._created[key] = self._describe(create_metric(spec))
            except ConfigurationError as error:
                return KnownMetric(problem=str(error))
        return self._created[key]

    def metric(self, spec: MetricSpec) -> Metric:
        """Return the metric of a spec, one that this process can create: a judge metric of :meth:`split`."""
        metric = self.find(spec).metric
        assert metric is not None  # noqa: S101
        return metric

    def split(self, job: Job) -> tuple[Job, Job]:
        """Return the job's local metrics and its judge metrics. Metrics that cannot be created count as local."""
        judged = {spec.name for spec in job.metrics if self.find(spec).asks_judge}
        return job.only(set(job.names) - judged), job.only(judged)

    def by_models(self, job: Job) -> list[tuple[frozenset[Role], Job]]:
        """Return the job in parts: first the metrics whose models are here, then those that wait for the same ones."""
        names: dict[frozenset[Role], list[str]] = {}
        for spec in job.metrics:
            roles = self.find(spec).models
            missing = frozenset(role for role in roles if self._models.state(role) in ("idle", "loading"))
            names.setdefault(missing, []).append(spec.name)
        return [(roles, job.only(names[roles])) for roles in sorted(names, key=len)]

    def _describe(self, metric: Metric) -> KnownMetric:
        needed = frozenset(self._models.needed(metric.models))
        # Without the models that rules replace.
        models = {role for role in needed if getattr(self._models.settings, role) != LEXICAL}
        cost = Cost.RULES if "passages" in metric.requires else Cost.FREE
        # Nothing of a pair can be prepared before the answer exists, and it takes longer than all other metrics.
        if models:
            cost = Cost.PAIR_MODEL if _PAIR_MODELS & models else Cost.MODEL
        return KnownMetric(metric, cost=cost, models=needed)
