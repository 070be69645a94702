"""What tools found in earlier turns: their messages are in the prompts of the turns that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.turn import Passage, Turn

__all__ = ["EarlierSearches"]

_MOST_CALLS = 2000
"""Tool calls that are remembered."""


class EarlierSearches(Mapping[str, Sequence[Passage]]):
    """The passages that tools found, by the id of the tool call. The oldest calls are forgotten.

    A tool message has only text, unless the tool returns an artifact. Its id leads to the documents behind the text.
    """

    def __init__(self) -> None:
        self._passages: dict[str, tuple[Passage, ...]] = {}

    def __getitem__(self, tool_call_id: str) -> Sequence[Passage]:
        """Return what a tool call found."""
        return self._passages[tool_call_id]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of the tool calls."""
        return iter(list(self._passages))

    def __len__(self) -> int:
        """Return the number of tool calls."""
        return len(self._passages)

    def remember(self, runs: Sequence[Run], turn: Turn) -> None:
        """Remember what the tools of a turn found.

        Args:
            runs: the records of the turn.
            turn: the turn that was built from them.
        """
        if not turn.passages:
            return
        found = {step.id: step.passages for step in turn.steps if step.passages}
        for run in runs:
            passages = found.get(run.text_id)
            if not passages:
                continue
            for around in (run, *run.ancestors()):
                tool_call_id = getattr(around.output, "tool_call_id", None) if around.kind == "tool" else None
                if isinstance(tool_call_id, str):
                    self._add(tool_call_id, passages)

    def _add(self, tool_call_id: str, passages: Sequence[Passage]) -> None:
        # Marks belong to the turn in which the tool ran.
        unmarked = [passage.model_copy(update={"in_prompt": None, "prompt_share": None}) for passage in passages]
        known = self._passages.pop(tool_call_id, ())
        self._passages[tool_call_id] = (*known, *(passage for passage in unmarked if passage not in known))
        # Several threads may be here: each operation is atomic, and an id that is gone already does not matter.
        while len(self._passages) > _MOST_CALLS:
            self._passages.pop(next(iter(list(self._passages))), None)
