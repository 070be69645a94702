"""Random numbers of our own, and the ids of spans that are drawn from them.

Python's shared generator belongs to the application: drawing from it would change the numbers that an experiment with
``random.seed(…)`` goes by, and two processes with the same seed would give their traces the same ids.
"""

from __future__ import annotations

import os
import random

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator

__all__ = ["RANDOM", "RandomIds", "ids_like"]

RANDOM = random.Random()  # noqa: S311 - spreads retries and names spans, protects nothing
"""Ours alone, and another one in each forked process. Safe to draw from in any thread."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RANDOM.seed)


class RandomIds(RandomIdGenerator):
    """OpenTelemetry's random ids, drawn from :data:`RANDOM`."""

    def generate_trace_id(self) -> int:
        """Return 128 random bits, never all 0."""
        return RANDOM.getrandbits(128) or self.generate_trace_id()

    def generate_span_id(self) -> int:
        """Return 64 random bits, never all 0."""
        return RANDOM.getrandbits(64) or self.generate_span_id()


def ids_like(ids: object) -> IdGenerator:
    """Return the generator to use where a provider has ``ids``: its own, unless that is OpenTelemetry's default."""
    return ids if isinstance(ids, IdGenerator) and type(ids) is not RandomIdGenerator else RandomIds()
