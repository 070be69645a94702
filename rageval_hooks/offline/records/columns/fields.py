"""Sorts the values of a row by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rageval_hooks.offline.records.cells import chat_text, first_key, is_present, unpacked
from rageval_hooks.offline.records.columns.aliases import ALIASES, CONTAINERS, canonical, names_inside
from rageval_hooks.offline.records.columns.passage_values import may_be_passages, texts_of_group
from rageval_hooks.offline.records.columns.plan import ColumnPlan, plan_columns
from rageval_hooks.offline.records.mapping import ColumnMap
from rageval_hooks.runtime.narrowing import text_or_empty
from rageval_hooks.runtime.selecting import without

__all__ = ["Fields", "take_fields"]

_ROLES = {"query": "user", "response": "assistant"}
"""Field → the role whose last message it is, in a column of chat messages."""

_TEXT_FIELDS = ("query", "response", "reference")
_PACKED_NAMES = frozenset({"generated_answer", "retrieved_passages"})
"""Columns of open-rag-eval, which hold lists and objects as text in files of any format."""

# "annual report 2023.pdf" has few words; a passage is at least a sentence.
_FEWEST_WORDS_OF_PASSAGE = 5


@dataclass
class Fields:
    """The values of a row by field.

    Attributes:
        values: field → value; a field without a value is absent.
        columns: field → the column or path that the value comes from.
        others: field → further columns that might have been meant.
        rest: columns that no field takes, with their values.
        packed: fields whose text holds a list or object, whatever the format of the file.
        joined: columns that hold one passage each, and were taken together.
    """

    values: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    packed: set[str] = field(default_factory=set)
    joined: list[str] = field(default_factory=list)

    def get(self, name: str) -> Any:
        """Return the value of a field; None if it has none."""
        return self.values.get(name)

    def take(self, name: str, column: str, value: Any) -> None:
        """Set the value of a field, and where it comes from."""
        self.values[name] = value
        self.columns[name] = column


def take_fields(row: Mapping[str, Any], mapping: ColumnMap | None = None) -> Fields:
    """Sort the values of a row by field.

    Args:
        row: values by column.
        mapping: the columns that the user named; they come first.
    """
    found = Fields()
    if mapping is not None:
        for name, path in mapping.paths.items():
            found.take(name, path, mapping.value(name, row))
    # Fields are taken in the order of ALIASES: a column belongs to the first field that wants it.
    plan = plan_columns(tuple(row))
    for name in ALIASES:
        if name not in found.values:
            _take(name, plan, row, found)
    _take_passage_document(found)
    _note_unused(row, found)
    return found


def _note_unused(row: Mapping[str, Any], found: Fields) -> None:
    """Note the columns that no field took, and those that a field might have taken instead."""
    used = {*found.columns.values(), *found.joined} & row.keys()
    for name, others in found.others.items():
        # A column that another field takes is no alternative.
        found.others[name] = without(others, used)
    for column, value in row.items():
        if column not in used and is_present(value):
            found.rest[column] = value


def _take(name: str, plan: ColumnPlan, row: Mapping[str, Any], found: Fields) -> None:
    candidates = _candidates(name, plan, row, found)
    present = [column for column in candidates if is_present(row[column])]
    is_taken = (
        _take_direct(name, present, row, found)
        or _take_flattened(name, plan, row, found)
        or _take_from_container(name, plan, row, found)
        or (name == "passages" and _take_numbered(plan, row, found))
    )
    if is_taken:
        return
    # An empty column is still the field's column: a missing value is reported as such.
    for column in (*present, *candidates)[:1]:
        found.take(name, column, row[column])


def _candidates(name: str, plan: ColumnPlan, row: Mapping[str, Any], found: Fields) -> list[str]:
    """Return the columns with a field's name that no other field has taken."""
    # "answer" is the response, unless "prediction" is there; then it is the reference.
    taken = set(found.columns.values())
    # An object in a column "answer" that holds the response is not the reference as well.
    taken.update(path.partition(".")[0] for path in list(taken) if path not in row)
    columns = without(plan.direct[name], taken)
    if name != "passages":
        return columns
    return [column for column in columns if may_be_passages(canonical(column), row[column])]


def _take_direct(name: str, present: Sequence[str], row: Mapping[str, Any], found: Fields) -> bool:
    """Take the first column with a field's name, unless it is an object in which the field is nested."""
    own = [column for column in present if not _is_container(name, row[column])]
    if not own:
        return False
    column = own[0]
    found.take(name, column, row[column])
    found.others[name] = [other for other in present if other != column]
    if canonical(column) in _PACKED_NAMES:
        found.packed.add(name)
    return True


def _is_container(name: str, value: Any) -> bool:
    # Passages may be an object themselves: texts by their ids.
    if name not in CONTAINERS or name == "passages":
        return False
    return isinstance(unpacked(value), Mapping)


def _take_flattened(name: str, plan: ColumnPlan, row: Mapping[str, Any], found: Fields) -> bool:
    column = first_key(row, plan.flattened.get(name, ()), is_present)
    if column is None:
        return False
    found.take(name, column, row[column])
    return True


def _take_from_container(name: str, plan: ColumnPlan, row: Mapping[str, Any], found: Fields) -> bool:
    """Take a field from an object such as ``{"question": ...}``, or from a list of chat messages."""
    for column in plan.containers.get(name, ()):
        value = unpacked(row[column])
        if isinstance(value, Mapping) and (inner := _inner(name, value)) is not None:
            key, part = inner
            found.take(name, f"{column}.{key}", part)
            return True
        if isinstance(value, list) and (text := chat_text(value, _ROLES.get(name, ""))):
            found.take(name, column, text)
            return True
    return False


def _take_numbered(plan: ColumnPlan, row: Mapping[str, Any], found: Fields) -> bool:
    """Take the passages of columns such as ``context_1`` and ``context_2``."""
    for columns in plan.numbered:
        if texts := texts_of_group(columns, row):
            found.take("passages", " + ".join(columns), texts)
            found.joined = columns
            return True
    return False


def _inner(name: str, value: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the key and value of a field within an object such as ``{"question": ...}`` or ``{"messages": [...]}``."""
    keys = {canonical(key): key for key in reversed(list(value))}
    known = [keys[alias] for alias in names_inside(name) if alias in keys]
    key = first_key(value, known, is_present)
    if key is not None:
        return key, value[key]
    if name not in _TEXT_FIELDS:
        return None
    if text := chat_text(value, _ROLES.get(name, "assistant")):
        return "messages", text
    return _only_text(value)


def _only_text(value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key and text of an object that holds nothing else: ``{"my_app_answer": "..."}``."""
    if len(value) != 1:
        return None
    [(key, text)] = value.items()
    if not text_or_empty(text).strip():
        return None
    return key, text


def _take_passage_document(found: Fields) -> None:
    """Take a column ``document`` as the passage if it holds text, as ARES writes it, and not a file's name."""
    if "passages" in found.values or "response" not in found.values:
        return
    value = found.get("document")
    is_passage = len(text_or_empty(value).split()) >= _FEWEST_WORDS_OF_PASSAGE
    if is_passage or isinstance(value, list):
        found.take("passages", found.columns.pop("document"), found.values.pop("document"))
