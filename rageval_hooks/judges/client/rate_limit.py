"""Limits on requests and tokens per minute."""

from __future__ import annotations

from collections import deque

from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.executors import ForkSafeLock

__all__ = ["RateLimiter", "Ticket"]

_MINUTE = 60.0


class _Use:
    """An amount that counts for one minute from its start."""

    __slots__ = ("amount", "start")

    def __init__(self, start: float, amount: float) -> None:
        self.start = start
        self.amount = amount


class _Window:
    """A log of uses by start time. No interval of a minute may hold more than ``limit``."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.uses: deque[_Use] = deque()

    def earliest(self, amount: float, start: float) -> float:
        """Return the earliest time, at or after ``start``, at which ``amount`` fits."""
        if self.uses:
            # Requests are sent in the order of their reservations: a small one must not overtake a large one.
            start = max(start, self.uses[-1].start)
        recent = [use for use in self.uses if use.start > start - _MINUTE]
        total = sum(use.amount for use in recent) + min(amount, self.limit)
        # Each use that leaves the window makes room: the request starts when enough have left.
        for use in recent:
            if total <= self.limit:
                break
            total -= use.amount
            start = max(start, use.start + _MINUTE)
        return start

    def add(self, start: float, amount: float, now: float) -> _Use:
        """Record a use, and drop those that no longer count."""
        while self.uses and self.uses[0].start <= now - _MINUTE:
            self.uses.popleft()
        # A use above the limit could never fit. It counts as a full minute.
        self.uses.append(use := _Use(start, min(amount, self.limit)))
        return use


class RateLimiter:
    """Assigns each request the time from which it may be sent.

    It keeps a log and not a token bucket: a full bucket would admit twice the limit in the first minute. Thread-safe.
    A forked process counts its own requests only.

    Args:
        requests: requests per minute; None for no limit.
        tokens: input and output tokens per minute; None for no limit.
        clock: the time.
    """

    def __init__(self, requests: float | None, tokens: float | None, clock: Clock) -> None:
        self._requests = _Window(requests) if requests is not None else None
        self._tokens = _Window(tokens) if tokens is not None else None
        self._clock = clock
        self._lock = ForkSafeLock()
        self._paused_until = 0.0

    def reserve(self, tokens: float) -> Ticket:
        """Reserve a time for the next request.

        Args:
            tokens: estimated tokens of the request. More than the limit counts as the limit.
        """
        with self._lock:
            now = self._clock.monotonic()
            # A pause that the server asked for (Retry-After) holds for all requests, not only for the one it answered.
            start = max(now, self._paused_until)
            if self._requests is not None:
                start = self._requests.earliest(1, start)
            if self._tokens is not None:
                start = self._tokens.earliest(tokens, start)
            # Recorded before it is sent: another thread that reserves now must see it.
            request = self._requests.add(start, 1, now) if self._requests is not None else None
            use = self._tokens.add(start, tokens, now) if self._tokens is not None else None
            return Ticket(self, max(0.0, start - now), request, use)

    def pause(self, seconds: float) -> None:
        """Send nothing for a while, because the server asked for it."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)

    @property
    def paused(self) -> float:
        """Seconds until the pause ends; 0 without a pause."""
        return max(0.0, self._paused_until - self._clock.monotonic())


class Ticket:
    """The reserved time of a request.

    Attributes:
        wait: seconds until the request may be sent.
    """

    def __init__(self, rate_limiter: RateLimiter, wait: float, request: _Use | None, tokens: _Use | None) -> None:
        self.wait = wait
        self._rate_limiter = rate_limiter
        self._request = request
        self._tokens = tokens

    def settle(self, tokens: float) -> None:
        """Replace the estimate by the tokens that were used."""
        if self._tokens is not None and self._rate_limiter._tokens is not None:
            with self._rate_limiter._lock:
                # The window holds the same object: the correction counts for later reservations.
                self._tokens.amount = min(tokens, self._rate_limiter._tokens.limit)

    def give_back(self) -> None:
        """Cancel the reservation: nothing was sent."""
        with self._rate_limiter._lock:
            for use in (self._request, self._tokens):
                if use is not None:
                    # Set to 0 and not removed: removing would need a search, and the entry leaves the window soon.
                    use.amount = 0.0
