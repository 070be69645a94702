"""Who is evaluated, and with which probability. Decided from the trace id alone, so alike in every process."""

from __future__ import annotations

from hashlib import blake2b

from rageval_hooks.errors import ConfigurationError

__all__ = ["TraceSampler", "trace_fraction"]

_SCALE = 2.0**-64


def trace_fraction(trace_id: int) -> float:
    """Map a trace id to a number that is uniform in [0, 1).

    The id is hashed: samplers of OpenTelemetry decide by the id's own low bits, some keep the low and some the high
    values, and a decision by the same bits would be correlated with theirs, or exclude all that they keep.
    """
    digest = blake2b(trace_id.to_bytes(16, "big"), digest_size=8, person=b"rageval-hooks").digest()
    return int.from_bytes(digest, "big") * _SCALE


class TraceSampler:
    """Keeps a share of the traces.

    What a sampler of a lower rate keeps, one of a higher rate keeps too.

    Args:
        rate: the share, and so the probability with which a trace is kept, 0..1.
    """

    def __init__(self, rate: float) -> None:
        if not 0 <= rate <= 1:
            raise ConfigurationError(f"a sampling rate lies within 0..1, and {rate!r} does not")
        self.rate = rate

    def keeps(self, trace_id: int) -> bool:
        """Return whether this trace is kept."""
        rate = self.rate
        if rate >= 1:
            return True
        return rate > 0 and trace_fraction(trace_id) < rate
