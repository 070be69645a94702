"""How explanations name the entities of a response that the passages do not have."""

from __future__ import annotations

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.support.unseen import passage_name
from rageval_hooks.text.facts import entity_supported

__all__ = ["missing_entities"]


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
