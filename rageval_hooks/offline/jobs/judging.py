"""Options of a judge that follow from a command's own options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rageval_hooks.judges.base import REGISTRY
from rageval_hooks.judges.client.remote import RemoteJudge

__all__ = ["with_concurrency"]


def with_concurrency(judge: str, options: Mapping[str, Any], concurrency: int) -> dict[str, Any]:
    """Return options with which a judge takes so many requests at a time, unless they set a limit themselves.

    Args:
        judge: ``"provider:model"``. Only the judges of this package that send requests have such a limit.
        options: as the user gave them.
        concurrency: requests at a time, at least.
    """
    kind = REGISTRY.builtin().get(judge.partition(":")[0].strip())
    # A judge of a plug-in may not have an option `max_concurrency`.
    if kind is None or not issubclass(kind, RemoteJudge):
        return dict(options)
    return {"max_concurrency": concurrency, **options}
