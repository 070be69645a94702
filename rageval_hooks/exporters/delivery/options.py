"""The options of all exporters to score APIs, and how they read and keep credentials."""

from __future__ import annotations

import os
from typing import TypedDict

from opentelemetry.trace import TracerProvider
from pydantic import SecretStr

from rageval_hooks.exporters.main_results import ScoreSelection
from rageval_hooks.settings import SpanSelection

__all__ = ["DeliveryOptions", "as_secret", "reveal", "variable"]


class DeliveryOptions(TypedDict, total=False):
    """The options of :class:`rageval_hooks.exporters.delivery.ScoreApiExporter`, which its subclasses pass on."""

    capture_content: bool | None
    spans: SpanSelection
    scores: ScoreSelection
    tracer_provider: TracerProvider | None


def variable(*names: str) -> str:
    """Return the first environment variable that is set and not blank, without surrounding spaces; else empty."""
    values = (os.environ.get(name, "").strip() for name in names)
    return next(filter(None, values), "")


def as_secret(given: str | SecretStr | None, *names: str) -> SecretStr:
    """Return a key or a URL with a password so that no message and no traceback shows it.

    Args:
        given: the user's value.
        names: the environment variables for its default.
    """
    text = reveal(given) if isinstance(given, SecretStr) else given
    return SecretStr(text or variable(*names))


def reveal(secret: SecretStr | None) -> str:
    """Return the text of a secret; empty for None."""
    return "" if secret is None else secret.get_secret_value()
