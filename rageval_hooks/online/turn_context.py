"""The trace context of a new turn, and whether it is captured: sampling. The trace id decides: all processes agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING

from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON, Decision, Sampler
from opentelemetry.trace import TracerProvider

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.job import OTHER_VERDICT, Job
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.tracing import ids_like, sdk_provider
from rageval_hooks.score import VERDICT, Result
from rageval_hooks.settings import Settings
from rageval_hooks.turn import SpanReference

if TYPE_CHECKING:
    from rageval_hooks.online.preparation import Preparation


_SCALE = 2.0**-64

# In seconds.
_HOUR = 3600.0
_SPREAD = 3300.0
"""The turns that an hour lacks after this time are judged for certain: traffic varies."""


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


def is_kept(trace_id: int, rate: float, salt: str = "") -> bool:
    """Return True if a trace is sampled. What a lower rate keeps, a higher one keeps, too.

    Args:
        trace_id: the trace.
        rate: the share, and the probability with which a trace is kept, 0..1.
        salt: a secret, so that a client cannot choose a trace id that is kept; ``""`` for none.
    """
    # Most applications evaluate every turn: no hash for them.
    return rate >= 1 or (rate > 0 and trace_fraction(trace_id, salt) < rate)


def _salt_of(settings: Settings) -> str:
    return "" if settings.sampling_salt is None else settings.sampling_salt.get_secret_value()


class _HourlyFloor:
    """Spreads a least number of judged turns over each hour of this process.

    Threads may count at the same time and lose a turn: the share is a bit off then, and known all the same.

    Args:
        turns: how many to judge in an hour, if there are as many.
        clock: seconds.
    """

    def __init__(self, turns: int, clock: Callable[[], float]) -> None:
        self._least = turns
        self._clock = clock
        self._began = clock()
        self._turns = self._judged = self._before = 0
        self._seconds_before = 0.0

    def share(self) -> float:
        """Count a turn, and return the share of turns to judge from now on, 0..1."""
        elapsed = self._clock() - self._began
        if elapsed >= _HOUR:
            is_next = elapsed < 2 * _HOUR
            self._before, self._seconds_before = (self._turns, _HOUR) if is_next else (0, 0.0)
            self._began += elapsed - elapsed % _HOUR
            self._turns, self._judged, elapsed = 0, 0, elapsed % _HOUR
        seen, seconds = self._before + self._turns, self._seconds_before + elapsed
        self._turns += 1
        expected = 1 + (seen * max(0.0, _SPREAD - elapsed) / seconds if seconds else 0.0)
        return min(1.0, max(0, self._least - self._judged) / expected)

    def count(self) -> None:
        """Count a judged turn."""
        self._judged += 1


class MetricSampler:
    """Chooses the metrics that run for a turn: some have a lower rate than the turns.

    Judge metrics are chosen last, since their rate may depend on the turn's local verdict.

    Args:
        metrics: the metrics that may run.
        settings: the sampling rates.
        clock: seconds.

    Attributes:
        probabilities: by metric name, with which probability a turn is selected for the metric.

    Raises:
        ConfigurationError: a rate is higher than that of the turns, or is for a metric or a verdict that does not run.
    """

    def __init__(
        self, metrics: Iterable[Metric], settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        metrics = tuple(metrics)
        self._names = tuple(metric.name for metric in metrics)
        self._salt = _salt_of(settings)
        self._share = settings.sample_rate
        given = settings.judge_sample_rate
        by_verdict: Mapping[str, float] = {str(label): rate for label, rate in settings.judge_sample_by_verdict.items()}
        own = given if isinstance(given, dict) else {}
        # A single rate is for judges, because they cost money; local metrics keep the rate of the turns.
        self._judged = {metric.name for metric in metrics if metric.asks_judge}
        self._by_verdict = self._judged - own.keys()
        single = max(by_verdict.values(), default=None) if given is None or isinstance(given, dict) else given
        self._rates: dict[str, dict[str, float]] = {name: {OTHER_VERDICT: rate} for name, rate in own.items()}
        if single is not None:
            self._rates |= {name: {**by_verdict, OTHER_VERDICT: single} for name in self._by_verdict}
        for name, rate in ((name, max(rates.values())) for name, rates in self._rates.items()):
            if name not in self._names:
                raise UnknownNameError("metric in judge_sample_rate", name, self._names, "These metrics run.")
            # A metric runs only for turns that were captured, so a higher rate could not be reached.
            if rate > self._share:
                which = "judge_sample_by_verdict" if by_verdict and name not in own else "judge_sample_rate"
                raise ConfigurationError(
                    f"{which} ({name}: {rate:g}) is higher than sample_rate ({self._share:g}): "
                    "judged turns are a part of the evaluated turns"
                )
        if by_verdict and self._by_verdict and VERDICT not in self._names:
            raise ConfigurationError(
                f"judge_sample_by_verdict needs the local verdict: add {VERDICT!r} to metrics, or omit it"
            )
        least = settings.judge_sample_floor
        self._floor = _HourlyFloor(least, clock) if least else None
        # A rate of 0 selects no turn, so that any probability will do.
        self.probabilities = {
            name: (self._rates[name][OTHER_VERDICT] if name in self._rates else self._share) or 1.0
            for name in self._names
        }

    def names(self, trace_id: int | None) -> tuple[str, ...]:
        """Return the names of a turn's metrics; all for a turn without a trace. Judge metrics are chosen later."""
        # A metric without a rate runs for every turn that is evaluated.
        local = self._rates.keys() - self._judged
        if trace_id is None or not local:
            return self._names
        return tuple(
            name
            for name in self._names
            if name not in local or is_kept(trace_id, self._rates[name][OTHER_VERDICT], self._salt)
        )

    def choose(self, rest: Job, trace_id: int | None, results: Iterable[Result]) -> Job | None:
        """Return what is left of a turn's metrics with the judge metrics that were chosen; None without any.

        A decision by verdict stays open as long as the verdict is not known.

        Args:
            rest: the metrics that are left.
            trace_id: of the turn; None to choose all.
            results: what is known of the turn.
        """
        sampled = self._judged & self._rates.keys() & set(rest.names)
        if trace_id is None or not sampled:
            return rest
        # By the turns so far alone: the probability is known before the decision.
        least = self._floor.share() * self._share if self._floor else 0.0
        specs = []
        for spec in rest.metrics:
            if spec.name in sampled:
                rates = self._rates[spec.name]
                if spec.name in self._by_verdict:
                    rates = {label: max(rate, least) for label, rate in rates.items()}
                draw = trace_fraction(trace_id, self._salt)
                spec = spec.model_copy(update={"rates": rates, "draw": draw})
            specs.append(spec)
        rest = rest.model_copy(update={"metrics": tuple(specs)}).decided(results)
        if self._floor and any(spec.name in sampled & self._by_verdict and spec.is_chosen for spec in rest.metrics):
            self._floor.count()
        return rest if rest.metrics else None


