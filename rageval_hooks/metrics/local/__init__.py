"""Metrics that need no judge: formulas and small models on this machine.

One module per metric: a subclass of :class:`~rageval_hooks.metrics.base.LocalMetric`, which is found by its name. Only
``accuracy`` is no metric: it is the base of ``factual_accuracy`` and ``hallucination``. What several metrics use is in
:mod:`rageval_hooks.metrics.support`. No other package imports these modules.
"""
