"""Which nodes were the context of the answer: what synthesizers were given, else what the last stage left over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.llama_index.payloads import Snapshot

__all__ = ["context_of", "inside", "nodes_after", "nodes_before", "repetitions"]


def inside(run: Run, *kinds: str) -> bool:
    """Whether a run of one of these kinds is around it."""
    return any(ancestor.kind in kinds for ancestor in run.ancestors())


def nodes_before(run: Run) -> Snapshot:
    """Return the nodes that a reranker or a synthesizer was given."""
    return (run.details or {}).get("nodes_before") or ()


def nodes_after(run: Run) -> Snapshot | None:
    """Return the nodes that a retriever or a reranker returned; None if it returned none because it failed."""
    return (run.details or {}).get("nodes_after")


@dataclass
class _Stage:
    """Nodes on their way from the retriever to the prompt."""

    nodes: Snapshot
    parent: Run | None
    used: bool = False
    ids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = _ids(self.nodes)


def _ids(nodes: Snapshot) -> frozenset[str]:
    return frozenset(str(getattr(node, "node_id", id(node))) for node, _, _ in nodes)


def context_of(runs: Sequence[Run]) -> Snapshot:
    """Return the nodes that the answer stands on, in the order in which they were retrieved.

    A reranker's output takes the place of what it was given, and so do the nodes that a synthesizer was given:
    they may be fewer, others (cut into citations), or new scores. A synthesizer over the answers to sub-questions was
    given no retrieved nodes, and does not count; but where nothing was retrieved in sight, whatever was given does.
    """
    stages: list[_Stage] = []
    given: list[_Stage] = []
    retrieved: set[str] = set()
    again: set[str] = set()
    repeated = repetitions(runs)
    for run in _in_order(runs):
        if id(run) in repeated:
            again |= _ids(nodes_after(run) or ())
            continue
        if run.kind == "synthesizer":
            stage = _Stage(nodes_before(run), run.parent, used=True)
            if stage.ids <= again:
                continue
            replaced = [old for old in stages if not old.used and old.ids & stage.ids]
            if not replaced and not stage.ids & retrieved:
                replaced = [old for old in stages if not old.used and old.ids and old.parent is run.parent]
                if not replaced:
                    given.append(stage)
                    continue
        else:
            stage = _Stage(nodes_after(run) or (), run.parent)
            replaced = [old for old in stages if not old.used and old.ids & _ids(nodes_before(run))]
            retrieved |= stage.ids
        stages = [old for old in stages if old not in replaced] + [stage]
    return tuple(node for stage in stages or given for node in stage.nodes)


def repetitions(runs: Sequence[Run]) -> set[int]:
    """Return the identities of the retrievals that only found, under new ids, what had been found before.

    So an evaluator works that a query engine asks whether it is to try again: it makes an index of the passages of the
    answer, and has that asked with a prompt of its own.
    """
    texts: set[str] = set()
    ids: set[str] = set()
    found = set()
    for run in _in_order(runs):
        nodes = nodes_after(run) if run.kind == "retriever" else None
        if not nodes:
            continue
        again, known = {text for _, _, text in nodes}, _ids(nodes)
        if again <= texts and not known & ids:
            found.add(id(run))
        else:
            texts |= again
            ids |= known
    return found


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that matter, in the order in which they act: a synthesizer at its start, others at their end."""
    found = []
    for position, run in enumerate(runs):
        if inside(run, "retriever", "reranker"):
            continue
        if run.kind == "synthesizer" and nodes_before(run):
            found.append((run.started_at, position, run))
        elif run.kind in ("retriever", "reranker") and nodes_after(run) is not None:
            found.append((run.ended_at or run.started_at, position, run))
    return [run for _, _, run in sorted(found, key=lambda item: item[:2])]
