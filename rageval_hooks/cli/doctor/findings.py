"""What a check of ``doctor`` gets, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal

from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.metrics.base import Metric
from rageval_hooks.models import Models, Role
from rageval_hooks.models.onnx import onnx_is_wanted
from rageval_hooks.models.sources import missing_files, on_this_machine
from rageval_hooks.online.build import resolve_metrics
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.settings import Settings

_LIBRARIES: Final[Mapping[Role, str]] = {
    "embedder": "sentence_transformers",
    "cross_encoder": "sentence_transformers",
    "nlp": "spacy",
    "hhem": "transformers",
    "grounding": "transformers",
}


@dataclass(frozen=True)
class DoctorFinding:
    """What a check found.

    Attributes:
        status: a problem needs an action, a warning may be meant, a note only informs.
        message: what was found, in one sentence, without secrets.
        advice: what to do; always given for a problem.
    """

    status: Literal["ok", "note", "warning", "problem"]
    message: str
    advice: str = ""


def ok(message: str) -> DoctorFinding:
    """Return a finding for something that works."""
    return DoctorFinding("ok", message)


def note(message: str) -> DoctorFinding:
    """Return a finding that only informs."""
    return DoctorFinding("note", message)


def warning(message: str, advice: str) -> DoctorFinding:
    """Return a finding that may be a mistake."""
    return DoctorFinding("warning", message, advice)


def problem(message: str, advice: str) -> DoctorFinding:
    """Return a finding that needs an action."""
    return DoctorFinding("problem", message, advice)


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
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

    def __init__(self, settings: Settings, options: DoctorOptions) -> None:
        self.settings = settings
        self.options = options
        self.models = Models(settings.models)

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
        missing: dict[Role, str] = {}
        for role in sorted(self.models.needed(role for metric in self.metrics for role in metric.models)):
            name = getattr(self.settings.models, role)
            if self.models.state(role) == "ready":  # a lexical stand-in needs no files
                continue
            # ONNX Runtime computes the others, and PyTorch only where it is not installed.
            needs_library = role in ("nlp", "hhem") or not onnx_is_wanted(self.settings.models)
            if needs_library and find_spec(_LIBRARIES[role]) is None:
                missing[role] = f"the package {_LIBRARIES[role]} is not installed"
            elif not on_this_machine(role, name):
                missing[role] = f"{name} is not on this machine"
            elif files := missing_files(role, name):
                missing[role] = f"{name} lacks {' and '.join(files)}"
        return missing

    def can_run(self, metric: Metric) -> bool:
        """Return True if no model that a metric needs is missing; without one it is skipped in every turn."""
        return self.missing_models.keys().isdisjoint(self.models.needed(metric.models))

    def metrics_with(self, role: Role) -> str:
        """Return the names of the metrics that need a model."""
        return ", ".join(metric.name for metric in self.metrics if role in self.models.needed(metric.models))
