"""The fields that a file's columns could be: computed once, because all rows of a file have the same columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rageval_hooks.offline.records.columns.aliases import ALIASES, CONTAINERS, canonical, names_inside
from rageval_hooks.offline.records.columns.passage_values import numbered_groups

__all__ = ["ColumnPlan", "plan_columns"]

# What separates the parts of a flattened name: "inputs.question" in LangSmith, "inputs/question" in MLflow.
_SEPARATOR = re.compile(r"[./]")


@dataclass(frozen=True)
class ColumnPlan:
    """The columns that could hold each field.

    Attributes:
        direct: field → columns with one of its names, the preferred one first.
        flattened: field → columns such as ``inputs.question``.
        containers: field → columns that may hold an object with the field.
        numbered: groups of columns that hold one passage each: ``context_1``, ``context_2``.
    """

    direct: Mapping[str, list[str]]
    flattened: Mapping[str, list[str]]
    containers: Mapping[str, list[str]]
    numbered: list[list[str]]


@lru_cache(maxsize=256)
def plan_columns(columns: tuple[str, ...]) -> ColumnPlan:
    """Return which of some columns could hold each field."""
    # The first of several columns with the same canonical name wins, so it is entered last.
    names = {canonical(column): column for column in reversed(columns)}
    return ColumnPlan(
        direct={field: _present(aliases, names) for field, aliases in ALIASES.items()},
        flattened={field: _flattened(field, names) for field in CONTAINERS},
        containers={field: _containers(field, names) for field in CONTAINERS},
        numbered=numbered_groups(columns),
    )


def _present(wanted: tuple[str, ...], names: Mapping[str, str]) -> list[str]:
    return [names[name] for name in wanted if name in names]


def _containers(field: str, names: Mapping[str, str]) -> list[str]:
    wanted = CONTAINERS[field]
    if field in ("query", "response"):
        # LangChain's RetrievalQA returns {"query": …, "result": …}, which scripts write into a column "answer".
        wanted = (*wanted, *ALIASES[field])
    return _present(tuple(dict.fromkeys(wanted)), names)


def _flattened(field: str, names: Mapping[str, str]) -> list[str]:
    """Return the columns whose first part is a container of a field, and whose last part is its name."""
    found = []
    for name, column in names.items():
        parts = _SEPARATOR.split(name)
        if len(parts) > 1 and parts[0] in CONTAINERS[field] and parts[-1] in names_inside(field):
            found.append(column)
    return found
