"""A job: one turn and the metrics to compute for it, as plain data that any process can evaluate."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

from pydantic import Field

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.base import ContentPolicy
from rageval_hooks.metrics.base import REGISTRY, Metric
from rageval_hooks.runtime.jsonable import Data, Metadata, Text
from rageval_hooks.score import VERDICT, Evaluation, Result, Skipped, is_judged_verdict, verdict_first
from rageval_hooks.turn import Turn

OTHER_VERDICT: Final = "other"
"""Stands in :attr:`MetricSpec.rates` for every verdict without its own rate, and for a turn without one."""


class MetricSpec(Data):
    """A metric as data: enough to create the same metric in another process.

    Attributes:
        name: the metric's name; its results carry it.
        version: the metric's version, part of the idempotency key.
        reference: how another process finds the metric: a registered name or ``"package.module:name"``. None for a
            metric that exists only in this process, such as a function defined in a notebook.
        options: keyword arguments of the metric's class that differ from their defaults.
        probability: with which probability the turn was selected for this metric, 0 < p <= 1.
        rates: probabilities by the turn's local verdict, and for other turns under :data:`OTHER_VERDICT`, while the
            decision waits for the verdict; else empty.
        draw: the turn's random number for that decision, 0..1.
    """

    name: Text
    version: Text = "1"
    reference: Text | None = None
    options: Metadata = Field(default_factory=dict)
    probability: float = Field(default=1.0, gt=0, le=1)
    rates: dict[Text, float] = Field(default_factory=dict)
    draw: float = 0.0

    @property
    def is_chosen(self) -> bool:
        """True if the metric will run whatever the verdict."""
        return all(self.draw < rate for rate in self.rates.values())

    def decided(self, label: str | None) -> MetricSpec | None:
        """Return the metric with its probability; None if a turn with this verdict is sampled out."""
        rate = self.rates.get(label or OTHER_VERDICT, self.rates[OTHER_VERDICT])
        return self.model_copy(update={"probability": rate, "rates": {}, "draw": 0.0}) if self.draw < rate else None


class Job(Data):
    """One turn and the metrics to compute for it.

    A job is plain data and round-trips through JSON, so it can wait on disk or run on another machine::

        text = job.model_dump_json()
        evaluation = await engine.evaluate(Job.model_validate_json(text))

    Attributes:
        turn: the turn to evaluate.
        metrics: the metrics to compute, in the order of the results.
        content: the texts that exporters may get, as the process of the turn says; those of a worker may say less.
    """

    turn: Turn
    metrics: tuple[MetricSpec, ...]
    content: ContentPolicy = ContentPolicy()

    @property
    def key(self) -> str:
        """The idempotency key: the same for the same turn, metrics and versions, in every process."""
        # The span identifies a captured turn everywhere; a turn made by hand may have neither span nor id.
        span = self.turn.span
        turn = self.turn.id if span is None else f"{span.trace_id}/{span.span_id}/{self.turn.id}"
        turn = turn or _digest(self.turn.model_dump_json())
        # Sorted: the order in which options were given must not change the key.
        return _digest(
            *(
                _digest(turn, metric.name, metric.version, json.dumps(metric.options, sort_keys=True))
                for metric in self.metrics
            )
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the metrics."""
        return tuple(metric.name for metric in self.metrics)

    def only(self, names: Iterable[str]) -> Job:
        """Return the job with some of its metrics."""
        wanted = frozenset(names)
        return self.model_copy(update={"metrics": tuple(metric for metric in self.metrics if metric.name in wanted)})

    def decided(self, results: Iterable[Result], *, is_last: bool = False) -> Job:
        """Return the job with the decisions that wait for the local verdict.

        Args:
            results: of the turn, with its verdict if that is known.
            is_last: True to decide without a verdict, too.
        """
        found = [result.label for result in results if result.name == VERDICT and not is_judged_verdict(result)]
        specs: list[MetricSpec | None] = []
        for spec in self.metrics:
            waits = spec.rates and (found or is_last or len(spec.rates) == 1)
            specs.append(spec.decided(found[0] if found else None) if waits else spec)
        return self.model_copy(update={"metrics": tuple(filter(None, specs))})

    def skipped(self, reason: str) -> Evaluation:
        """Return an evaluation in which every metric is skipped."""
        results = verdict_first(Skipped(name=name, reason=reason, metric=name) for name in self.names)
        return Evaluation(turn=self.turn, results=results, stage="background")


def _digest(*parts: str) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def describe_metric(metric: Metric, probability: float = 1.0) -> MetricSpec:
    """Return a metric as data.

    Args:
        metric: a registered metric, an instance with options, or a function with ``@metric``.
        probability: with which probability turns are selected for this metric.
    """
    # "package.module.function": `@metric` records where the function was defined.
    module_name, _, name = metric.source.rpartition(".")
    reference: str | None = None
    options: dict[str, Any] | None = {}
    if module_name != "__main__" and getattr(sys.modules.get(module_name), name, None) is metric:
        reference = f"{module_name}:{name}"
    elif (options := _options(metric)) is not None:
        reference = _class_reference(type(metric))
    return MetricSpec(
        name=metric.name,
        version=metric.version,
        reference=reference,
        options=options if reference is not None and options is not None else {},
        probability=probability,
    )


def create_metric(spec: MetricSpec) -> Metric:
    """Create the metric that a spec describes.

    Raises:
        ConfigurationError: this process cannot find or create the metric; the message says why.
    """
    if spec.reference is None:
        raise ConfigurationError(
            f"the metric {spec.name!r} exists only in the process that created the job: define it at the top level of "
            'a module that this process can import, and refer to it as "package.module:name"'
        )
    return REGISTRY.create(spec.reference, make=lambda kind: kind(**spec.options))


def _class_reference(kind: type[Metric]) -> str | None:
    if REGISTRY.builtin().get(getattr(kind, "name", "")) is kind:
        return kind.name
    # "make.<locals>.Mine" cannot be imported, and "__main__" is another module in another process.
    found = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None)
    return f"{kind.__module__}:{kind.__qualname__}" if found is kind and kind.__module__ != "__main__" else None


def _options(metric: Metric) -> dict[str, Any] | None:
    """Return the constructor's arguments that differ from their defaults; None if they cannot be read back."""
    options: dict[str, Any] = {}
    parameters = inspect.signature(type(metric)).parameters.values()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        # By convention a metric keeps each option under the option's name.
        if not hasattr(metric, parameter.name):
            return None
        value = getattr(metric, parameter.name)
        if value == parameter.default:
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):  # it cannot be sent to another process
            return None
        options[parameter.name] = list(value) if isinstance(value, tuple) else value
    return options
