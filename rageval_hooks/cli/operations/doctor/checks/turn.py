"""What would happen to a turn: whether it is evaluated, by which metrics and when, and what leaves the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rageval_hooks.cli.operations.doctor.base import Check, Finding, note, warning
from rageval_hooks.cli.operations.doctor.setup import Setup
from rageval_hooks.exporters.base import AUTOMATIC
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.metrics.base import Metric
from rageval_hooks.models import Models
from rageval_hooks.online.sampling import MetricSampler
from rageval_hooks.settings import Settings

__all__ = ["TurnCheck"]


class TurnCheck(Check):
    """Follows a turn through the settings."""

    name: ClassVar[str] = "a turn"
    order: ClassVar[int] = 70

    def run(self, setup: Setup) -> Iterator[Finding]:
        """Yield one line per step."""
        settings = setup.settings
        if not settings.enabled:
            yield note("nothing happens: enabled is false")
            return
        yield note(_sampling(settings))
        yield from _metrics(setup)
        yield note(f"goes to: {_destinations(settings)}")
        yield note(_redaction(settings))
        yield note(_content(settings))


def _destinations(settings: Settings) -> str:
    names = ["the API of the backend that gets the spans" if name == AUTOMATIC else name for name in settings.exporters]
    return ", ".join(names) or "nowhere"


def _sampling(settings: Settings) -> str:
    unsampled = "also" if settings.evaluate_unsampled else "not"
    return f"{_share_of_turns(settings)}; {unsampled} in traces that are not recorded"


def _share_of_turns(settings: Settings) -> str:
    rate = settings.sample_rate
    if rate == 1:
        return "every turn is evaluated"
    share = f"{rate:.4g} of turns are evaluated"
    # Without turns, nothing is chosen.
    if rate == 0:
        return share
    chosen_by = "the trace id and the salt" if settings.sampling_salt else "the trace id"
    return f"{share}, chosen by {chosen_by}"


def _metrics(setup: Setup) -> Iterator[Finding]:
    models = Models(setup.settings.models)
    missing = setup.missing_models
    # A metric without its model is skipped in every turn.
    running = [metric for metric in setup.metrics if not models.needed(metric.models) & missing.keys()]
    yield from _local([metric.name for metric in running if not metric.asks_judge], setup.settings)
    yield from _judged([metric for metric in running if metric.asks_judge], setup)
    for role, reason in missing.items():
        names = ", ".join(setup.metrics_with(role))
        yield warning(f"skipped, because {reason}: {names}", "see models above; each trace has the reason, too")


def _local(names: list[str], settings: Settings) -> Iterator[Finding]:
    if not names:
        return
    if settings.inline_budget_ms > 0:
        yield note(f"inline, within {settings.inline_budget_ms:g} ms, the rest later: {', '.join(names)}")
    else:
        yield note(f"late, because inline_budget_ms is 0: {', '.join(names)}")


def _judged(metrics: list[Metric], setup: Setup) -> Iterator[Finding]:
    if metrics:
        yield note(f"judged later, {_dispatch(setup.settings)}: {', '.join(_with_rates(metrics, setup))}")


def _dispatch(settings: Settings) -> str:
    if settings.dispatch == "spool":
        return f"from the file {settings.spool_path}"
    return "from this process's memory"


def _with_rates(metrics: list[Metric], setup: Setup) -> Iterator[str]:
    rates = MetricSampler(setup.metrics, setup.settings).probabilities
    for metric in metrics:
        rate = rates[metric.name]
        yield metric.name if rate == 1 else f"{metric.name} ({rate:.4g} of turns)"


def _redaction(settings: Settings) -> str:
    metadata = settings.metadata_allow is not None or settings.metadata_deny
    parts = [
        "redaction is on" if settings.redact else "redaction is off",
        "metadata is filtered" if metadata else "all metadata leaves",
        "user and session ids are hashed" if settings.id_salt else "user and session ids are sent unchanged",
    ]
    return "; ".join(parts)


def _content(settings: Settings) -> str:
    policy = ContentPolicy.build(settings.capture_content)
    if policy.everything:
        return "questions, passages and answers are on spans and in exports"
    hidden = [name.replace("_", " ") for name, shown in policy.model_dump().items() if not shown]
    return f"not on spans or in exports: {', '.join(hidden)}; scores are"
