"""Which steps of a turn search, and which lie inside of those."""

from __future__ import annotations

from collections.abc import Sequence

from rageval_hooks.turn import Step

__all__ = ["is_retrieval", "outside_retrieval"]


def is_retrieval(step: Step) -> bool:
    """Return True if a step searches: a retriever, a reranker, or a tool that found passages."""
    return step.kind in ("retriever", "reranker") or bool(step.passages)


def outside_retrieval(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are not part of a search, the searches themselves included."""
    by_id = {step.id: step for step in steps}

    def is_inside(step: Step) -> bool:
        around = by_id.get(step.parent_id or "")
        return around is not None and (is_retrieval(around) or is_inside(around))

    return [step for step in steps if not is_inside(step)]
