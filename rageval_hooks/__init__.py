"""Evaluate every RAG answer, in the application's own traces.

    import rageval_hooks

    rageval_hooks.instrument()

See :func:`instrument` for the settings, and the README for the rest.
"""

from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import (
    ConfigurationError,
    JudgeError,
    MissingDependencyError,
    ModelUnavailableError,
    RagevalError,
    TurnError,
    UnknownNameError,
)
from rageval_hooks.evaluation import ascore_dataset, evaluate, evaluate_conversation, score_dataset
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.instrumentation import Instrumentation, instrument
from rageval_hooks.integrations.manual import start_turn
from rageval_hooks.judges.base import Judge, Judgement
from rageval_hooks.metrics import JudgeMetric, LocalMetric, Metric, ScoreDefinition, metric
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped, Target
from rageval_hooks.turn import (
    ErrorInfo,
    Message,
    Passage,
    SpanReference,
    Step,
    Timing,
    Turn,
    Usage,
)
from rageval_hooks.version import __version__

if TYPE_CHECKING:
    from rageval_hooks.guard import AnswerBlockedError, GroundingGuard, GuardDecision

__all__ = [
    "AnswerBlockedError",
    "ConfigurationError",
    "ErrorInfo",
    "Evaluation",
    "Exporter",
    "Failed",
    "GroundingGuard",
    "GuardDecision",
    "Instrumentation",
    "Judge",
    "JudgeError",
    "JudgeMetric",
    "Judgement",
    "LocalMetric",
    "Message",
    "Metric",
    "MissingDependencyError",
    "ModelUnavailableError",
    "Passage",
    "RagevalError",
    "Result",
    "Score",
    "ScoreDefinition",
    "Skipped",
    "SpanReference",
    "Step",
    "Target",
    "Timing",
    "Turn",
    "TurnError",
    "UnknownNameError",
    "Usage",
    "__version__",
    "ascore_dataset",
    "evaluate",
    "evaluate_conversation",
    "instrument",
    "metric",
    "score_dataset",
    "start_turn",
]

_GUARD = frozenset({"AnswerBlockedError", "GroundingGuard", "GuardDecision"})


def __getattr__(name: str) -> Any:
    """Import the guard when it is first used: where LangChain is installed, it imports that."""
    if name not in _GUARD:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rageval_hooks import guard

    return getattr(guard, name)
