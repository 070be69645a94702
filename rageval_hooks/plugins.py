"""Finds metrics, exporters and judges by name: built in, by entry point, or as ``"package.module:name"``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from rageval_hooks.errors import ConfigurationError, UnknownNameError

T = TypeVar("T")

METRICS = ("rageval_hooks.metrics.local", "rageval_hooks.metrics.judged")
"""The packages with the built-in metrics. Their subpackages are not searched."""

EXPORTERS = ("rageval_hooks.exporters",)
"""The package with the built-in exporters."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """A setting that belongs to one exporter or metric. Its class declares it.

    Attributes:
        keyword: the constructor's argument, and the attribute that keeps it; None if it is not given.
        type: the type of the value, for pydantic; in the environment the value is text.
        about: what it does, for docs/settings.md.
        default: the value that holds if it is not set, for docs/settings.md.
        valid: what is valid, for messages.
        is_secret: True if the value may hold a password.
    """

    keyword: str
    type: Any
    about: str
    default: Any = None
    valid: str | None = None
    is_secret: bool = False


class Configurable:
    """An exporter or a metric. It is made, by its name or by the user, and then bound to the settings of a pipeline.

    Attributes:
        options: the settings that belong to it, by their names.
    """

    options: ClassVar[Mapping[str, Option]] = {}

    def take_options(self, values: Mapping[str, Any]) -> None:
        """Set the options that the constructor was not given, here and in every later call.

        Args:
            values: the options that are set, by the names of the settings.
        """
        if not hasattr(self, "_not_given"):
            keywords = [option.keyword for option in self.options.values()]
            self._not_given = frozenset(keyword for keyword in keywords if getattr(self, keyword, None) is None)
        for name, option in self.options.items():
            if option.keyword in self._not_given:
                setattr(self, option.keyword, values.get(name))


def declared_options() -> Mapping[str, Option]:
    """Return the options of the built-in exporters and metrics, by the names of the settings."""
    kinds = [*_builtin(Configurable, EXPORTERS).values(), *_builtin(Configurable, METRICS).values()]
    return {name: option for kind in kinds for name, option in kind.options.items()}


class Registry(Generic[T]):
    """The objects of one kind that users can name.

    A built-in object is a concrete subclass of ``base`` that has a ``name`` and is defined in a module of one of
    ``packages``: to add one, add a file. Others come from the entry points of ``group``.

    Args:
        what: the kind, for messages: ``"metric"``.
        base: the base class.
        packages: the packages with the built-in classes. Their subpackages are not searched.
        group: the entry-point group of the others.
    """

    def __init__(self, what: str, base: type[T], packages: tuple[str, ...], group: str) -> None:
        self.what = what
        self.base = base
        self.packages = packages
        self.group = group

    def builtin(self) -> dict[str, type[T]]:
        """Return the built-in classes by name, in the order of their modules."""
        return _builtin(self.base, self.packages)  # type: ignore[arg-type]  # a class is hashable

    def names(self) -> list[str]:
        """Return every name that :meth:`create` accepts."""
        return [*self.builtin(), *(entry.name for entry in self._entry_points())]

    def create(self, given: Any, make: Callable[[type[T]], T] | None = None, *, others: Iterable[str] = ()) -> T:
        """Return the object that a name refers to; an instance is returned unchanged.

        Args:
            given: an instance, a class, a built-in name, the name of an entry point, or ``"package.module:name"``.
            make: makes an instance of a class; without it the class is called without arguments.
            others: further names that the caller accepts. The message about an unknown name lists them too.

        Raises:
            UnknownNameError: the name is unknown.
            ConfigurationError: the object is of another kind, or cannot be created or imported.
        """
        found = self._find(given, others) if isinstance(given, str) else given
        name = repr(given) if isinstance(given, str) else getattr(given, "__qualname__", type(given).__qualname__)
        if isinstance(found, type) and issubclass(found, self.base):
            try:
                return make(found) if make else found()
            except ConfigurationError:
                # Its message says already what to do.
                raise
            except Exception as error:
                problem = f"cannot be made: {error}"
                if isinstance(error, TypeError):
                    problem = f"cannot be made without arguments ({error}): pass an instance"
                raise ConfigurationError(f"{self.what} {name} {problem}") from error
        if isinstance(found, self.base):
            return found
        why = f"it does not derive from {self.base.__name__}"
        if self.what == "metric" and isinstance(found, FunctionType):
            why = "decorate the function with @rageval_hooks.metric"
        raise ConfigurationError(f"{name} is not a {self.what}: {why}")

    def _find(self, name: str, others: Iterable[str]) -> Any:
        module, colon, attribute = name.partition(":")
        if colon:
            try:
                return getattr(import_module(module), attribute)
            except (ImportError, AttributeError, ValueError) as error:
                raise ConfigurationError(f"{self.what} {name!r} cannot be imported: {error}") from error
        builtin = self.builtin()
        if name in builtin:
            return builtin[name]
        for entry in self._entry_points():
            if entry.name == name:
                try:
                    return entry.load()
                except Exception as error:
                    raise ConfigurationError(f"{self.what} {name!r} (entry point {entry.value}): {error}") from error
        hint = 'One of your own is named "package.module:name".'
        raise UnknownNameError(self.what, name, [*self.names(), *others], hint)

    def _entry_points(self) -> Iterable[EntryPoint]:
        from importlib.metadata import entry_points  # slow to import, and most names are built in

        return entry_points(group=self.group)


@cache
def _builtin(base: type[Any], packages: tuple[str, ...]) -> dict[str, type[Any]]:
    found: dict[str, type[Any]] = {}
    for package in packages:
        for info in iter_modules(import_module(package).__path__):
            module = import_module(f"{package}.{info.name}")
            found.update((kind.name, kind) for kind in vars(module).values() if _is_builtin(kind, base, module))
    return found


def _is_builtin(value: object, base: type[Any], module: ModuleType) -> bool:
    """Return True if a value of a module is a class that users can name, and is defined there."""
    if not (isinstance(value, type) and issubclass(value, base)):
        return False
    # A base class that a module only imports belongs to another module. For a package, such as exporters/phoenix,
    # the class may be defined in one of its modules.
    is_own = value.__module__.startswith(module.__name__)
    return is_own and not inspect.isabstract(value) and isinstance(getattr(value, "name", None), str)
