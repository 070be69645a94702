"""What a check of ``doctor`` gets, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
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


ok = partial(DoctorFinding, "ok")
note = partial(DoctorFinding, "note")
warning = partial(DoctorFinding, "warning")
problem = partial(DoctorFinding, "problem")


@dataclass(kw_only=True)
class Setup:
    """The options of the command, and settings that are valid one by one.

    Attributes:
        settings: the settings.
        given: the settings that are options, as text.
        asks_judge: True to send the judge a request.
        sends: True to send a marked trace and score.
        loads_models: True to load the models that are on this machine.
        seconds: how long each server may take.
    """

    settings: Settings
    given: Mapping[str, str]
    asks_judge: bool
    sends: bool
    loads_models: bool
    seconds: float

    @cached_property
    def models(self) -> Models:
        """The configured models, none of which is loaded."""
        return Models(self.settings.models)

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
