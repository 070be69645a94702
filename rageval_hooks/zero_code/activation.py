"""Calls ``instrument()`` as soon as the application imports a framework.

Not at the start of the interpreter: most processes that inherit the environment of an application have nothing to do
with RAG. They must not pay for the import of a framework. And an application may read its ``.env`` file, or let gevent
patch the threads, before it imports a framework.
"""

from __future__ import annotations

import logging
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pkgutil import iter_modules
from typing import Any

from rageval_hooks import integrations
from rageval_hooks.errors import RagevalError
from rageval_hooks.instrumentation import instrument, is_instrumented
from rageval_hooks.runtime.import_hooks import call_after_import

_logger = logging.getLogger(__name__)


def instrument_when_needed(**settings: Any) -> None:
    """Call ``instrument()`` when a supported framework is imported, or now if one is.

    A mistake in the settings is one warning. The application runs on without evaluations.

    Args:
        settings: the keyword arguments of :func:`rageval_hooks.instrument`.
    """
    activation = _Activation(settings)
    for module in modules_to_wait_for():
        call_after_import(module, activation.run_once)


def modules_to_wait_for() -> list[str]:
    """Return the modules whose import means that an application uses a framework.

    Each integration names its module in the file ``activation``.
    """
    found = []
    for info in iter_modules(integrations.__path__):
        package = find_spec(f"{integrations.__name__}.{info.name}")
        folders = package.submodule_search_locations if package is not None else None
        # The file is executed without its package: importing the package would import the framework.
        spec = PathFinder.find_spec("activation", folders) if folders else None
        if spec is not None and spec.loader is not None:
            activation = module_from_spec(spec)
            spec.loader.exec_module(activation)
            found.append(activation.MODULE)
    return found


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
        _warn_not_evaluated(" ".join(str(error).split()))
    except Exception as error:
        _warn_not_evaluated(f"{type(error).__name__}: {error}")
        _logger.debug("rageval-hooks: where it failed", exc_info=True)


def _warn_not_evaluated(reason: str) -> None:
    _logger.warning("rageval-hooks: answers are not evaluated: %s [RAGEVAL-106]", reason)
