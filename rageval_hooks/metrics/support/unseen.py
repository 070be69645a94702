"""How explanations name what the prompt's passages lack, and the unseen passages that have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rageval_hooks.metrics.support.grounding import groundedness
from rageval_hooks.metrics.support.index_cache import cached_index
from rageval_hooks.metrics.support.response_text import ResponseText
from rageval_hooks.text.fact_index import entity_supported
from rageval_hooks.text.limits import Span
from rageval_hooks.turn import Passage, Turn

if TYPE_CHECKING:
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis


_SUPPORTED: Final = 0.75
"""Share of a sentence's words that an unseen passage must have. By words, so that it costs no model."""


def passage_name(turn: Turn, index: int) -> str:
    """Return how an explanation names a passage: by its id, else by its place, counted from 1."""
    return turn.passages[index].id or f"number {index + 1}"


def unseen_support(turn: Turn, response: ResponseText) -> dict[Span, tuple[str, ...]]:
    """Return, by sentence of the response, the name of an unseen passage that supports it by its words.

    Args:
        turn: the turn. Most turns have no unseen passage, and the result is empty.
        response: the turn's response.
    """
    positions = [position for position, passage in enumerate(turn.passages) if not passage.seen_by_model]
    if not positions:
        return {}
    indexes = [cached_index(turn.passages[position].text) for position in positions]
    # By words only: embedding passages that do not count would make every such turn slower.
    found = groundedness(response.blanked, indexes, lines=response.lines)
    return {
        sentence.span: (passage_name(turn, positions[sentence.passage]),)
        for sentence in found.sentences
        if sentence.score >= _SUPPORTED
    }


def missing_entities(analysis: TurnAnalysis) -> str:
    """Return the entities that no passage of the prompt has, and the unseen passages that have them.

    Returns:
        Such as "not in the context: Paris, 2017; only in a passage that was not in the prompt (doc-3): 2017". Empty if
        the passages have all entities.
    """
    _, missing = analysis.entity_support
    if not missing:
        return ""
    lines = [f"not in the context: {', '.join(missing)}"]
    kinds = {entity.text: entity.kind for entity in analysis.entities}
    for position in analysis.unseen_positions:
        facts = analysis.passage_indexes[position].facts
        found = [text for text in missing if entity_supported(text, kinds[text], facts)]
        if found:
            name = passage_name(analysis.turn, position)
            lines.append(f"only in a passage that was not in the prompt ({name}): {', '.join(found)}")
    return "; ".join(lines)


def not_in_prompt(passages: Sequence[Passage], prompt_passages: Sequence[Passage]) -> str:
    """Return a note on how many passages were not in the prompt; empty if all were."""
    count = len(passages) - len(prompt_passages)
    if not count:
        return ""
    return f"{count} of {len(passages)} passages {'was' if count == 1 else 'were'} not in the prompt and not used"
