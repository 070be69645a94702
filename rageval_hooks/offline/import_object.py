"""Objects of the user's code, named as ``package.module:object``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from difflib import get_close_matches
from functools import partial
from typing import Any

from rageval_hooks.errors import ConfigurationError


def import_named(name: str, option: str) -> Any:
    """Return the object that a name refers to. Modules of the current directory can be imported.

    Args:
        name: ``"package.module:object"``; the object may be an attribute of another: ``"module:app.chain"``.
        option: of the command line, for messages: ``"--app"``.

    Raises:
        ConfigurationError: the name has another form, the module cannot be imported, or it has no such object.
    """
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise ConfigurationError(f"{option} must have the form package.module:object, not {name!r}")
    here = os.getcwd()
    # As `python -m` does: the user's module usually lies in the current directory.
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        # A module that does not exist is usually looked for from the wrong folder.
        where = f" from {here}" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigurationError(
            f"{option}: {module_name} cannot be imported{where}: {type(error).__name__}: {error}"
        ) from error
    for attribute in path.split("."):
        if not hasattr(found, attribute):
            close = get_close_matches(attribute, dir(found), n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigurationError(f"{option}: {name} names nothing: there is no {attribute!r}.{guess}")
        found = getattr(found, attribute)
    return found


def is_factory(value: Any) -> bool:
    """Return True if a function or class needs no arguments, so that calling it creates the object.

    A function with ``*args`` is not a factory: it may be a wrapper around a function that needs an argument.
    """
    if not (inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, partial)):
        return False
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    # A call without arguments fills **options with nothing.
    return all(
        parameter.kind is parameter.VAR_KEYWORD or parameter.default is not parameter.empty for parameter in parameters
    )
