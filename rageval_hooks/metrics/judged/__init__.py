"""Metrics that ask a judge.

One module per metric: a subclass of :class:`~rageval_hooks.metrics.base.JudgeMetric`, which is found by its name. A
part that only one metric uses is a module next to it: ``nugget_list``, ``ranks``, ``trace_labels``. What several
metrics use is in :mod:`rageval_hooks.metrics.support`. No other package imports these modules.
"""
