"""The setup that is examined: the settings, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Final

from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.metrics.base import Metric
from rageval_hooks.models import Models, Role
from rageval_hooks.models.sources import missing_files, on_this_machine
from rageval_hooks.online.build import resolve_metrics
from rageval_hooks.settings import Settings

__all__ = ["Options", "Setup"]

_LIBRARIES: Final[Mapping[Role, str]] = {
    "embedder": "sentence_transformers",
    "cross_encoder": "sentence_transformers",
    "nlp": "spacy",
    "hhem": "transformers",
    "grounding": "transformers",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the command.

    Attributes:
        given: settings by name, as text.
        asks_judge: True to send the judge a request.
        sends: True to send a marked trace and score.
        loads_models: True to load the models that are on this machine.
        seconds: how long each server may take.
    """

    given: Mapping[str, str]
    asks_judge: bool = True
    sends: bool = True
    loads_models: bool = False
    seconds: float = 10.0


class Setup:
    """Settings that are valid one by one, and what follows from them.

    Args:
        settings: the settings.
        options: the options of the command.
    """

    def __init__(self, settings: Settings, options: Options) -> None:
        self.settings = settings
        self.options = options

    @cached_property
    def metrics(self) -> list[Metric]:
        """The metrics that run.

        Raises:
            ConfigurationError: a metric is unknown or contradicts another setting.
        """
        # The real judge may be impossible to make, for example without its key; which metrics it would run is known.
        judge = None if self.settings.judge is None else FakeJudge()
        return resolve_metrics(self.settings.metrics, judge, self.settings)

    @cached_property
    def missing_models(self) -> dict[Role, str]:
        """Why models that the metrics need cannot be loaded from this machine, by role."""
        models = Models(self.settings.models)
        needed = models.needed(role for metric in self.metrics for role in metric.models)
        reasons = {role: self._why_missing(role) for role in sorted(needed)}
        return {role: reason for role, reason in reasons.items() if reason}

    def metrics_with(self, role: Role) -> list[str]:
        """Return the names of the metrics that need a model."""
        models = Models(self.settings.models)
        return [metric.name for metric in self.metrics if role in models.needed(metric.models)]

    def _why_missing(self, role: Role) -> str:
        name = getattr(self.settings.models, role)
        if Models(self.settings.models).state(role) == "ready":  # a lexical stand-in needs no files
            return ""
        if find_spec(_LIBRARIES[role]) is None:
            return f"the package {_LIBRARIES[role]} is not installed"
        if not on_this_machine(role, name):
            return f"{name} is not on this machine"
        missing = missing_files(role, name)
        return f"{name} lacks {' and '.join(missing)}" if missing else ""
