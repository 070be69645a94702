"""Plumbing that no metric author reads: threads, locks, lazy values, suppression, log lines, plain data.

Every layer may import every module, each by its name: ``import rageval_hooks`` must not import what it does not need.
Nothing here knows turns, scores or settings. A helper of one layer stays in that layer, and moves here when a second
layer needs it. Its file goes next to these modules, or into ``files``, ``lazy``, ``logs`` or
``tracing``.
"""
