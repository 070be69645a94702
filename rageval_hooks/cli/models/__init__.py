"""``rageval-hooks models``: the local models that are configured, and how fast they are on this machine."""

from __future__ import annotations

from rageval_hooks.cli.models.commands import models

__all__ = ["models"]
