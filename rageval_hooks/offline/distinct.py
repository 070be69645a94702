"""Makes names unique."""

from __future__ import annotations

from collections.abc import Sequence


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names, with ``-2``, ``-3`` and so on appended to repeated ones; never the name of another item.

    Args:
        names: the given names; the first of several equal ones stays unchanged.
    """
    taken = set(names)
    seen: dict[str, int] = {}
    found = []
    for name in names:
        number = seen.get(name, 0) + 1
        new = name
        while number > 1 and (new := f"{name}-{number}") in taken:
            number += 1
        seen[name] = number
        taken.add(new)
        found.append(new)
    return found
