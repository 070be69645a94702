"""Names that tell things apart, where what was given does not."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["distinct"]


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names, each once: what comes again gets ``-2``, ``-3`` and so on, and never the name of another.

    Args:
        names: as they were given; the first of the same keeps its name.
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
