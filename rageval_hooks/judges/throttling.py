"""The clock of a judge, its limits per minute, and its circuit breaker. All are for all event loops and threads.

``aiolimiter`` belongs to one event loop and admits twice the limit in the first minute; ``limits`` can neither wait for
its turn nor correct an estimate. Circuit breakers on PyPI count calls, not requests with retries in them.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import Any, Literal

from rageval_hooks.errors import JudgeUnavailableError
from rageval_hooks.runtime.fork import ForkSafeLock

_MINUTE = 60.0
_MAX_COOLDOWN = 600.0


class Clock:
    """The real clock. Tests derive a clock that they control."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment. Never goes back."""
        return time.monotonic()

    def random(self) -> float:
        """Return a random number, 0 <= x < 1, that does not depend on the seed of the application."""
        return random.SystemRandom().random()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class RateLimiter:
    """Spaces requests so that they keep limits per minute, with even gaps: some providers count in seconds.

    Args:
        requests: requests per minute; None for no limit.
        tokens: input and output tokens per minute; None for no limit.
        clock: the time.
    """

    def __init__(self, *, requests: float | None, tokens: float | None, clock: Clock) -> None:
        self._seconds_per_request = 0.0 if requests is None else _MINUTE / requests
        self._seconds_per_token = 0.0 if tokens is None else _MINUTE / tokens
        self._clock = clock
        self._lock = ForkSafeLock()
        # The next request starts when both limits allow it.
        self._next_by_requests = self._next_by_tokens = self._paused_until = -math.inf

    def reserve(self, tokens: float) -> float:
        """Return the time at which the next request may be sent: a value of the clock's ``monotonic()``.

        Args:
            tokens: estimated tokens of the request. More than the limit counts as the limit: it could never fit.
        """
        with self._lock:
            # A pause that the server asked for (Retry-After) holds for all requests, not only for the one it answered.
            earliest = max(self._clock.monotonic(), self._paused_until)
            start = max(earliest, self._next_by_requests, self._next_by_tokens)
            # Noted before it is sent: another thread that reserves now must see it.
            self._next_by_requests = start + self._seconds_per_request
            self._next_by_tokens = start + min(_MINUTE, tokens * self._seconds_per_token)
            return start

    def give_back(self, tokens: float) -> None:
        """Correct an estimate.

        Args:
            tokens: reserved tokens that were not used; negative if more were used.
        """
        with self._lock:
            self._next_by_tokens -= tokens * self._seconds_per_token

    def pause(self, seconds: float) -> None:
        """Send nothing for a while, because the server asked for it."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)

    @property
    def paused(self) -> float:
        """Seconds until the pause ends; 0 without a pause."""
        return max(0.0, self._paused_until - self._clock.monotonic())


class CircuitBreaker:
    """Closed: requests pass. Open: none passes. Half open, after a while: one probe passes, and its outcome decides.

    Args:
        failures: number of failures in a row that opens the circuit.
        cooldown: seconds that it stays open the first time. Doubled after each failed probe, up to 600 s.
        patience: seconds after which a probe without an outcome no longer blocks the next one.
        clock: the time.
    """

    def __init__(self, *, failures: int, cooldown: float, patience: float, clock: Clock) -> None:
        self._limit = failures
        self._cooldown = self._pause = cooldown
        self._patience = patience
        self._clock = clock
        self._lock = ForkSafeLock()
        self._failures = self._opened = 0
        self._reason = ""
        self._opened_at = -math.inf
        self._open_until: float | None = None

    @property
    def _left(self) -> float:
        """Seconds until the next probe."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - self._clock.monotonic())

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """``closed``, ``open`` or ``half_open``."""
        if self._open_until is None:
            return "closed"
        return "open" if self._left else "half_open"

    def check(self) -> None:
        """Raise if no request may pass now.

        Raises:
            JudgeUnavailableError: the circuit is open, or a probe is under way.
        """
        if self.state == "open":
            raise JudgeUnavailableError(
                f"no request sent (next attempt in {self._left:.0f} s): the circuit is open after {self._failures} "
                f"failures in a row, the last: {self._reason}",
                circuit="open",
            )

    def enter(self) -> float:
        """Let one request pass. Returns the time, which the outcome is reported with.

        Raises:
            JudgeUnavailableError: the circuit is open, or a probe is under way.
        """
        with self._lock:
            self.check()
            now = self._clock.monotonic()
            if self._open_until is not None:
                # The probe. No other request passes until it has an outcome.
                self._open_until = now + max(self._cooldown, self._patience)
            return now

    def report(self, started: float, works: bool | None, reason: str = "") -> None:
        """Report the outcome of a request.

        Args:
            started: what :meth:`enter` returned.
            works: True if the judge works, False if it does not; None if the request says nothing about it, for example
                because it was cancelled. Another probe may follow then.
            reason: why the judge does not work.
        """
        with self._lock:
            # A request that started before the circuit opened says nothing about the server's state now.
            if started <= self._opened_at:
                return
            is_probe = self._open_until is not None
            if works:
                self._failures, self._reason, self._open_until, self._pause = 0, "", None, self._cooldown
            elif works is None:
                if is_probe:
                    self._open_until = self._clock.monotonic()
            else:
                self._failures += 1
                self._reason = reason
                if is_probe:
                    self._pause = min(self._pause * 2, _MAX_COOLDOWN)
                if is_probe or self._failures >= self._limit:
                    self._opened += 1
                    self._opened_at = self._clock.monotonic()
                    self._open_until = self._opened_at + self._pause

    def stats(self) -> dict[str, Any]:
        """Return the state, the failures in a row, how often it opened, why, and the seconds until the next probe."""
        return {
            "state": self.state,
            "failures": self._failures,
            "opened": self._opened,
            "reason": self._reason or None,
            "retry_in": round(self._left, 3),
        }
