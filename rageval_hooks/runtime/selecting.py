"""Selecting items of iterables and entries of mappings. All functions keep the order."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeVar

__all__ = [
    "common",
    "entries_except",
    "entries_not_none",
    "entries_of",
    "entries_under",
    "instances",
    "not_none",
    "without",
]

T = TypeVar("T")
K = TypeVar("K")


def not_none(items: Iterable[T | None]) -> list[T]:
    """Return the items that are not None. Zeros and empty texts stay."""
    return [item for item in items if item is not None]


def instances(items: Iterable[object], kind: type[T]) -> list[T]:
    """Return the items that are instances of a class."""
    return [item for item in items if isinstance(item, kind)]


def common(items: Iterable[T], others: Container[object]) -> list[T]:
    """Return the items that are also in others."""
    return [item for item in items if item in others]


def without(items: Iterable[T], others: Container[object]) -> list[T]:
    """Return the items that are not in others."""
    return [item for item in items if item not in others]


def entries_not_none(mapping: Mapping[K, T | None]) -> dict[K, T]:
    """Return the entries whose value is not None. Zeros and empty texts stay."""
    return {key: value for key, value in mapping.items() if value is not None}


def entries_of(mapping: Mapping[K, Any], *kinds: type) -> dict[K, Any]:
    """Return the entries whose value is an instance of one of these classes."""
    return {key: value for key, value in mapping.items() if isinstance(value, kinds)}


def entries_under(mapping: Mapping[K, T], keys: Iterable[K]) -> dict[K, T]:
    """Return the entries with these keys, in the order of the keys. Missing keys are skipped."""
    return {key: mapping[key] for key in keys if key in mapping}


def entries_except(mapping: Mapping[K, T], *keys: object) -> dict[K, T]:
    """Return the entries with other keys than these."""
    return {key: value for key, value in mapping.items() if key not in keys}
