"""Requests and tokens per minute: how long a request has to wait so that no minute holds more than is allowed."""

from __future__ import annotations

from collections import deque

from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.executors import ForkSafeLock

__all__ = ["Throttle", "Ticket"]

_MINUTE = 60.0


class _Use:
    """Something that counts from a moment on for a minute."""

    __slots__ = ("amount", "start")

    def __init__(self, start: float, amount: float) -> None:
        self.start = start
        self.amount = amount


class _Window:
    """A log of uses in the order of their starts, in which no span of a minute may hold more than ``limit``."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.uses: deque[_Use] = deque()

    def earliest(self, amount: float, start: float) -> float:
        """Return the first moment from ``start`` on at which ``amount`` fits in."""
        if self.uses:
            start = max(start, self.uses[-1].start)
        recent = [use for use in self.uses if use.start > start - _MINUTE]
        total = sum(use.amount for use in recent) + min(amount, self.limit)
        for use in recent:
            if total <= self.limit:
                break
            total -= use.amount
            start = max(start, use.start + _MINUTE)
        return start

    def add(self, start: float, amount: float, now: float) -> _Use:
        """Note a use, and forget those that are over."""
        while self.uses and self.uses[0].start <= now - _MINUTE:
            self.uses.popleft()
        self.uses.append(use := _Use(start, min(amount, self.limit)))
        return use


class Throttle:
    """Gives each request the moment from which it may be sent.

    A log and not a bucket: a full bucket lets twice the limit through in the first minute. Safe to use from any thread
    and loop; a forked process counts for itself.

    Args:
        requests: per minute; None for no limit.
        tokens: per minute, input and output together; None for no limit.
        clock: tells the time.
    """

    def __init__(self, requests: float | None, tokens: float | None, clock: Clock) -> None:
        self._requests = _Window(requests) if requests is not None else None
        self._tokens = _Window(tokens) if tokens is not None else None
        self._clock = clock
        self._lock = ForkSafeLock()
        self._paused_until = 0.0

    def reserve(self, tokens: float) -> Ticket:
        """Give the next request its moment.

        Args:
            tokens: how many it will take, about. More than a minute allows count as a full minute.
        """
        with self._lock:
            now = self._clock.monotonic()
            start = max(now, self._paused_until)
            if self._requests is not None:
                start = self._requests.earliest(1, start)
            if self._tokens is not None:
                start = self._tokens.earliest(tokens, start)
            request = self._requests.add(start, 1, now) if self._requests is not None else None
            use = self._tokens.add(start, tokens, now) if self._tokens is not None else None
            return Ticket(self, max(0.0, start - now), request, use)

    def pause(self, seconds: float) -> None:
        """Send nothing for a while: the server said so."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)

    @property
    def paused(self) -> float:
        """Seconds until the server may be asked again."""
        return max(0.0, self._paused_until - self._clock.monotonic())


class Ticket:
    """The moment that a request was given.

    Attributes:
        wait: seconds until then.
    """

    def __init__(self, throttle: Throttle, wait: float, request: _Use | None, tokens: _Use | None) -> None:
        self.wait = wait
        self._throttle = throttle
        self._request = request
        self._tokens = tokens

    def settle(self, tokens: float) -> None:
        """Put the tokens that were really taken in the place of the estimate."""
        if self._tokens is not None and self._throttle._tokens is not None:
            with self._throttle._lock:
                self._tokens.amount = min(tokens, self._throttle._tokens.limit)

    def give_back(self) -> None:
        """Say that nothing was sent."""
        with self._throttle._lock:
            for use in (self._request, self._tokens):
                if use is not None:
                    use.amount = 0.0
