"""Shared by all integrations: the recorder, merging, passages and the place in the trace.

Import each from its module: ``import rageval_hooks`` needs the passages of ``start_turn`` and must not import the
recorder with the pipeline behind it.

``recorder`` keeps the runs in progress (``runs``). When a root ends, ``merging`` builds its turn with the framework's
``turn_from_*``, and ``deferred`` submits it. ``held_turns`` keeps turns that wait for a person. ``trace_context`` finds
the span of a turn, also that of another tracer. The other modules read values and runs for all frameworks: ``passages``
and ``text_results``, ``fields`` (what names of fields say), ``authorship`` (which call wrote a text), ``run_facts``
and ``host_values``. A new file goes here when a second integration needs it.
"""
