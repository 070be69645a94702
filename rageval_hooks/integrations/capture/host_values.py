"""Reading values of the host application, which may raise whenever they are inspected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")


def or_else(default: D) -> Callable[[Callable[P, T]], Callable[P, T | D]]:
    """Make a function return a default where it would raise.

    Applications pass anything through their chains: arrays that have no truth value, proxies that raise when their
    class is asked for, integers with too many digits for ``str``. Such a value must not cost the whole turn.
    """

    def decorate(read: Callable[P, T]) -> Callable[P, T | D]:
        @wraps(read)
        def reading(*args: P.args, **kwargs: P.kwargs) -> T | D:
            try:
                return read(*args, **kwargs)
            except Exception:
                return default

        return reading

    return decorate


@or_else(False)
def is_a(value: Any, classes: type | tuple[type, ...]) -> bool:
    """Return True if a value is an instance of a class; False if the value raises when its class is asked for."""
    return isinstance(value, classes)


@or_else(None)
def finite(value: Any) -> float | None:
    """Return a number as a float; None if the value is not a finite number."""
    if value is None:
        return None
    number = float(value)
    # The difference is nan, which equals nothing, if the number is infinite or nan.
    return number if number - number == 0 else None


def attribute_text(value: Any, name: str) -> str | None:
    """Return an attribute that is a string; None if there is no such attribute, or if it is something else."""
    text = getattr(value, name, None)
    return text if isinstance(text, str) else None


def first_of(mapping: Mapping[Any, Any], keys: Iterable[str]) -> Any:
    """Return the value under the first key that a mapping has; None if it has none of the keys."""
    for key in keys:
        if key in mapping:
            return mapping[key]
    return None


def last_of(items: Sequence[T]) -> T | None:
    """Return the last item; None without items."""
    return items[-1] if items else None


def first_string(mapping: Mapping[Any, Any] | None, keys: Iterable[str]) -> str | None:
    """Return the first non-empty value under some keys, as a string; None without such a value or a mapping."""
    # Frameworks leave optional mappings (metadata, parameters of a call) unset or empty.
    if not mapping:
        return None
    for key in keys:
        found = _string(mapping.get(key))
        if found:
            return found
    return None


@or_else("")
def _string(value: Any) -> str:
    return "" if value is None else str(value)
