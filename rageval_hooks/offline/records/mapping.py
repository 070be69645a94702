"""``--map FIELD=COLUMN``: the columns of a file, as the user names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rageval_hooks.errors import ConfigurationError, UnknownNameError, requires
from rageval_hooks.offline.records.cells import unpacked

__all__ = ["FIELDS", "ColumnMap"]

FIELDS = (
    *("query", "response", "passages", "reference", "id", "run", "citations", "metadata"),
    *("target", "target_text", "rank", "document", "error"),
)
"""The fields that can be mapped."""


class ColumnMap:
    """Columns by field. A column is a name, or a JMESPath expression into nested values: ``contexts[].text``.

    Args:
        columns: field → column. Of several files the same map is used for each.

    Raises:
        ConfigurationError: a field is not known, or a path is not a valid expression.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        for name in columns:
            if name not in FIELDS:
                raise UnknownNameError("field of --map", name, FIELDS)
        self.paths = dict(columns)
        self._compiled: dict[str, Any] = {}
        for path in self.paths.values():
            if any(character in path for character in ".[]|"):
                self._compiled[path] = _compile(path)

    @classmethod
    def parse(cls, given: Iterable[str]) -> ColumnMap | None:
        """Return the map that options such as ``["response=chatgpt_response"]`` describe; None for no options.

        Raises:
            ConfigurationError: an option is not of this form.
        """
        columns: dict[str, str] = {}
        for option in given:
            name, equals, column = option.partition("=")
            if not equals or not column.strip():
                raise ConfigurationError(f"--map {option!r} should be FIELD=COLUMN, such as response=chatgpt_answer")
            columns[name.strip()] = column.strip()
        return cls(columns) if columns else None

    def is_path(self, name: str) -> bool:
        """Return True if a field is mapped to something that may be a path, and not only a column's name."""
        return self.paths[name] in self._compiled

    def value(self, name: str, row: Mapping[str, Any]) -> Any:
        """Return the value of a field in a row; None if it has none, also for a function in the path such as join()."""
        path = self.paths[name]
        if path in row:  # a name with dots in it comes before a path
            return row[path]
        expression = self._compiled.get(path)
        if expression is None:
            return None
        from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]

        try:
            return expression.search({column: _searchable(column, path, value) for column, value in row.items()})
        except JMESPathError:  # join(', ', answers) of a row whose answers are null
            return None


def _searchable(column: str, path: str, value: Any) -> Any:
    """Return what a path can look into: cells of tables hold lists and objects as text."""
    return unpacked(value) if column in path else value


def _compile(path: str) -> Any:
    with requires("jmespath", "offline", "paths into nested columns"):
        import jmespath  # type: ignore[import-untyped]
        from jmespath.exceptions import JMESPathError
    try:
        return jmespath.compile(path)
    except JMESPathError as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"--map: {path!r} is not a path such as contexts[].text: {reason}") from None
