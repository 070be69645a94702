"""A random number generator that the application does not share, and span ids drawn from it.

Python's shared generator belongs to the application. Drawing from it would change the numbers of an experiment that
uses ``random.seed(…)``, and two processes with the same seed would give their traces the same ids.
"""

from __future__ import annotations

import random

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator

from rageval_hooks.runtime.fork import run_in_child

__all__ = ["RANDOM", "RandomIds", "ids_like"]

RANDOM = random.Random()  # noqa: S311 - spreads retries and names spans, protects nothing
"""Not shared with the application, and seeded again in each forked process. Safe to use from any thread."""

run_in_child(RANDOM.seed)


class RandomIds(RandomIdGenerator):
    """OpenTelemetry's random ids, drawn from :data:`RANDOM`."""

    def generate_trace_id(self) -> int:
        """Return 128 random bits, never all 0."""
        return RANDOM.getrandbits(128) or self.generate_trace_id()

    def generate_span_id(self) -> int:
        """Return 64 random bits, never all 0."""
        return RANDOM.getrandbits(64) or self.generate_span_id()


def ids_like(ids: object) -> IdGenerator:
    """Return a provider's own id generator; ours if the provider has OpenTelemetry's default."""
    # A custom generator may follow rules of a backend, for example AWS X-Ray's time-based ids.
    return ids if isinstance(ids, IdGenerator) and type(ids) is not RandomIdGenerator else RandomIds()
