"""The nodes that the answer was written from: from the retrievers through the rerankers to the synthesizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from rageval_hooks.integrations.capture.run_facts import detail_of, of_kind, outside
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.llama_index.payloads import Snapshot, node_ids
from rageval_hooks.runtime.selecting import without

__all__ = ["context_of", "nodes_after", "nodes_before", "repetitions"]

_FINDERS = ("retriever", "reranker")
"""Kinds of runs that return nodes."""


def nodes_before(run: Run) -> Snapshot:
    """Return the nodes that a reranker or a synthesizer was given."""
    return detail_of(run, "nodes_before") or ()


def nodes_after(run: Run) -> Snapshot | None:
    """Return the nodes that a retriever or a reranker returned; None if it failed."""
    nodes: Snapshot | None = detail_of(run, "nodes_after")
    return nodes


def context_of(runs: Sequence[Run]) -> tuple[Snapshot, frozenset[str]]:
    """Return the nodes that the answer was written from, in the order in which they were retrieved.

    The output of a reranker replaces its input. So do the nodes that a synthesizer was given: they may be fewer, cut
    into citations, or have new scores. A synthesizer over the answers to sub-questions was given nodes that no
    retriever found; they count only if nothing was retrieved.

    Returns:
        The nodes, and the ids of retrieved nodes from which an engine made nodes with new ids: citations.
    """
    way = _WayOfNodes()
    repeated = repetitions(runs)
    for run in _in_order(runs):
        if id(run) in repeated:
            way.repeat(run)
        elif run.kind == "synthesizer":
            way.synthesize(run)
        else:
            way.retrieve(run)
    return way.nodes, way.rebuilt_ids


@dataclass
class _Stage:
    """Nodes on their way from the retriever to the prompt."""

    nodes: Snapshot
    parent: Run | None
    used: bool = False
    ids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = node_ids(self.nodes)


class _WayOfNodes:
    """The latest stage of all nodes of a turn.

    Attributes:
        rebuilt_ids: the ids of retrieved nodes from which an engine made nodes with new ids.
    """

    def __init__(self) -> None:
        self.rebuilt_ids: frozenset[str] = frozenset()
        self._stages: list[_Stage] = []
        self._given: list[_Stage] = []
        self._retrieved_ids: set[str] = set()
        self._repeated_ids: set[str] = set()

    @property
    def nodes(self) -> Snapshot:
        """The nodes of all stages; those that no retriever found only if nothing was retrieved."""
        stages = self._stages or self._given
        return tuple(chain.from_iterable(stage.nodes for stage in stages))

    def repeat(self, run: Run) -> None:
        """Note a retriever that found known texts under new ids."""
        self._repeated_ids |= node_ids(nodes_after(run) or ())

    def retrieve(self, run: Run) -> None:
        """Take over what a retriever found, or what a reranker left of its input."""
        stage = _Stage(nodes_after(run) or (), run.parent)
        # A reranker was given nodes of earlier stages, a retriever none.
        self._replace(self._sharing(node_ids(nodes_before(run))), stage)
        self._retrieved_ids |= stage.ids

    def synthesize(self, run: Run) -> None:
        """Take over what a synthesizer was given."""
        stage = _Stage(nodes_before(run), run.parent, used=True)
        # The evaluator's own query engine has a synthesizer too.
        if stage.ids <= self._repeated_ids:
            return
        replaced = self._sharing(stage.ids)
        if replaced or stage.ids & self._retrieved_ids:
            self._replace(replaced, stage)
            return

        # No retriever found these ids. A citation engine makes such nodes from what its retriever found: the node "d1"
        # becomes "Source 1: …" and "Source 2: …" with new ids.
        originals = self._unused_of_engine(run.parent)
        if not originals:
            self._given.append(stage)
            return
        self.rebuilt_ids = self.rebuilt_ids.union(*(original.ids for original in originals))
        self._replace(originals, stage)

    def _replace(self, replaced: Sequence[_Stage], stage: _Stage) -> None:
        self._stages = [*without(self._stages, replaced), stage]

    def _sharing(self, ids: frozenset[str]) -> list[_Stage]:
        """Return the stages whose nodes go into the next one, and have not been in a prompt yet."""
        return [stage for stage in self._unused() if stage.ids & ids]

    def _unused_of_engine(self, engine: Run | None) -> list[_Stage]:
        """Return what an engine's retriever found and no prompt has used.

        A citation engine cuts nodes into numbered sources, each with a new id.
        """
        return [stage for stage in self._unused() if stage.ids and stage.parent is engine]

    def _unused(self) -> list[_Stage]:
        return [stage for stage in self._stages if not stage.used]


def repetitions(runs: Sequence[Run]) -> set[int]:
    """Return the identities of retrievals that found the texts of earlier ones under new ids.

    An evaluator works this way when a query engine asks it whether to retry: it makes an index of the answer's
    passages and queries that with another prompt.
    """
    texts: set[str] = set()
    ids: set[str] = set()
    found = set()
    for run in of_kind(_in_order(runs), "retriever"):
        nodes = nodes_after(run) or ()
        new_texts = {text for _, _, text in nodes}
        new_ids = node_ids(nodes)
        if nodes and new_texts <= texts and ids.isdisjoint(new_ids):
            found.add(id(run))
        else:
            texts |= new_texts
            ids |= new_ids
    return found


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """Return retrievers, rerankers and synthesizers in the order of their effect."""
    outermost = outside(filter(_has_effect, runs), *_FINDERS)
    return sorted(outermost, key=_time_of_effect)


def _has_effect(run: Run) -> bool:
    if run.kind == "synthesizer":
        return bool(nodes_before(run))
    return run.kind in _FINDERS and nodes_after(run) is not None


def _time_of_effect(run: Run) -> int:
    """Return when a run took or returned its nodes: a synthesizer uses its nodes at its start."""
    if run.kind == "synthesizer" or run.ended_at is None:
        return run.started_at
    return run.ended_at
