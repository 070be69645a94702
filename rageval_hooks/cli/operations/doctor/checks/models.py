"""Local models: which metrics can run, and which files are missing. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from rageval_hooks.cli.operations.doctor.base import Check, Finding, note, ok, problem, warning
from rageval_hooks.cli.operations.doctor.setup import Setup
from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models import Models, Role
from rageval_hooks.models.sources import hub_is_offline

__all__ = ["ModelCheck"]


_NO_DOWNLOAD: Final = "no model is downloaded, files on this machine are used"


class ModelCheck(Check):
    """Looks for the models that the metrics need, and loads them on request."""

    name: ClassVar[str] = "models"
    order: ClassVar[int] = 30

    def seconds(self, setup: Setup) -> float:
        """Return the time for loading: PyTorch alone takes ten seconds on a slow machine."""
        return setup.settings.models.load_timeout + 30 if setup.options.loads_models else 60.0

    def run(self, setup: Setup) -> Iterator[Finding]:
        """Yield which metrics can run, and what is missing for the others."""
        ready = _ready(setup)
        if ready:
            yield ok(f"can run: {', '.join(ready)}")
        for role, reason in setup.missing_models.items():
            yield _missing(role, reason, setup)
        if hub_is_offline():
            yield note(f"HF_HUB_OFFLINE is set: {_NO_DOWNLOAD}")
        elif not setup.settings.models.download:
            yield note(f"models.download is false: {_NO_DOWNLOAD}")
        # Loading takes a while, so that users can switch it off.
        if setup.options.loads_models:
            yield from _loaded(setup)


def _ready(setup: Setup) -> list[str]:
    """Return the local metrics whose models are all on this machine."""
    models = Models(setup.settings.models)
    local = [metric for metric in setup.metrics if not metric.asks_judge]
    missing = setup.missing_models.keys()
    return [metric.name for metric in local if missing.isdisjoint(models.needed(metric.models))]


def _missing(role: Role, reason: str, setup: Setup) -> Finding:
    advice = _advice(role, reason, setup)
    message = f"{role}: {reason}; {_effect(role, reason, setup)}: {', '.join(setup.metrics_with(role))}"
    # Metrics that the user has named must run. The defaults are those that can run.
    return warning(message, advice) if setup.settings.metrics is None else problem(message, advice)


def _effect(role: Role, reason: str, setup: Setup) -> str:
    if role == "nlp" or "not installed" in reason:
        return "skipped without it"
    if hub_is_offline() or not setup.settings.models.download:
        return "it may not be downloaded, so these are skipped"
    return "the first turn downloads it in the background, and until then these are skipped"


def _advice(role: Role, reason: str, setup: Setup) -> str:
    name = getattr(setup.settings.models, role)
    if "not installed" in reason:
        return 'pip install "rageval-hooks[local]", or set models=lexical'
    if role == "nlp":
        return f"python -m spacy download {name}, or set models.nlp to lexical"
    return f"hf download {name} where there is a network, and set models.{role} to the folder; or set models=lexical"


def _loaded(setup: Setup) -> Iterator[Finding]:
    """Load what is here, as an application would, but for downloads."""
    models = Models(setup.settings.models.model_copy(update={"download": False}))
    needed = models.needed(role for metric in setup.metrics for role in metric.models)
    for role in sorted(needed - setup.missing_models.keys()):
        name = getattr(setup.settings.models, role)
        try:
            getattr(models, role)(wait=True)
        except ModelUnavailableError as error:
            yield problem(f"{role}: {error.reason}", "the message says what is missing")
        else:
            yield ok(f"{role}: {name} is loaded")
