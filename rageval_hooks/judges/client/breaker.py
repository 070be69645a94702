"""A circuit breaker: when a judge does not work, it is left alone for a while, and calls fail at once."""

from __future__ import annotations

from typing import Any, Literal

from rageval_hooks.errors import JudgeUnavailableError
from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.executors import ForkSafeLock

__all__ = ["CircuitBreaker", "Permit"]

CircuitState = Literal["closed", "open", "half_open"]

_PROBE_LEASE = 600.0
"""Seconds after which a probe that nobody ended (lost in a fork, say) no longer keeps the others out."""


class CircuitBreaker:
    """Closed: requests go through. Open: none does. Half open, after a while: one goes through, and decides.

    Safe to use from any thread.

    Args:
        failures: requests in a row that must fail to open the circuit.
        cooldown: seconds that it stays open the first time; twice as long after each probe that fails.
        longest: seconds that it stays open at most.
        clock: tells the time.
    """

    def __init__(self, failures: int, cooldown: float, clock: Clock, longest: float = 600.0) -> None:
        self._limit = failures
        self._cooldown = cooldown
        self._longest = max(longest, cooldown)
        self._clock = clock
        self._lock = ForkSafeLock()
        self._failures = 0
        self._opened = 0
        self._probes_failed = 0
        self._open_until: float | None = None
        self._probe_until = 0.0
        self._generation = 0
        self._reason = ""

    @property
    def state(self) -> CircuitState:
        """Where it stands."""
        if self._open_until is None:
            return "closed"
        return "open" if self._clock.monotonic() < self._open_until else "half_open"

    def check(self) -> None:
        """Do nothing while a request may go through.

        Raises:
            JudgeUnavailableError: the circuit is open, or half open with a probe under way.
        """
        with self._lock:
            self._check(self._clock.monotonic())

    def enter(self) -> Permit:
        """Let one request through; its outcome must be told to the permit.

        Raises:
            JudgeUnavailableError: the circuit is open, or half open with a probe under way.
        """
        with self._lock:
            now = self._clock.monotonic()
            self._check(now)
            if self._open_until is not None:
                self._probe_until = now + _PROBE_LEASE
            return Permit(self, self._generation)

    def stats(self) -> dict[str, Any]:
        """Return state, failures in a row, how often it opened, why, and the seconds until the next probe."""
        left = 0.0 if self._open_until is None else max(0.0, self._open_until - self._clock.monotonic())
        return {
            "state": self.state,
            "failures": self._failures,
            "opened": self._opened,
            "reason": self._reason or None,
            "retry_in": round(left, 3),
        }

    def _check(self, now: float) -> None:
        if self._open_until is None:
            return
        if now < self._open_until:
            wait = f"for another {self._open_until - now:.0f} s"
        elif now < self._probe_until:
            wait = "while one request tries"
        else:
            return
        raise JudgeUnavailableError(
            f"not asked {wait}: the circuit is open after {self._failures} failures in a row, the last: {self._reason}",
            circuit="open",
        )

    def _succeeded(self, generation: int) -> None:
        with self._lock:
            if generation != self._generation:
                return
            self._failures = self._probes_failed = 0
            self._reason = ""
            if self._open_until is not None:
                self._open_until = None
                self._generation += 1

    def _failed(self, generation: int, reason: str) -> None:
        with self._lock:
            if generation != self._generation:  # began before the circuit opened: nothing new
                return
            self._failures += 1
            self._reason = reason
            probe = self._open_until is not None
            if probe or self._failures >= self._limit:
                self._probes_failed = self._probes_failed + 1 if probe else 0
                pause = min(self._longest, self._cooldown * 2.0 ** min(self._probes_failed, 30))
                self._open_until = self._clock.monotonic() + pause
                self._opened += 1
                self._generation += 1
                self._probe_until = 0.0

    def _left(self, generation: int) -> None:
        with self._lock:
            if generation == self._generation:
                self._probe_until = 0.0


class Permit:
    """One request that the breaker let through. A context manager: without a verdict at its end, nothing was learned.

    Args:
        breaker: who gave it.
        generation: of the breaker's state; a verdict on an older state does not count.
    """

    def __init__(self, breaker: CircuitBreaker, generation: int) -> None:
        self._breaker = breaker
        self._generation = generation

    def succeeded(self) -> None:
        """Say that the judge works."""
        self._breaker._succeeded(self._generation)

    def failed(self, reason: str) -> None:
        """Say that it does not, and why."""
        self._breaker._failed(self._generation, reason)

    def __enter__(self) -> Permit:
        """Return the permit itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the next one probe, if this one found nothing out."""
        self._breaker._left(self._generation)
