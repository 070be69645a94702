"""The online path: from a captured turn to its exported evaluation."""

from rageval_hooks.online.dispatch import Dispatcher
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job, MetricSpec
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext

__all__ = ["Dispatcher", "Engine", "Job", "MetricSpec", "Pipeline", "TurnContext"]
