"""Evaluate every RAG answer, in the application's own traces.

    import rageval_hooks

    rageval_hooks.instrument()

See :func:`instrument` for the settings, and the README for the rest.
"""

from importlib import import_module
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
from rageval_hooks.evaluation import aevaluate, ascore_dataset, evaluate, evaluate_conversation, score_dataset
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.instrumentation import Instrumentation, instrument
from rageval_hooks.integrations.manual import rag_turn, start_turn
from rageval_hooks.judges.base import Judge, Judgement
from rageval_hooks.metrics import JudgeMetric, LocalMetric, Metric, ScoreDefinition, metric
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped, Target
from rageval_hooks.turn import ErrorInfo, Message, Passage, SpanReference, Step, Timing, Turn, Usage
from rageval_hooks.version import __version__

if TYPE_CHECKING:
    from rageval_hooks.guard import AnswerBlockedError, GroundingGuard, GuardDecision
    from rageval_hooks.offline.dataset import ScoreBatches

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
    "ScoreBatches",
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
    "aevaluate",
    "ascore_dataset",
    "evaluate",
    "evaluate_conversation",
    "instrument",
    "metric",
    "rag_turn",
    "score_dataset",
    "start_turn",
]

_LATE = {
    # Where LangChain is installed, the guard imports it.
    "AnswerBlockedError": "rageval_hooks.guard",
    "GroundingGuard": "rageval_hooks.guard",
    "GuardDecision": "rageval_hooks.guard",
    "ScoreBatches": "rageval_hooks.offline.dataset",
}
"""Names that are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
