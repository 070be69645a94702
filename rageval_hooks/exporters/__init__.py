"""Where evaluations go: OpenTelemetry spans, Phoenix, the console, a file, or an exporter of your application.

Each module or package here that defines a subclass of :class:`Exporter` with a ``name`` is an exporter; nothing else
has to be registered.
"""

from rageval_hooks.exporters.base import Exporter

__all__ = ["Exporter"]
