"""Lists and objects that another program wrote into a cell as text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

__all__ = ["unpacked"]

# An item of a list, and white space before the next one where numpy writes no comma: "['a' 'b']" has two items.
# A quote after a backslash begins no item. Otherwise a long run of escaped quotes would take quadratic time.
_ITEM = re.compile(r"""((?<!\\)"(?:[^"\\]|\\.)*"|(?<!\\)'(?:[^'\\]|\\.)*'|[}\])])(\s+(?=["'{\[A-Z]))?""", re.DOTALL)
_UNREADABLE = (ValueError, SyntaxError, RecursionError, MemoryError)


def unpacked(value: Any) -> Any:
    """Return the list or object that a text holds as JSON or as Python writes it; any other value unchanged."""
    # Most cells are prose, so a look at the first character saves two failing parsers for each.
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    # JSON comes first: it is stricter, and its `true` and `null` are not Python.
    for read in (json.loads, _python_value):
        try:
            found = read(value)
        except _UNREADABLE:
            continue
        return found if isinstance(found, (list, dict)) else value
    return value


def _python_value(text: str) -> Any:
    """Return the value of a Python expression without running it.

    Lists may have white space between items, as numpy writes them. Calls become objects of their arguments, so that
    ``[Document(page_content='...')]`` is readable.

    Raises:
        ValueError: the text is something else; likewise SyntaxError.
    """
    with_commas = _ITEM.sub(_with_comma, text.strip())
    return _node_value(ast.parse(with_commas, mode="eval").body)


def _with_comma(item: re.Match[str]) -> str:
    separator = "," if item[2] else ""
    return item[1] + separator


def _node_value(node: ast.AST) -> Any:
    read: Callable[[Any], Any] | None = _NODES.get(type(node))
    return ast.literal_eval(node) if read is None else read(node)


def _items(node: Any) -> list[Any]:
    return [_node_value(item) for item in node.elts]


def _pairs(node: Any) -> dict[str, Any]:
    pairs = zip(node.keys, node.values, strict=True)
    # `{**defaults, "a": 1}` has no key for the part with the stars, and nothing that could be looked up.
    return {str(_node_value(key)): _node_value(value) for key, value in pairs if key is not None}


def _call(node: Any) -> Any:
    """Return the arguments of a call: ``Document(page_content='a')`` is an object, ``array(['a'])`` its list."""
    values = [_node_value(argument) for argument in node.args]
    if values and isinstance(values[0], list):
        return values[0]
    named = {}
    for argument in node.keywords:
        # `f(**options)` has no name.
        if argument.arg is not None:
            named[argument.arg] = _node_value(argument.value)
    return named or values


def _bare_name(_: Any) -> None:
    """Return None for a name: ``nan``, or ``array`` without a call."""


_NODES: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.List: _items,
    ast.Tuple: _items,
    ast.Set: _items,
    ast.Dict: _pairs,
    ast.Call: _call,
    ast.Name: _bare_name,
}
"""Part of an expression → reads it. Every other part has to be a literal."""
