"""Instruments applications without a line of code in them.

There are two ways: OpenTelemetry's own command, ``opentelemetry-instrument python app.py``, which finds
:class:`~rageval_hooks.zero_code.instrumentor.RagevalInstrumentor` by its entry point; and ``rageval-hooks launch
python app.py``, which needs no further package. All settings come from the environment.

Both call ``instrument()`` as soon as the application imports a framework, and not at the start of the interpreter: most
processes that inherit the environment of an application have nothing to do with RAG. They must not pay for the import
of a framework. And an application may read its ``.env`` file, or let gevent patch the threads, before it imports one.
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

__all__ = ["instrument_when_needed"]

_logger = logging.getLogger(__name__)


def instrument_when_needed(**settings: Any) -> None:
    """Call ``instrument()`` when a supported framework is imported, or now if one is.

    A mistake in the settings is one warning. The application runs on without evaluations.

    Args:
        settings: the keyword arguments of :func:`rageval_hooks.instrument`.
    """
    is_done = False

    def instrument_once() -> None:
        nonlocal is_done
        # The application may call `instrument()` itself. Its arguments count, and it may be importing the framework.
        was_done, is_done = is_done, True
        if was_done or is_instrumented():
            return
        try:
            instrument(**settings)
        except Exception as error:
            # A message of ours may have several lines; a log line is easier to find.
            own = isinstance(error, RagevalError)
            reason = " ".join(str(error).split()) if own else f"{type(error).__name__}: {error}"
            _logger.warning("rageval-hooks: answers are not evaluated: %s [RAGEVAL-106]", reason)
            _logger.debug("rageval-hooks: where it failed", exc_info=True)

    for module in modules_to_wait_for():
        call_after_import(module, instrument_once)


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
