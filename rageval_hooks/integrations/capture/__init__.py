"""Shared by all integrations: the recorder, turns, passages and the place in the trace.

Import each from its module: ``import rageval_hooks`` needs the passages of ``start_turn`` and must not import the
recorder with the pipeline behind it.

``recorder`` keeps the runs in progress. When a root ends, ``turns`` builds its turn with the framework's
``turn_from_*``, and ``deferred`` submits it, or keeps it while a graph waits for a person. ``passages`` and ``values``
read what the application passes through its runs. ``trace_context`` finds the span of a turn, also that of another
tracer. A new file goes here when a second integration needs it.
"""
