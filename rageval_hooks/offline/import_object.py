"""Objects of the user's code, named as ``package.module:object``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from functools import partial
from types import ModuleType
from typing import Any

from rageval_hooks.errors import ConfigurationError

_MOST_NAMES = 30


def import_named(name: str, option: str) -> Any:
    """Return the object that a name refers to. Modules of the current directory can be imported.

    Args:
        name: ``"package.module:object"``; the object may be an attribute of another: ``"module:app.chain"``.
        option: of the command line, for messages: ``"--app"``.

    Raises:
        ConfigurationError: the name has another form, the module cannot be imported, or it has no such object; the
            message lists what the module has.
    """
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise ConfigurationError(f"{option} must have the form package.module:object, not {name!r}")
    here = os.getcwd()
    # As `python -m` does: the user's module usually lies in the current directory.
    if here not in sys.path:
        sys.path.insert(0, here)
    found: Any = _module(module_name, option)
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise ConfigurationError(_missing(found, attribute, module_name, option)) from None
    return found


def _module(name: str, option: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The module itself or a package around it is missing; any other name is a dependency of the module.
        if f"{name}.".startswith(f"{error.name}."):
            raise ConfigurationError(
                f"{option}: no module {error.name!r}, neither in {os.getcwd()} nor in an installed package"
            ) from None
        raise ConfigurationError(f"{option}: {name} cannot be imported: it needs {error.name!r}") from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{option}: {name} cannot be imported: {type(error).__name__}: {error}") from error


def _missing(holder: Any, attribute: str, module: str, option: str) -> str:
    from difflib import get_close_matches

    # Objects with slots have no dictionary.
    variables = sorted(getattr(holder, "__dict__", {}).items())
    own = [name for name, value in variables if not name.startswith("_") and _is_own(value, module)]
    where = module if isinstance(holder, ModuleType) else type(holder).__name__
    message = f"{option}: {where} has no {attribute!r}."
    for close in get_close_matches(attribute, own, n=1):
        message += f" Did you mean {close!r}?"
    listed = ", ".join(own[:_MOST_NAMES]) or "nothing"
    # A module may have hundreds of names.
    if len(own) > _MOST_NAMES:
        listed += ", …"
    return f"{message} It has: {listed}"


def _is_own(value: Any, module: str) -> bool:
    """Return True if an object was defined in the module, not imported into it."""
    # `from __future__ import annotations` leaves a variable in each module.
    if inspect.ismodule(value) or type(value).__module__ == "__future__":
        return False
    # Instances do not say where they were created.
    is_defined_somewhere = inspect.isclass(value) or inspect.isroutine(value)
    return not is_defined_somewhere or getattr(value, "__module__", module) == module


def is_factory(value: Any) -> bool:
    """Return True if a function or class needs no arguments, so that calling it creates the object.

    A function with ``*args`` is not a factory: it may be a wrapper around a function that needs an argument.
    """
    is_callable = inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, partial)
    if not is_callable:
        return False
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    return not any(map(_needs_argument, parameters))


def _needs_argument(parameter: inspect.Parameter) -> bool:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return True
    # A call without arguments fills **options with nothing.
    if parameter.kind is parameter.VAR_KEYWORD:
        return False
    return parameter.default is parameter.empty
