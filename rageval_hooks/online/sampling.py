"""Sampling: which turns are evaluated, and by which metrics. The trace id decides, so every process agrees."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b, sha256

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.settings import Settings

_SCALE = 2.0**-64


def trace_fraction(trace_id: int, salt: str = "") -> float:
    """Map a trace id to a number that is uniform in [0, 1).

    The id is hashed. OpenTelemetry's samplers decide by the id's own low bits; a decision by the same bits would be
    correlated with theirs, or exclude every trace that they keep. Without a secret salt, everybody can compute the
    number of an id.
    """
    # A key has at most 64 bytes; the hash of a longer one is as secret.
    key = sha256(salt.encode()).digest() if salt else b""
    digest = blake2b(trace_id.to_bytes(16, "big"), digest_size=8, person=b"rageval-hooks", key=key).digest()
    return int.from_bytes(digest, "big") * _SCALE


class TraceSampler:
    """Keeps a share of the traces. A sampler with a higher rate keeps every trace that one with a lower rate keeps.

    Args:
        rate: the share, and the probability with which a trace is kept, 0..1.
        salt: a secret, so that a client cannot choose a trace id that is kept; ``""`` for none.
    """

    def __init__(self, rate: float, salt: str = "") -> None:
        if not 0 <= rate <= 1:
            raise ConfigurationError(f"a sampling rate must be within 0..1, not {rate!r}")
        self.rate = rate
        self._salt = salt

    @classmethod
    def of(cls, rate: float, settings: Settings) -> TraceSampler:
        """Return the sampler with a rate and the salt of the settings."""
        return cls(rate, "" if settings.sampling_salt is None else settings.sampling_salt.get_secret_value())

    def keeps(self, trace_id: int) -> bool:
        """Return True if this trace is kept."""
        # Most applications evaluate every turn: no hash for them.
        rate = self.rate
        if rate >= 1:
            return True
        return rate > 0 and trace_fraction(trace_id, self._salt) < rate


class MetricSampler:
    """Chooses the metrics that run for a turn: some have a lower rate than the turns.

    Args:
        metrics: the metrics that may run.
        settings: the sampling rates.

    Attributes:
        probabilities: by metric name, with which probability a turn is selected for the metric.

    Raises:
        ConfigurationError: a rate is higher than that of the turns, or is for a metric that does not run.
    """

    def __init__(self, metrics: Iterable[Metric], settings: Settings) -> None:
        metrics = tuple(metrics)
        self._names = tuple(metric.name for metric in metrics)
        given = settings.judge_sample_rate
        # A single rate is for judges, because they cost money; local metrics keep the rate of the turns.
        judged = [metric.name for metric in metrics if metric.asks_judge]
        rates = given if isinstance(given, dict) else dict.fromkeys(judged, given)
        self.probabilities = dict.fromkeys(self._names, settings.sample_rate or 1.0)
        self._samplers: dict[str, TraceSampler] = {}
        for name, rate in rates.items():
            if rate is None:
                continue
            if name not in self._names:
                raise UnknownNameError("metric in judge_sample_rate", name, self._names, "These metrics run.")
            # A metric runs only for turns that were captured, so a higher rate could not be reached.
            if rate > settings.sample_rate:
                raise ConfigurationError(
                    f"judge_sample_rate ({name}: {rate:g}) is higher than sample_rate ({settings.sample_rate:g}): "
                    "judged turns are a part of the evaluated turns"
                )
            self._samplers[name] = TraceSampler.of(rate, settings)
            self.probabilities[name] = rate or 1.0

    def names(self, trace_id: int | None) -> tuple[str, ...]:
        """Return the names of the metrics that run for a turn; all for a turn without a trace."""
        if trace_id is None:
            return self._names
        # A metric without a rate runs for every turn that is evaluated.
        dropped = {name for name, sampler in self._samplers.items() if not sampler.keeps(trace_id)}
        return tuple(name for name in self._names if name not in dropped)
