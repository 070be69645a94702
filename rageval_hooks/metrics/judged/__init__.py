"""Metrics that ask a judge.

One module per metric: a subclass of :class:`~rageval_hooks.metrics.base.JudgeMetric`, which is found by its name. What
several metrics use is in :mod:`rageval_hooks.metrics.support`. No other package imports these modules.
"""
