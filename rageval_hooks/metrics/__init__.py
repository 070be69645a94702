"""Metrics: what is computed for a turn.

``local`` has the metrics that run on this machine, ``judged`` those that ask a judge, ``support`` what they share.

To add a metric, add a module to ``local`` with a subclass of :class:`LocalMetric`, or to ``judged`` with a subclass of
:class:`JudgeMetric`. It is found by its name.
"""

from rageval_hooks.metrics.base import JudgeMetric, LocalMetric, Metric, ScoreDefinition
from rageval_hooks.metrics.function_metric import metric

__all__ = ["JudgeMetric", "LocalMetric", "Metric", "ScoreDefinition", "metric"]
