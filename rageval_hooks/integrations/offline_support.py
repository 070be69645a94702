"""The support for a framework in the offline commands. Each integration provides it in its module ``offline``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, ClassVar

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.online.pipeline import Pipeline

_PACKAGE = "rageval_hooks.integrations"

StoredItem = tuple[str | None, Any]
"""The key under which a store has an item, if it has one, and the item: a document, a node or a text."""


class OfflineSupport(ABC):
    """The support for a framework in the commands ``run`` and ``generate``.

    The module ``offline`` of an integration has an instance in the variable ``support``.
    """

    app_kind: ClassVar[str]
    """The name of an application of the framework in messages: ``a query engine of LlamaIndex``."""

    @abstractmethod
    def capturing(self, pipeline: Pipeline) -> AbstractContextManager[Callable[[], object]]:
        """Send the turns of the framework to a pipeline while the block runs.

        Args:
            pipeline: receives the turns.

        Returns:
            A context manager with a function that captures what the calling context runs from then on.
        """

    @abstractmethod
    def question_function(self, app: Any, input_key: str | None) -> Callable[[str], Any] | None:
        """Return a function that asks an application of the framework; None for any other object.

        Args:
            app: what the user named.
            input_key: the key of the question in the application's input, if the user named it.

        Raises:
            ConfigurationError: the object is of this framework, but does not answer single questions.
        """

    def read_stream(self, result: Any) -> Any:
        """Return the answer of a streaming response; any other result unchanged."""
        return result

    @abstractmethod
    def stored_items(self, store: Any) -> Iterable[StoredItem] | None:
        """Return what a vector store or index of the framework holds; None if it cannot be listed."""


@cache
def installed_support() -> tuple[OfflineSupport, ...]:
    """Return the support of each integration whose framework is installed. This imports the frameworks."""
    found: list[OfflineSupport] = []
    for info in iter_modules(import_module(_PACKAGE).__path__):
        name = f"{_PACKAGE}.{info.name}"
        try:
            if info.ispkg and find_spec(f"{name}.offline") is not None:
                found.append(import_module(f"{name}.offline").support)
        except MissingDependencyError:  # the framework is not installed
            continue
    return tuple(found)
