"""Pauses before retries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from rageval_hooks.runtime.clock import Clock

__all__ = ["Backoff", "retry_after"]


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with jitter: the upper half of each pause is random, so that callers do not retry together.

    Attributes:
        first: upper bound of the first pause, in seconds.
        longest: upper bound of any pause, in seconds.
    """

    first: float = 0.5
    longest: float = 20.0

    def pause(self, retries: int, clock: Clock) -> float:
        """Return the seconds to wait before the next attempt, after this many retries."""
        # 2 ** 30 is beyond any pause, and a larger exponent could overflow.
        longest = min(self.longest, self.first * 2.0 ** min(retries, 30))
        return longest * (1 + clock.random()) / 2


def retry_after(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Return the seconds that a server asks to wait, or None if it does not say.

    Args:
        headers: the response's headers, with lower-case names or in a case-insensitive mapping.
        clock: the clock that HTTP dates are compared with.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name)
        if not text:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        moment = parsedate_to_datetime(headers.get("retry-after") or "").timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, moment - clock.time())
