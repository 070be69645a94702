"""Shared by all integrations: the recorder, merging, passages and the trace context.

Import each from its module: ``import rageval_hooks`` needs the passages of ``start_turn`` and must not import the
recorder with the pipeline behind it.

``recorder`` keeps the runs in progress (``runs``). When a root ends,
``merging`` builds its turn with the framework's ``turn_from_*``, and ``deferred`` submits it. ``held_turns`` keeps
turns that wait for a person. The other modules read values and runs for all frameworks. The guard and
``instrumentation`` import some of these, too. A new file goes here when a second integration needs it.
"""
