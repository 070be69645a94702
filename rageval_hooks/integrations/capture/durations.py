"""How long parts of a turn took."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["busy_seconds"]


def busy_seconds(intervals: Iterable[tuple[int, int]]) -> float | None:
    """Return the seconds covered by some intervals in nanoseconds; overlaps count once. None without intervals."""
    total = 0
    last_end: int | None = None
    for start, end in sorted(intervals):
        if last_end is None or start > last_end:
            total += max(0, end - start)
            last_end = max(start, end)
        elif end > last_end:
            total += end - last_end
            last_end = end
    return None if last_end is None else total / 1e9
