"""A circuit breaker: after several failures in a row, calls fail at once for a while."""

from __future__ import annotations

from typing import Any, Literal

from rageval_hooks.errors import JudgeUnavailableError
from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.executors import ForkSafeLock

__all__ = ["CircuitBreaker", "Permit"]

CircuitState = Literal["closed", "open", "half_open"]

_PROBE_LEASE = 600.0
"""Seconds after which a probe without an outcome no longer blocks the next one. A fork can lose a probe."""


class CircuitBreaker:
    """Closed: requests pass. Open: none passes. Half open, after a while: one probe passes, and its outcome decides.

    Thread-safe.

    Args:
        failures: number of failures in a row that opens the circuit.
        cooldown: seconds that it stays open the first time. Doubled after each failed probe.
        longest: the longest time that it stays open, in seconds.
        clock: the time.
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
        # Increased with each change of state. An outcome of an older generation is ignored.
        self._generation = 0
        self._reason = ""

    @property
    def state(self) -> CircuitState:
        """``closed``, ``open`` or ``half_open``."""
        if self._open_until is None:
            return "closed"
        return "open" if self._clock.monotonic() < self._open_until else "half_open"

    def check(self) -> None:
        """Raise if no request may pass now.

        Raises:
            JudgeUnavailableError: the circuit is open, or half open with a probe under way.
        """
        with self._lock:
            self._check(self._clock.monotonic())

    def enter(self) -> Permit:
        """Let one request pass. The caller reports the outcome to the permit.

        Raises:
            JudgeUnavailableError: the circuit is open, or half open with a probe under way.
        """
        with self._lock:
            now = self._clock.monotonic()
            self._check(now)
            if self._open_until is not None:
                # A lease and not a flag: a probe whose task was killed must not block the judge for ever.
                self._probe_until = now + _PROBE_LEASE
            return Permit(self, self._generation)

    def stats(self) -> dict[str, Any]:
        """Return the state, the failures in a row, how often it opened, why, and the seconds until the next probe."""
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
            wait = f"next attempt in {self._open_until - now:.0f} s"
        elif now < self._probe_until:
            wait = "a probe is under way"
        else:
            return
        raise JudgeUnavailableError(
            f"no request sent ({wait}): the circuit is open after {self._failures} failures in a row, "
            f"the last: {self._reason}",
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
            # A request that started before the circuit opened says nothing about its state now.
            if generation != self._generation:
                return
            self._failures += 1
            self._reason = reason
            probe = self._open_until is not None
            if probe or self._failures >= self._limit:
                self._probes_failed = self._probes_failed + 1 if probe else 0
                # The exponent is bounded: 2.0 ** 2000 overflows.
                pause = min(self._longest, self._cooldown * 2.0 ** min(self._probes_failed, 30))
                self._open_until = self._clock.monotonic() + pause
                self._opened += 1
                self._generation += 1
                self._probe_until = 0.0

    def _left(self, generation: int) -> None:
        with self._lock:
            # A probe that was cancelled says nothing about the server.
            if generation == self._generation:
                self._probe_until = 0.0


class Permit:
    """One request that the breaker let pass, as a context manager. Without an outcome, the state does not change.

    Args:
        breaker: the breaker that issued it.
        generation: the generation of the breaker's state. Outcomes for an older state do not count.
    """

    def __init__(self, breaker: CircuitBreaker, generation: int) -> None:
        self._breaker = breaker
        self._generation = generation

    def succeeded(self) -> None:
        """Report that the judge works."""
        self._breaker._succeeded(self._generation)

    def failed(self, reason: str) -> None:
        """Report that the judge does not work, and why."""
        self._breaker._failed(self._generation, reason)

    def __enter__(self) -> Permit:
        """Return the permit itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Allow the next probe if this one had no outcome."""
        self._breaker._left(self._generation)
