"""Documents that tools found in earlier turns, by the text that the tool returned."""

from __future__ import annotations

from collections.abc import Sequence

from rageval_hooks.integrations.capture.passages import EarlierPassages, mark_seen
from rageval_hooks.integrations.capture.run_facts import of_kind
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.llama_index.payloads import answer_of, messages_of, nodes_in, passages_of
from rageval_hooks.integrations.llama_index.reading.retrieval import passages_found, retrievals_of
from rageval_hooks.turn import Passage

__all__ = ["EarlierTools"]


class EarlierTools(EarlierPassages):
    """The passages that tools found, by the text that the tool returned.

    The span of a tool does not have the id of the call, so the text of the tool message is what leads to the passages.
    """

    def remember(self, runs: Sequence[Run]) -> None:
        """Remember what the tools of a turn found."""
        for run in retrievals_of(runs):
            for tool in of_kind(run.ancestors(), "tool"):
                self.add(answer_of(tool.output), passages_found(run))
        # A tool may search without a retriever, and return the nodes.
        for tool in of_kind(runs, "tool"):
            self.add(answer_of(tool.output), passages_of(nodes_in(tool.output)))

    def passages_in(self, answering: Run | None, runs: Sequence[Run]) -> list[Passage]:
        """Return the passages of earlier tool messages in the prompt of the answer.

        Args:
            answering: the call that wrote the answer.
            runs: the runs of the turn. Its own tools are not earlier ones.
        """
        if answering is None or not self:
            return []
        own = {answer_of(tool.output) for tool in of_kind(runs, "tool")}
        found: list[Passage] = []
        for message in messages_of(answering.input):
            if message.role == "tool" and message.content not in own:
                found.extend(self._shown_in(message.content))
        return found

    def _shown_in(self, output: str) -> list[Passage]:
        """Return the passages behind the output of an earlier tool; none if the output is unknown.

        The output itself counts as the passage if it has none of the passages that the tool found: the tool may have
        returned a summary.
        """
        passages = self.get(output)
        if not passages:
            return []
        shown = [passage for passage in mark_seen(passages, output) if passage.in_prompt]
        return shown or [Passage(text=output, in_prompt=True, prompt_share=1.0)]
