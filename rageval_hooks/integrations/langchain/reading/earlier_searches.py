"""Documents that tools found in earlier turns, by the id of the tool call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rageval_hooks.integrations.capture.host_values import attribute_text, or_else
from rageval_hooks.integrations.capture.passages import EarlierPassages
from rageval_hooks.integrations.capture.run_facts import of_kind
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.turn import Turn

__all__ = ["EarlierSearches"]


class EarlierSearches(EarlierPassages):
    """The passages that tools found, by the id of the tool call.

    A tool message has only text, unless the tool returns an artifact. Its id leads to the documents behind the text.
    """

    def remember(self, runs: Sequence[Run], turn: Turn) -> None:
        """Remember what the tools of a turn found.

        Args:
            runs: the records of the turn.
            turn: the turn that was built from them.
        """
        if not turn.passages:
            return
        found = {step.id: step.passages for step in turn.steps}
        for run in runs:
            # A retriever may be inside a tool, and that tool an agent inside another tool.
            for tool in of_kind((run, *run.ancestors()), "tool"):
                self.add(_tool_call_id(tool.output), found.get(run.text_id, ()))


@or_else("")
def _tool_call_id(output: Any) -> str:
    """Return the id of the call that a tool's message answers; empty if the tool returned something else."""
    # ToolMessage(content="The pier was …", tool_call_id="call_1")
    return attribute_text(output, "tool_call_id") or ""