@dataclass(slots=True, eq=False, kw_only=True)
class TurnContext:
    """The trace context of a new turn, and whether the turn is captured.

    Attributes:
        context: the OpenTelemetry context in which the turn began.
        trace_id: of the application's trace, or a new one.
        span_id: for the turn's own span.
        parent_span_id: of the application's current span; 0 without one.
        flags: the trace flags.
        selected: False if the turn was sampled out.
        probability: with which turns like this one are selected.
        preparations: background work on the turn's passages; a turn may have several retrievers.
        caller_waits: True if another tracer's span is to have the scores. It ends when the caller's call returns.
    """

    context: Context
    trace_id: int
    span_id: int
    parent_span_id: int
    flags: int
    selected: bool
    probability: float
    preparations: list[Preparation] = field(default_factory=list)
    caller_waits: bool = False

    def span_reference(self) -> SpanReference:
        """Return the turn's own span, to which its scores belong."""
        # An empty context has no span, and looking for one takes a while.
        parent = trace.get_current_span(self.context).get_span_context() if self.context else None
        # Baggage may hold any object, and a reference goes to other processes as JSON.
        texts = {name: value for name, value in baggage.get_all(self.context).items() if isinstance(value, str)}
        reference = SpanReference(
            trace_id=f"{self.trace_id:032x}",
            span_id=f"{self.span_id:016x}",
            flags=self.flags,
            parent_span_id=f"{self.parent_span_id:016x}" if self.parent_span_id else None,
            parent_is_remote=parent is not None and parent.is_remote,
            trace_state=(parent.trace_state.to_header() or None) if parent is not None else None,
            baggage=texts,
        )
        return reference.within(self.context)


class TurnSelector:
    """Decides for each new turn, before any work, whether it is captured.

    Args:
        settings: sampling rate and switches.
        tracer_provider: whose ids new traces get; None for the application's global one.
        counters: count the turns that are sampled out.
    """

    def __init__(self, settings: Settings, tracer_provider: TracerProvider | None, counters: Counters) -> None:
        self._settings = settings
        self._salt = _salt_of(settings)
        self._given_provider = tracer_provider
        self._counters = counters
        self._provider: TracerProvider | None = None

    def begin(self, context: Context, *, enabled: bool, selected: bool | None = None) -> TurnContext:
        """Return the context of a turn that begins now.

        Args:
            context: the current OpenTelemetry context.
            enabled: False to select no turn.
            selected: the decision for the first half of a turn that is resumed; None to decide.
        """
        provider = self._given_provider or trace.get_tracer_provider()
        # The application may set its provider after the first turns.
        if provider is not self._provider:
            self._look_at(provider)
        parent = trace.get_current_span(context).get_span_context() if context else None
        if parent is not None and parent.is_valid:
            trace_id, parent_span_id = parent.trace_id, parent.span_id
            flags, sampled = int(parent.trace_flags), parent.trace_flags.sampled
        else:
            # The turn begins a trace. The application's sampler decides, as for any other root span.
            trace_id, parent_span_id, sampled = self._ids.generate_trace_id(), 0, True
            if self._sampler is not None:
                decision = self._sampler.should_sample(context, trace_id, "rag").decision
                sampled = decision is Decision.RECORD_AND_SAMPLE
            flags = int(sampled)
        # Decided before any work, so that a turn that is sampled out costs almost nothing.
        rate = self._settings.sample_rate
        if enabled and selected is None:
            selected = True
            if not sampled and not self._settings.evaluate_unsampled:
                selected = False
                self._counters.exclude_turn("unsampled_traces")
            elif not is_kept(trace_id, rate, self._salt):
                selected = False
                self._counters.exclude_turn("sampled_out")
        selected = bool(enabled and selected)
        span_id = 0
        if selected:
            EXIT_DRAIN.run_before(provider)
            span_id = self._ids.generate_span_id()
        return TurnContext(
            context=context,
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=parent_span_id,
            flags=flags,
            selected=selected,
            probability=rate,
        )

    def _look_at(self, provider: TracerProvider) -> None:
        """Keep the parts of a tracer provider that a new turn needs."""
        sdk = sdk_provider(provider)
        self._ids = ids_like(getattr(sdk, "id_generator", None))
        sampler = getattr(sdk, "sampler", None)
        # These two keep every trace without a parent, and asking them would cost a call per turn.
        is_asked = isinstance(sampler, Sampler) and sampler is not ALWAYS_ON and sampler is not DEFAULT_ON
        self._sampler = sampler if is_asked else None
        self._provider = provider
