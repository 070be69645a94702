"""Calls ``instrument()`` as soon as the application imports a framework.

Not at the start of the interpreter: most processes that inherit the environment of an application have nothing to do
with RAG. They must not pay for the import of a framework. And an application may read its ``.env`` file, or let gevent
patch the threads, before it imports a framework.
"""

from __future__ import annotations

import logging
from typing import Any

from rageval_hooks.errors import RagevalError
from rageval_hooks.instrumentation import instrument, is_instrumented
from rageval_hooks.runtime.import_hooks import call_after_import

__all__ = ["instrument_when_needed"]

_logger = logging.getLogger(__name__)

FRAMEWORKS = ("langchain_core", "llama_index_instrumentation")
"""Every application of a supported framework imports one of these."""


def instrument_when_needed(**settings: Any) -> None:
    """Call ``instrument()`` when a supported framework is imported, or now if one is.

    A mistake in the settings is one warning. The application runs on without evaluations.

    Args:
        settings: the keyword arguments of :func:`rageval_hooks.instrument`.
    """
    activation = _Activation(settings)
    for framework in FRAMEWORKS:
        call_after_import(framework, activation.run_once)


class _Activation:
    """Calls ``instrument()`` for whichever framework comes first.

    Args:
        settings: the keyword arguments of ``instrument()``.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._done = False

    def run_once(self) -> None:
        """Instrument every installed framework, unless that was tried before."""
        # The application may call `instrument()` itself. Its arguments count, and it may be importing the framework.
        if not self._done and not is_instrumented():
            _instrument(self._settings)
        self._done = True


def _instrument(settings: dict[str, Any]) -> None:
    try:
        instrument(**settings)
    except RagevalError as error:
        # Messages may have several lines; a log line is easier to find.
        _logger.warning("rageval-hooks: answers are not evaluated: %s", " ".join(str(error).split()))
    except Exception as error:
        _logger.warning("rageval-hooks: answers are not evaluated: %s: %s", type(error).__name__, error)
        _logger.debug("rageval-hooks: where it failed", exc_info=True)
