"""One package per framework: a thin hook that records runs, and a pure ``turn_from_*`` that builds the turn.

``capture`` has what all integrations share, and ``manual`` has turns that the application reports itself.
``conversation`` reads lists of chat messages, and ``offline_support`` is the base class of each package's module
``offline``. Import modules, not this package. A new framework is a package here, and nothing else has to name it. An
integration never imports another one.
"""
