"""What a run of LangChain knows besides the fields of every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rageval_hooks.integrations.capture.recorder import Run


@dataclass(eq=False, kw_only=True)
class LangChainRun(Run):
    """A run of LangChain.

    Attributes:
        description: of a tool.
        tool_call_id: the id under which a model asked for the tool.
        parameters: with which a model was called: LangChain's ``invocation_params``.
        template: of a prompt: its serialized form.
        configurable: the ids of session and user in the configuration.
        found: what a retriever returned and the copies of it, until the turn's values are copied.
        collection: the collection that a vector store searched.
        top_k: how many documents it was asked for.
        values_copied: True for a root once the inputs and outputs of its runs are copies.
        first_half_missing: True for a root that resumes a turn of which this process knows only the state.
        waits: of a root, when the graph waited for a person, as intervals in nanoseconds since the epoch.
    """

    description: str | None = None
    tool_call_id: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    template: Any = None
    configurable: Mapping[str, Any] = field(default_factory=dict)
    found: tuple[Sequence[Any], Sequence[Any]] = ((), ())
    collection: str | None = None
    top_k: int | None = None
    values_copied: bool = False
    first_half_missing: bool = False
    waits: Sequence[tuple[int, int]] = ()
