"""Metrics: what is computed for a turn.

``local`` has the metrics that run on this machine, ``judged`` those that ask a judge, ``support`` what they share.

To add a metric, add a module to ``local`` with a subclass of :class:`LocalMetric`, or to ``judged`` with a subclass of
:class:`JudgeMetric`. It is found by its name.
"""

from rageval_hooks.metrics.base import (
    REGISTRY,
    AnyMetric,
    Direction,
    Field,
    JudgeMetric,
    LocalMetric,
    Metric,
    Results,
    ScoreDefinition,
    Threshold,
    label,
)
from rageval_hooks.metrics.support.function_metric import metric
from rageval_hooks.metrics.support.running import compute, compute_judged

__all__ = [
    "REGISTRY",
    "AnyMetric",
    "Direction",
    "Field",
    "JudgeMetric",
    "LocalMetric",
    "Metric",
    "Results",
    "ScoreDefinition",
    "Threshold",
    "compute",
    "compute_judged",
    "label",
    "metric",
]
