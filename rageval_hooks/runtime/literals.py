"""Lists and objects that a program wrote as text: JSON, Python's literals, and the ``repr`` of objects."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

# An item of a list, and white space before the next one where numpy writes no comma: "['a' 'b']" has two items.
# A quote after a backslash begins no item. Otherwise a long run of escaped quotes would take quadratic time.
_ITEM = re.compile(r"""((?<!\\)"(?:[^"\\]|\\.)*"|(?<!\\)'(?:[^'\\]|\\.)*'|[}\])])(\s+(?=["'{\[A-Z]))?""", re.DOTALL)

# "ChatMessage(", "<ChatRole.USER: 'user'>", "<object at 0x7f3a>", "(id=a1," and ", content: '".
_READABLE = re.compile(r"\s{0,20}(?:[A-Z]\w{0,60}\(|[\[{])")
_ENUM = re.compile(r"<\w{1,60}\.\w{1,60}: ('[^']{0,200}')>")
_OBJECT = re.compile(r"<[a-z_][^<>'\"]{0,300}>(?!')")
_BARE_ID = re.compile(r"\(id=([\w.:-]{1,200})(?=, content: )")
_FIELD = re.compile(r"\b(content|meta|score|blob|dataframe|embedding|sparse_embedding): (?=['\"{\d\[])")


def unpacked(value: Any) -> Any:
    """Return the list or object that a text holds as JSON or as a Python literal; any other value unchanged."""
    # Most cells are prose, so a look at the first character saves two failing parsers for each.
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{", '"{', '"[')):
        return value
    # JSON comes first: it is stricter, and its `true` and `null` are not Python.
    text = value.strip()
    for read in (json.loads, _literal):
        try:
            found = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        # Langfuse 2 wrote objects into its tables as JSON, twice.
        found = unpacked(found) if isinstance(found, str) else found
        return found if isinstance(found, (list, dict)) else value
    return value


def _literal(text: str) -> Any:
    # numpy prints no commas, and Python would join the strings of ['a' 'b'].
    if _with_commas(text) != text:
        raise ValueError("a list without commas")
    return ast.literal_eval(text)


def read_repr(value: Any) -> Any:
    """Return the list or object that a text holds as JSON, as a Python literal, or as the ``repr`` of an object.

    For example {"text": "In 2019."} of "TextContent(text='In 2019.')". Parts that are no Python become texts or None:
    ``role=<ChatRole.USER: 'user'>``, ``tools=<object at 0x7f…>``. Haystack's ``Document(id=a1, content: 'x')`` is read.
    Any other value is returned unchanged.
    """
    found = unpacked(value)
    if not isinstance(found, str) or not _READABLE.match(found):
        return found
    for text in (found, _FIELD.sub(r"\1=", _BARE_ID.sub(r"(id='\1'", _OBJECT.sub("None", _ENUM.sub(r"\1", found))))):
        try:
            read = _python_value(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return read if isinstance(read, (list, dict)) else value
    return value


def _python_value(text: str) -> Any:
    """Return the value of a Python expression without running it.

    Lists may have white space between items, as numpy writes them.

    Raises:
        ValueError: the text is something else; likewise SyntaxError.
    """
    return _node_value(ast.parse(_with_commas(text.strip()), mode="eval").body)


def _with_commas(text: str) -> str:
    return _ITEM.sub(lambda item: f"{item[1]}," if item[2] else item[1], text)


def _node_value(node: ast.AST) -> Any:
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return list(map(_node_value, items))
        case ast.Dict(keys=keys, values=values):
            # `{**defaults, "a": 1}` has no key for the part with the stars.
            pairs = zip(keys, values, strict=True)
            return {str(_node_value(key)): _node_value(value) for key, value in pairs if key is not None}
        case ast.Call(args=args, keywords=keywords):
            # `Document(page_content='a')` is an object, and `array(['a'])` its list.
            given = list(map(_node_value, args))
            if given and isinstance(given[0], list):
                return given[0]
            return {item.arg: _node_value(item.value) for item in keywords if item.arg is not None} or given
        case ast.Name():  # `nan`, or `array` without a call
            return None
    return ast.literal_eval(node)
