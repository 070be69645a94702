"""The configured local models, and where they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, get_args

from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.models import Models, Role
from rageval_hooks.models.sources import on_this_machine
from rageval_hooks.settings import FORMULA, LEXICAL, ModelSettings

__all__ = ["ROW", "ConfiguredModel", "configured_models"]

ROW: Final = ("role", "model", "on this machine", "metrics")


@dataclass(frozen=True, kw_only=True)
class ConfiguredModel:
    """A model that the settings name.

    Attributes:
        role: its role.
        name: its name or folder.
        here: True if it seems to be on this machine; None if no files are needed.
        metrics: the metrics that use it.
    """

    role: Role
    name: str
    here: bool | None
    metrics: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """Return the model as JSON-able data."""
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """Return a row of the table."""
        here = {True: "yes", False: "no", None: "-"}[self.here]
        return self.role, self.name, here, ", ".join(self.metrics) or "-"


def configured_models(settings: ModelSettings) -> list[ConfiguredModel]:
    """Return the model of each role."""
    users = _users(Models(settings))
    return [
        ConfiguredModel(role=role, name=name, here=_is_here(role, name), metrics=tuple(users.get(role, ())))
        for role in get_args(Role)
        for name in [getattr(settings, role)]
    ]


def _is_here(role: Role, name: str) -> bool | None:
    # The formula and the lexical tier need no files.
    if name == LEXICAL or (role == "grounding" and name == FORMULA):
        return None
    return on_this_machine(role, name)


def _users(models: Models) -> dict[Role, list[str]]:
    """Return the names of the metrics by the role that they need."""
    users: dict[Role, list[str]] = {}
    for name in REGISTRY.builtin():
        for role in models.needed(REGISTRY.create(name).models):
            users.setdefault(role, []).append(name)
    return users
